"""Windows: the records of a key put together by time or by number, and sent on as one result.

Reading order: `windows/assigners.py` says to which windows a record belongs, `windows/triggers.py` when they fire,
`windows/operator.py` is the algorithm, `windows/plain.py` its short way for the windows that most pipelines use.

what users give  assigners triggers timed_triggers evictors process definition
a window         window contents
the step         step operator sessions look_back finishing late trigger_context
the fast path    plain plain_sessions
from outside     look
"""

from streamkit.windows.assigners import (
    counting,
    cumulating,
    everything,
    hopping,
    session,
    sliding,
    tumbling,
)
from streamkit.windows.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor
from streamkit.windows.process import WindowContext, WindowProcess, window_value
from streamkit.windows.timed_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    TimeoutTrigger,
)
from streamkit.windows.triggers import (
    CountTrigger,
    Decision,
    DeltaTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerContext,
)
from streamkit.windows.window import Window

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "Decision",
    "DeltaEvictor",
    "DeltaTrigger",
    "EventTimeTrigger",
    "Evictor",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "TimeEvictor",
    "TimeoutTrigger",
    "Trigger",
    "TriggerContext",
    "Window",
    "WindowContext",
    "WindowProcess",
    "counting",
    "cumulating",
    "everything",
    "hopping",
    "session",
    "sliding",
    "tumbling",
    "window_value",
]
