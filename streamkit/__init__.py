"""Stateful, exactly-once stream processing over Kafka, in plain Python.

Reading order: `graph/pipeline.py` is what users write, `graph/plan.py` what it becomes, `task/` what becomes of a
record, `runtime/agent.py` the loop that runs tasks, `runtime/commit.py` the moment that makes it exactly once,
`kafka/ports.py` what it asks of a log.
"""

from streamkit.config import Settings
from streamkit.graph.pipeline import Pipeline, pipeline
from streamkit.graph.policy import dead_letter, fail, skip
from streamkit.graph.stream import Keyed, Stream
from streamkit.model.duration import minutes, seconds
from streamkit.model.topic import Topic, topic
from streamkit.operators.aggregators import Aggregator
from streamkit.operators.process import Context, Operator, Timer
from streamkit.state.views import MapState, ValueState, map_of, value

__version__ = "0.1.0"

__all__ = [
    "Aggregator",
    "Context",
    "Keyed",
    "MapState",
    "Operator",
    "Pipeline",
    "Settings",
    "Stream",
    "Timer",
    "Topic",
    "ValueState",
    "dead_letter",
    "fail",
    "map_of",
    "minutes",
    "pipeline",
    "seconds",
    "skip",
    "topic",
    "value",
]
