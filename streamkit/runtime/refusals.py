"""refusals: finding what it is that the broker does not take, by ever smaller spans; the same helps what takes too long.

A broker refuses a commit as a whole, for one record in it. What the topics' settings forbid is known and judged record
by record (`task/limits.py`); for whatever else is refused the worker goes back to its commit records, and then:

    narrows   spans hold fewer records each time a commit is refused again: 256, 64, 16, 4, 1
    judges    a span of one record, or of one timer, is refused: the error policy deals with it
    widens    the refused stretch has passed: spans may be larger again, step by step

A result that was held back belongs to the one record or timer of its span. What has neither behind it (a commit record, a
signal), and what is refused even as a dead letter, is for a person; so is a search that comes to no end.

A commit that outlasts its transaction narrows spans too (`runtime/failed_commits.py`), and judges nobody.
"""

from collections.abc import Iterable, Mapping
from functools import partial

import msgspec
import structlog

from streamkit.errors import DataRefused, Misconfigured
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.state.timers import StoredTimer
from streamkit.task.failure_book import Unit
from streamkit.task.failures import Failures
from streamkit.task.ingest import FetchedIntake, Intake
from streamkit.task.task import Task

log = structlog.get_logger()

# Few enough for any of them to be found in five commits, enough for good records to pass quickly meanwhile.
RECORDS_FIRST = 256
NARROWER = 4
# A search takes six refusals. When this many have found nothing, no search will; unless they were long ago.
REFUSALS_MAX = 30
FORGIVEN_AFTER_S = 600.0
# Timers come due ten times a second: one that was in a refused span has come again after this long.
TIMERS_DUE_S = 1.0


class Span(msgspec.Struct):
    """What a span holds, as far as it has to be known: how many records and, while there is one, which."""

    taken: int = 0
    task: Task | None = None
    unit: Unit | None = None


