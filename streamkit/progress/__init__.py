"""Time and cuts: watermarks, channels, barriers, and how far a task has come. Pure state machines, no I/O.

a task          task_clock
its inputs      source_clock channels writers
cuts            line
turns           pace
"""
