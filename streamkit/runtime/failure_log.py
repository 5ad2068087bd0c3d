"""failure_log: what failed, for whoever reads the log: the first of a kind in full, those that follow as a number."""

from collections.abc import Callable

import msgspec
import structlog

from streamkit.runtime.task import Condemned, Task

log = structlog.get_logger()

# How long failures of one step are only counted after one was told: a topic full of them gives six lines a minute.
QUIET_MS = 10_000


class Told(msgspec.Struct):
    """When failures of a kind are told again, and how many were not."""

    again_at_ms: int
    untold: int = 0


class FailureLog:
    """Tells of failures by what failed, stage and step."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._told: dict[tuple[str, str, str], Told] = {}

    def tell(self, event: str, task: Task, reason: Condemned, **fields: object) -> None:
        """Log one failure, or count it if its like was told a moment ago."""
        kind = (event, task.id.stage, reason.step)
        now_ms = self._now_ms()
        told = self._told.get(kind)
        if told is not None and now_ms < told.again_at_ms:
            told.untold += 1
            return
        self.sum_up()
        self._told[kind] = Told(now_ms + QUIET_MS)
        if reason.line:
            fields["line"] = reason.line
        log.warning(event, task=str(task.id), step=reason.step, error=reason.error, **fields)

    def sum_up(self) -> None:
        """Say how many were only counted, where their time has come."""
        now_ms = self._now_ms()
        for (event, stage, step), told in self._told.items():
            if told.untold and now_ms >= told.again_at_ms:
                log.warning(
                    "more failed in the same step", kind=event, stage=stage, step=step, count=told.untold
                )
                told.untold = 0
                told.again_at_ms = now_ms + QUIET_MS
