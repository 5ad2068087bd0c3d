"""From pipeline to plan: the fluent API users write, and what it is compiled to."""
