"""careful: a task whose records have failed runs them one by one, so that each can be undone.

While all is well a record's effects go straight into the span, and nobody could take back half of them: the first record
that fails where it may have left a trace costs its span. When the span is read again, the task is careful: what a record
does, to state, timers, results and event time, stays apart until it has succeeded (`settle`), and is dropped when it
fails (`undo`). So one pass finds all the records that fail, and each costs about what a record costs. State is encoded
after every record: a value that cannot be stored is an error of the record that made it.

A careful record costs two or three times as much as another. After enough of them without a failure the task trusts
again, at the end of a span.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import NamedTuple

from streamkit.model.records import Headers
from streamkit.operators.step import Held
from streamkit.progress.task_clock import TaskClock
from streamkit.state.task_state import TaskState
from streamkit.task.emit import Lane

# So many records and timers without a failure, and the next one is not expected soon: going back costs about as much as
# being careful for this long.
CALM_AFTER = 2_000

NOT_GUARDED = nullcontext()


class SentRecord(NamedTuple):
    """A record that was sent out."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class HeldBatch:
    """Takes the place of an output batch: keeps the promises of `Batch`, but what is appended stays here."""

    def __init__(self, lane: Lane, partition: int, sent: list[tuple[Lane, SentRecord]]) -> None:
        self._lane = lane
        self._partition = partition
        self._sent = sent

    def append(
        self, index: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> object | None:
        """As `Batch.append`; there is always room, but what the topic would refuse is refused."""
        self._lane.require_room(key, value, headers)
        self._sent.append((self._lane, SentRecord(self._partition, key, value, timestamp, headers)))
        return index

    def size(self) -> int:
        """Nothing that would wait here for the commit."""
        return 0


def guarded(careful: "Careful | None") -> AbstractContextManager[None]:
    """Around all that records and timers do: where their task is careful, it can be undone."""
    return NOT_GUARDED if careful is None else careful


class Careful:
    """Undoes what a record or a timer of one task has done; entered around every slice of them."""

    def __init__(
        self,
        state: TaskState,
        clock: TaskClock,
        held: Iterable[Held],
        lanes: Iterable[Lane],
        row_bytes_max: int,
    ) -> None:
        """`lanes` are those that the task writes to; a row of state has at most `row_bytes_max` bytes."""
        self._state = state.records
        self._clock = clock
        self._held = list(held)
        self._row_bytes_max = row_bytes_max
        # What was sent since the last `settle`, and before it in this slice.
        self._sent: list[tuple[Lane, SentRecord]] = []
        self._settled: list[tuple[Lane, SentRecord]] = []
        self._batches = {
            lane: [HeldBatch(lane, number, self._sent) for number in range(len(lane.batches))]
            for lane in lanes
        }
        self._restore: list[Callable[[], None]] = []
        self._calm = 0
        clock.guard = self
        self._state.settle(row_bytes_max)
        self._mark = clock.mark()

    @property
    def is_calm(self) -> bool:
        """Whether nothing has failed for a while."""
        return self._calm >= CALM_AFTER

    def __enter__(self) -> None:
        self._mark = self._clock.mark()
        self._restore = [lane.divert(batches) for lane, batches in self._batches.items()]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What is settled goes into the span's batches."""
        for restore in self._restore:
            restore()
        for lane, sent in self._settled:
            lane.add(*sent)
        self._settled.clear()
        self._sent.clear()

    def settle(self) -> None:
        """What was done up to here stays in the span.

        Raises:
            EncodeError: state cannot be stored; undo it.
        """
        self._state.settle(self._row_bytes_max)
        self._mark = self._clock.mark()
        for held in self._held:
            held.settle()
        self._settled += self._sent
        self._sent.clear()
        self._calm += 1

    def undo(self) -> None:
        """Take back what was done since the last `settle`."""
        self._state.undo()
        self._clock.undo(self._mark)
        for held in self._held:
            held.undo()
        self._sent.clear()
        self._calm = 0

    def keep(self, what: str) -> None:
        """Something was counted that stays although the next record is undone."""
        self._mark.counts[what] = self._mark.counts.get(what, 0) + 1

    def end(self) -> None:
        """The task trusts again: nothing has to be undone any more."""
        self._state.trust()
        self._clock.guard = None