class Refusals:
    """Bounds the spans of a worker while something in them is refused, or takes too long."""

    def __init__(self, failures: Failures) -> None:
        self.failures = failures
        # Records in a span at most; None: nothing is being looked for.
        self.records_max: int | None = None
        self._open = Span()
        self._sent = Span()
        # Up to where the refused span had read: what is refused lies before.
        self._ends: dict[TopicPartition, int] = {}
        self._passed_at_s: float | None = None
        self._fruitless = 0
        self._last_at_s = 0.0
        self._stopped: dict[TaskId, int] = {}

    # -- the open span ----------------------------------------------------------------------------------------------

    @property
    def is_searching(self) -> bool:
        """Whether spans are bounded, and committed one after the other."""
        return self.records_max is not None

    @property
    def is_single(self) -> bool:
        """Whether spans hold a single record or timer."""
        return self.records_max == 1

    @property
    def sent_alone(self) -> tuple[TaskId, Unit] | None:
        """What the span that was sent last held, if that was a single thing that has a name."""
        task, unit = self._sent.task, self._sent.unit
        return None if task is None or unit is None else (task.id, unit)

    @property
    def is_full(self) -> bool:
        """Whether the open span holds as much as it may."""
        return self.records_max is not None and self._open.taken >= self.records_max

    def room(self, records: int) -> int:
        """How many of so many records may still come into the open span."""
        return records if self.records_max is None else min(records, self.records_max - self._open.taken)

    def watch(self, tasks: Iterable[Task]) -> None:
        """While spans hold a single thing: let timers come one by one, and know which."""
        for task in tasks:
            task.clock.is_single = self.records_max == 1
            if task.clock.is_single:
                task.clock.on_condemned(partial(self._before_timer, task))

    def _before_timer(self, task: Task, store: str, timer: StoredTimer) -> bool:
        self._open = Span(self._open.taken + 1, task, (store, timer))
        return self.failures.put_timer_aside(task, store, timer)

    def took(self, intake: Intake) -> None:
        """Records of this intake have been run, or the timers that were due before them."""
        span = self._open
        span.taken += intake.slice_size
        if (
            self.records_max == 1
            and span.unit is None
            and isinstance(intake, FetchedIntake)
            and intake.slice_size
        ):
            span.task = intake.task
            span.unit = (intake.partition, intake.last_offset)

    def sent(self) -> None:
        """The open span is on its way to the broker."""
        self._sent, self._open = self._open, Span()

    def drop(self) -> None:
        """The open span is dropped."""
        self._open = Span()

    # -- the search -------------------------------------------------------------------------------------------------

    def refused(self, error: DataRefused, ends: Mapping[TopicPartition, int], now_s: float) -> None:
        """The span that was sent last is refused: look closer, or let the policy judge what it comes down to.

        Raises:
            Misconfigured: a person must act.
        """
        self._count(error, now_s)
        self._ends, self._passed_at_s = dict(ends), None
        if self.records_max is None:
            self.records_max = RECORDS_FIRST
        elif self.records_max > 1:
            self.records_max = self._fewer()
        else:
            self._judge(error)
        log.warning(
            "the broker refused a commit: looking for the record",
            error=str(error),
            records_per_span=self.records_max,
        )

    def narrow(self, ends: Mapping[TopicPartition, int]) -> None:
        """The span that was sent last has taken too long: smaller ones, until all that it had read has passed."""
        self._ends, self._passed_at_s = dict(ends), None
        self.records_max = self._fewer()

    def _fewer(self) -> int:
        most = self.records_max or RECORDS_FIRST * NARROWER
        return max(1, min(most, self._sent.taken or most) // NARROWER)

    def _count(self, error: DataRefused, now_s: float) -> None:
        if now_s - self._last_at_s > FORGIVEN_AFTER_S:
            self._fruitless = 0
        self._last_at_s = now_s
        self._fruitless += 1
        if self._fruitless > REFUSALS_MAX:
            raise _for_a_person(error, "no single record or timer is to blame")

    def _judge(self, error: DataRefused) -> None:
        task, unit = self._sent.task, self._sent.unit
        if task is None or unit is None:
            raise _for_a_person(error, "no record and no timer is behind it")
        if task.book.is_condemned(unit):
            raise _for_a_person(error, "it is a dead letter, and there is no other place for it")
        self._fruitless = 0
        if not self.failures.judge_refusal(task, unit, error):
            self._stopped[task.id] = task.book.in_a_row
            self._ends = {}  # its task waits, and the others need not

    def take_stopped(self, tasks: Iterable[Task]) -> list[Task]:
        """The tasks among these that have to wait, because the policy is to fail."""
        if not self._stopped:
            return []
        found = [task for task in tasks if task.id in self._stopped]
        for task in found:
            task.book.in_a_row = self._stopped.pop(task.id)
        return found

    def landed(self, owner_of: Mapping[TopicPartition, Task], now_s: float, *, is_hurried: bool) -> None:
        """A commit has landed: once the refused stretch has passed, larger spans may follow."""
        if self.records_max is None or any(
            at in owner_of and owner_of[at].committed.get(at, 0) < end for at, end in self._ends.items()
        ):
            return
        self._passed_at_s = now_s if self._passed_at_s is None else self._passed_at_s
        is_timed = any(task.rules.is_timed for task in owner_of.values())
        if is_timed and (is_hurried or now_s - self._passed_at_s < TIMERS_DUE_S):
            return
        if self.records_max < RECORDS_FIRST:
            self.records_max *= NARROWER
        else:
            self.records_max = None
            log.info("spans may be as large as before: nothing is refused any more, or takes too long")


def _for_a_person(error: DataRefused, why: str) -> Misconfigured:
    return Misconfigured(
        f'the broker refuses what the pipeline writes to topic "{error.topic}", and {why}',
        where=error.where,
        detail=error.detail,
        hint=error.hint or "compare the topic's settings with those of the other topics",
    )
