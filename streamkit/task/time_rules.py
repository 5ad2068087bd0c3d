"""What a task must know about the time of its pipeline."""

import msgspec

from streamkit.config import Settings
from streamkit.graph.plan import Plan
from streamkit.progress.writers import Writers
from streamkit.task.clocks import Clocks


class TimeRules(msgspec.Struct, frozen=True):
    """The same for all tasks of a worker."""

    # Whether any step of the pipeline asks for event time, or any input ends: else nobody needs watermarks.
    is_timed: bool
    # For every shuffle the number of tasks that write to it.
    writers: Writers
    future_max_ms: int
    interval_ms: int
    clocks: Clocks
    # Whether any input of the pipeline ends.
    may_end: bool = True
    # Whether records of strangers in a shuffle are passed over.
    skip_foreign: bool = False


def rules_of(plan: Plan, settings: Settings, clocks: Clocks) -> TimeRules:
    """The rules of a (resolved) plan."""
    return TimeRules(
        is_timed=plan.is_timed,
        writers=Writers(plan.writers()),
        future_max_ms=int(settings.future_max_s * 1000),
        interval_ms=int(settings.watermark_interval_s * 1000),
        clocks=clocks,
        may_end=any(each.is_bounded for stage in plan.stages for each in stage.inputs),
        skip_foreign=settings.skip_foreign,
    )
