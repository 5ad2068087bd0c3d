"""parts: what a worker loop is made of. `runtime/assemble.py` puts them together."""

import time
from collections.abc import Callable

import msgspec

from streamkit.config import Settings
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Log, Membership, Writer
from streamkit.runtime.persist import Storage
from streamkit.runtime.stuck_records import StuckRecords
from streamkit.runtime.writer_names import WriterNames
from streamkit.task.limits import TopicLimits


def wall_clock_ms() -> int:
    """Processing time, in ms."""
    return int(time.time() * 1000)


class Parts(msgspec.Struct):
    """What a worker loop is made of; the worker, the harness and the simulation put it together."""

    plan: Plan
    log: Log
    writer: Writer
    names: WriterNames
    membership: Membership
    storage: Storage
    settings: Settings
    partition_counts: dict[str, int]
    limits: dict[str, TopicLimits]
    now_ms: Callable[[], int]
    losses: StuckRecords
