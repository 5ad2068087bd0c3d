"""FailureBook: what one task knows of its failures: what is condemned, how often something was tried, what it waits at.

`task/failures.py` decides, by the pipeline's policy, and writes its decisions down here; those who run records, timers and
held-back results ask whether they are to be set aside instead. What is done with, a commit takes out of the book.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from streamkit.model.ids import TopicPartition
from streamkit.state.timers import StoredTimer

# For how long after its time a timer of processing time keeps the count of its failures.
COUNTED_MS = 3_600_000

# One record: its partition and its offset. One timer: its store and itself. What was held back: its key.
Place = tuple[TopicPartition, int]
TimerPlace = tuple[str, StoredTimer]
Unit = Place | TimerPlace
Key = bytes | None


class Condemned(msgspec.Struct, frozen=True):
    """Why a record will be set aside when it is reached again."""

    step: str
    error: str
    traceback: str
    # The class of the error, and the last line of the user's code on the way to it, where there is one.
    kind: str = ""
    line: str = ""
    # Whether it would fail in the same way however often it is tried.
    is_lasting: bool = False


class Kind(NamedTuple):
    """What failures are told and counted by; `error` is the class of the error."""

    event: str
    stage: str
    step: str
    error: str


class Wait(msgspec.Struct, frozen=True):
    """What a task waits at, and why; how often in a row."""

    at: str
    reason: Condemned
    times: int = 1

    def again(self, at: str, reason: Condemned) -> "Wait":
        """The next wait; it is the same one if place, step, line and class of the error are, whatever its text says."""
        was = self.reason
        is_same = (self.at, was.step, was.line, was.kind) == (at, reason.step, reason.line, reason.kind)
        is_same = is_same and (bool(reason.kind) or was.error == reason.error)
        return Wait(at, reason, self.times + 1 if is_same else 1)


class FailureBook:
    """The failures of one task."""

    def __init__(self) -> None:
        # Offsets which the error policy has condemned: they go to the dead letters without being run.
        self.records: dict[TopicPartition, dict[int, Condemned]] = {}
        # Timers likewise: they are set aside instead of being fired.
        self.timers: dict[TimerPlace, Condemned] = {}
        # Held-back results that keep the loop for too long, by their step: never run as long as that is remembered.
        self.results: dict[str, dict[Key, Condemned]] = {}
        # Keys whose held-back result could not be sent on: it is set aside at the next end of the span.
        self.muted: dict[Key, Condemned] = {}
        # What was set aside in the open span.
        self.timers_set_aside: set[TimerPlace] = set()
        self.set_aside: dict[Kind, int] = {}
        # How often a record, a timer or the held-back result of a key has failed and was tried again.
        self.attempts: dict[Unit | Key, int] = {}
        # Failures in a row, of the task or of the record that it is stuck at: the waiting time grows with them.
        self.in_a_row = 0
        self.wait: Wait | None = None
        # True if records have failed: when the span is read again, they are run carefully.
        self.is_suspect = False

    # -- what is condemned ----------------------------------------------------------------------------------------

    def condemn_record(self, partition: TopicPartition, offset: int, reason: Condemned) -> None:
        """Set this record aside when it is reached."""
        self.records.setdefault(partition, {})[offset] = reason

    def condemn_result(self, step: str, key: Key, reason: Condemned) -> None:
        """Set the result that this step holds back for this key aside, whenever there is one."""
        self.results.setdefault(step, {})[key] = reason

    def condemn(self, unit: Unit, reason: Condemned) -> None:
        """Set this record or timer aside when it is reached."""
        where, what = unit
        if isinstance(where, TopicPartition):
            assert isinstance(what, int)
            self.condemn_record(where, what, reason)
        else:
            assert isinstance(what, StoredTimer)
            self.timers[where, what] = reason

    def is_condemned(self, unit: Unit) -> bool:
        """Whether this record or timer is set aside instead of being run."""
        where, what = unit
        if isinstance(where, TopicPartition):
            return what in self.records.get(where, {})
        return unit in self.timers

    def acquit(self) -> None:
        """Let all be run again that failed while the span went on over state that could not be stored: it may be why."""
        for condemned in self.records.values():
            condemned.clear()
        self.timers.clear()
        self.muted.clear()

    # -- the life of a span ---------------------------------------------------------------------------------------

    def begin_span(self) -> None:
        """The open span is dropped, and with it what was set aside in it."""
        self.timers_set_aside.clear()
        self.set_aside = {}

    def end_span(self) -> dict[Kind, int]:
        """What was set aside in the span that ends, by its kind."""
        ended, self.set_aside = self.set_aside, {}
        return ended

    def landed(
        self, positions: Mapping[TopicPartition, int], fired: int, processing_stores: set[str], now_ms: int
    ) -> None:
        """A commit has ended with these positions and this event time: forget what is behind them."""
        self.muted.clear()
        for what in self.timers_set_aside:
            self.timers.pop(what, None)
        self.timers_set_aside.clear()
        # A record that is still ahead of us keeps its count, or its patience would never end.
        self.attempts = {
            what: count
            for what, count in self.attempts.items()
            if isinstance(what, tuple) and self._is_ahead(what, positions, fired, processing_stores, now_ms)
        }
        for partition, offset in positions.items():
            condemned = self.records.get(partition)
            if condemned:
                self.records[partition] = {at: why for at, why in condemned.items() if at >= offset}

    def _is_ahead(
        self,
        what: Unit,
        positions: Mapping[TopicPartition, int],
        fired: int,
        processing_stores: set[str],
        now_ms: int,
    ) -> bool:
        """Whether what has failed is still to come, and its count still counts."""
        place, at = what
        if isinstance(place, TopicPartition):
            return isinstance(at, int) and at >= positions.get(place, 0)
        if not isinstance(at, StoredTimer) or what in self.timers:
            return isinstance(at, StoredTimer)
        if place in processing_stores:
            # One that was set and failed in the same span is in no committed state; by then it has had its tries.
            return at.time > now_ms - COUNTED_MS
        # A timer of event time has fired, or was set aside, when event time has come past it.
        return at.time > fired
