"""What a worker reports about itself: plain data, taken at one moment."""

import msgspec


class TaskStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One task. Event time is None before the first watermark and after the last; totals are of committed spans."""

    stage: str
    partition: int
    life: str
    event_time_ms: int | None
    delay_ms: int | None
    timers_near: int
    totals: dict[str, int]


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker."""

    pipeline: str
    commits: int
    # Partitions of shuffles that are handed over in memory.
    local_partitions: int
    # Partitions that the worker writes to whose readers wait for a transaction that does not end.
    blocked_partitions: int
    tasks: list[TaskStatus]
