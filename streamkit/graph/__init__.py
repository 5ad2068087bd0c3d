"""From pipeline to plan: the fluent API users write, and what it is compiled to.

what users write  pipeline any_stream stream steps windowed builder node
checks            validate functions plain writable place
the plan          cut copied resolve plan stage policy
descriptions      describe unread fingerprint from_cut
"""
