"""The walk of a record: files are the steps, `runtime/agent.py` is their order. Around the walk stand the others.

the walk        agent rhythm assign poll turns ingest fetched align chain emit pulse commit persist
the process     worker processes stop_signals arrive host slot supervisor looks disk status
the start       prepare internal_topics lost limits assemble parts make_task
a task          task identity clocks time_rules counts
the group       declined growth twins
the restore     restore tail agree
the writer      writer_names writer_life retire blocked
the output      routes local
event time      hearsay strangers
failures        failures failure_log careful letters refusals doubts losses singly damage watch whereabouts
from outside    foresee last_commits strays outcome time_report
"""
