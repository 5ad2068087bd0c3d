"""Time: watermarks, channels, and how far a task has come. Pure state machines, no I/O."""
