"""failure_log: what failed, for whoever reads the log: the first of a kind in full, those that follow as a number.

What is set aside belongs to its span: told at once, but counted only when the span is committed, since one that is dropped
comes again. So the lines and the numbers together are never more than the letters, however often a span was run.
"""

import math
from collections.abc import Callable, Mapping

import msgspec
import structlog

from streamkit.task.failure_book import Condemned, Kind
from streamkit.task.task import Task

log = structlog.get_logger()

# How long failures of a kind are only counted after one was told: a topic full of them gives six lines a minute.
QUIET_MS = 10_000
# A step may raise errors of any number of classes; beyond this many kinds those of a step are told as one.
KINDS_MAX = 100
OTHERS = "others"


class Told(msgspec.Struct):
    """When failures of a kind are told again, and how many were not."""

    again_at_ms: int
    untold: int = 0
    # Lines about what was set aside in spans that are not committed yet; it is not counted as well when they are.
    ahead: int = 0


class FailureLog:
    """Tells of failures by what failed, stage, step and class of the error."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._told: dict[Kind, Told] = {}
        # No number is told before this time.
        self._due_ms: float = math.inf

    def tell(self, event: str, task: Task, reason: Condemned, **fields: object) -> None:
        """Log something that has happened, or count it if its like was told a moment ago."""
        kind = self._kind(event, task, reason)
        if not self._say(kind, task, reason, fields):
            self._count(kind, 1)

    def tell_set_aside(self, event: str, task: Task, reason: Condemned, **fields: object) -> None:
        """As `tell`, for a part of the open span: it is counted by `landed`."""
        kind = self._kind(event, task, reason)
        task.book.set_aside[kind] = task.book.set_aside.get(kind, 0) + 1
        if self._say(kind, task, reason, fields):
            self._told[kind].ahead += 1

    def landed(self, set_aside: Mapping[Kind, int]) -> None:
        """A span is committed in which this was set aside."""
        for kind, count in set_aside.items():
            told = self._told[kind]
            told_before = min(told.ahead, count)
            told.ahead -= told_before
            self._count(kind, count - told_before)

    def sum_up(self) -> None:
        """Say how many were only counted, where their time has come; asked whenever the loop comes round."""
        if self._due_ms == math.inf:
            return
        now_ms = self._now_ms()
        if now_ms < self._due_ms:
            return
        for kind, told in self._told.items():
            if told.untold and now_ms >= told.again_at_ms:
                _say_number(kind, told)
                told.again_at_ms = now_ms + QUIET_MS
        self._due_ms = min(
            (each.again_at_ms for each in self._told.values() if each.untold), default=math.inf
        )

    def end(self) -> None:
        """Say at once how many were only counted: the worker ends."""
        for kind, told in self._told.items():
            if told.untold:
                _say_number(kind, told)

    def _kind(self, event: str, task: Task, reason: Condemned) -> Kind:
        kind = Kind(event, task.id.stage, reason.step, reason.kind)
        is_new = kind not in self._told
        return kind._replace(error=OTHERS) if is_new and len(self._told) >= KINDS_MAX else kind

    def _say(self, kind: Kind, task: Task, reason: Condemned, fields: dict[str, object]) -> bool:
        """Log one failure, unless its like was told a moment ago."""
        now_ms = self._now_ms()
        told = self._told.get(kind)
        if told is not None and now_ms < told.again_at_ms:
            return False
        self.sum_up()
        self._told[kind] = Told(now_ms + QUIET_MS, 0, 0 if told is None else told.ahead)
        if reason.line:
            fields["line"] = reason.line
        log.warning(kind.event, task=str(task.id), step=reason.step, error=reason.error, **fields)
        return True

    def _count(self, kind: Kind, count: int) -> None:
        if count:
            told = self._told[kind]
            told.untold += count
            self._due_ms = min(self._due_ms, told.again_at_ms)


def _say_number(kind: Kind, told: Told) -> None:
    log.warning(
        "more failed in the same step",
        kind=kind.event,
        stage=kind.stage,
        step=kind.step,
        error=kind.error,
        count=told.untold,
    )
    told.untold = 0
