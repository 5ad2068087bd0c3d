"""Stateful, exactly-once stream processing over Kafka, in plain Python.

    import streamkit as sk

    pipeline = sk.pipeline("counting")
    views = pipeline.read(sk.topic("views", View))
    views.key_by(lambda view: view.page).count().write(sk.topic("counts", int))

All that a pipeline is written with is here. `streamkit.testing` has the harness for unit tests, `streamkit guide`
shows the guides in the terminal, and `streamkit --help` the commands. The rest of the package is how it works, and may change.
"""

from streamkit.config import Security, Settings
from streamkit.errors import StreamkitError
from streamkit.graph.pipeline import Pipeline, pipeline
from streamkit.graph.policy import dead_letter, fail, skip
from streamkit.graph.stream import Keyed, Stream
from streamkit.model.duration import days, hours, milliseconds, minutes, seconds
from streamkit.model.event_time import WatermarkGenerator, ingestion_time, punctuated
from streamkit.model.topic import Topic, topic
from streamkit.operators.aggregators import Aggregator
from streamkit.operators.process import Context, Operator, Timer
from streamkit.operators.side import Side, side
from streamkit.serving import run, serve
from streamkit.state.collection_views import ListState, MapState, list_of, map_of
from streamkit.state.views import ValueState, value
from streamkit.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    Decision,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeTrigger,
    Evictor,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeEvictor,
    TimeoutTrigger,
    Trigger,
    TriggerContext,
    Window,
    WindowContext,
    WindowProcess,
    counting,
    cumulating,
    everything,
    hopping,
    session,
    sliding,
    tumbling,
    window_value,
)

__version__ = "0.1.0"

__all__ = [
    "Aggregator",
    "Context",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "Decision",
    "DeltaEvictor",
    "DeltaTrigger",
    "EventTimeTrigger",
    "Evictor",
    "Keyed",
    "ListState",
    "MapState",
    "Operator",
    "Pipeline",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "Security",
    "Settings",
    "Side",
    "Stream",
    "StreamkitError",
    "TimeEvictor",
    "TimeoutTrigger",
    "Timer",
    "Topic",
    "Trigger",
    "TriggerContext",
    "ValueState",
    "WatermarkGenerator",
    "Window",
    "WindowContext",
    "WindowProcess",
    "counting",
    "cumulating",
    "days",
    "dead_letter",
    "everything",
    "fail",
    "hopping",
    "hours",
    "ingestion_time",
    "list_of",
    "map_of",
    "milliseconds",
    "minutes",
    "pipeline",
    "punctuated",
    "run",
    "seconds",
    "serve",
    "session",
    "side",
    "skip",
    "sliding",
    "topic",
    "tumbling",
    "value",
    "window_value",
]


def __dir__() -> list[str]:
    """What a user writes; the packages behind it are not for them."""
    return sorted(__all__)
