"""origin: where the record in hand came from, for operators that ask, and which of its headers go on with its results.

Nothing is done for this per record. A loop walks its records with an iterator that is kept here, and how many of them
are left in it tells which one is in hand.
"""

from collections.abc import Iterator, Sequence
from operator import length_hint

from streamkit.model.records import Headers, LogRecord
from streamkit.operators.step import Statements
from streamkit.progress.task_clock import TaskClock
from streamkit.task.emit import NO_HEADERS

_CARRIED = "headers = carried()"


class RecordOrigin:
    """Keeps the promises of `Origin` for the records of one task."""

    def __init__(self, clock: TaskClock, carried: Sequence[str]) -> None:
        """`carried` are the names of the headers that go on."""
        self._clock = clock
        self._names = frozenset(carried)
        self._topic: str | None = None
        self._records: Sequence[LogRecord] = ()
        self._left: Iterator[LogRecord] = iter(())

    def enter(self, topic: str | None, records: Sequence[LogRecord]) -> Iterator[LogRecord]:
        """These records are walked now, with the iterator that is returned; `topic` is None for a shuffle."""
        self._topic = topic
        self._records = records
        self._left = iter(records)
        return self._left

    def leave(self) -> None:
        """No record is in hand any more."""
        self._records = ()

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """As `Origin.headers`."""
        record = self._in_hand()
        return () if record is None else tuple(record.headers)

    @property
    def topic(self) -> str | None:
        """As `Origin.topic`."""
        return None if self._in_hand() is None else self._topic

    @property
    def offset(self) -> int | None:
        """As `Origin.offset`."""
        record = self._in_hand()
        return None if record is None or self._topic is None else record.offset

    def carrying(self, out: Statements) -> Statements:
        """The statements that write a record, with the headers that go on; as they are if none do."""
        if not self._names:
            return out
        names = {name: thing for name, thing in out.names.items() if name != "headers"}
        return Statements(out.step, (_CARRIED, *out.lines), {**names, "carried": self.carried})

    def carried(self) -> Headers:
        """The headers that go on with what is made of the record in hand."""
        record = self._in_hand()
        if record is None or not (headers := record.headers):
            return NO_HEADERS
        names = self._names
        return [each for each in headers if each[0] in names]

    def _in_hand(self) -> LogRecord | None:
        """The record that the loop is at; none outside of one, and none while timers fire between two records."""
        if not self._records or self._clock.is_firing:
            return None
        return self._records[-1 - length_hint(self._left)]
