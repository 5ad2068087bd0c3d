"""What outsiders ask and change about a pipeline on a cluster: from a terminal, later from an API or a page.

Functions take a plan, a log or its admin, and settings; they return frozen structs that become JSON as they are. Nothing
here prints, parses arguments or loads a user's module: whoever calls does.

a pipeline      check foresee time_report
its positions   offsets_report offsets_plan offsets_gap offsets_apply strays
topics          topics_list topics_plan topics_readers
"""
