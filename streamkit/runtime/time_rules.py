"""What a task must know about the time of its pipeline."""

from collections.abc import Mapping

import msgspec

from streamkit.runtime.clocks import Clocks


class TimeRules(msgspec.Struct, frozen=True):
    """The same for all tasks of a worker."""

    # Whether any step of the pipeline asks for event time, or any input ends: else nobody needs watermarks.
    is_timed: bool
    # For every shuffle the number of tasks that write to it.
    writers: Mapping[str, int]
    future_max_ms: int
    interval_ms: int
    clocks: Clocks
    # Whether any input of the pipeline ends.
    may_end: bool = True
    # Whether records of strangers in a shuffle are passed over.
    skip_foreign: bool = False
