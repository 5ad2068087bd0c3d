"""The life of a worker: `runtime/loop.py` is its loop. What a task does with its records is in `task/`.

the walk        loop assign poll turns local pulse rhythm commit persist
the process     worker processes stop_signals arrive host slot retries periodic_checks disk status
the start       prepare cautions early internal_topics lost_state assemble parts
the group       declined group_preview growth duplicate_names
the restore     restore tail agree given_up
the writer      writer_names writer_life retire blocked
the output      output_topics pauses
event time      unknown_channels
failures        refusals failed_commits stuck_records damage watch whereabouts
what was done   last_commits outcome
"""
