"""Protocols that are wrong at one place each: the model has to catch every one of them."""

from streamkit.cuts.ledger import Ledger
from streamkit.cuts.notes import Declined, End, Reached, Round, Stored, Trigger
from streamkit.model.ids import TaskId
from streamkit.model.signal import Barrier
from streamkit.progress.line import Heard, Line
from tests.cuts.model import Protocol, Task, Worker


class ReleasedAtOnce(Protocol):
    """Nobody waits for anybody."""

    def is_released(self, worker: Worker, task: Task, number: int) -> bool:
        del worker, task, number
        return True


class ReleasedByTheFirst(Protocol):
    """One task of the stage that has reached the cut is enough."""

    def is_released(self, worker: Worker, task: Task, number: int) -> bool:
        cuts = [cut for cut in worker.ledger.unended if cut.number == number]
        is_there = any(each.stage == task.id.stage for cut in cuts for each in cut.reached)
        return is_there or super().is_released(worker, task, number)


class ReleasedAtRejoin(Protocol):
    """A new round releases when the worker has joined it, not when its note is read."""

    releases_at_rejoin = True


class BarriersBeforeTheTriggerAreOverrun(Protocol):
    """Nobody stops at a line before it is known what cut it belongs to."""

    holds_before_trigger = False


class UncommittedControl(Protocol):
    """Notes count as soon as they are in the log."""

    reads_uncommitted = True


class _OldRoundsCount(Ledger):
    def _is_void(self, note: Round | Trigger | Reached | Declined | Stored | End) -> bool:
        return isinstance(note, Round) and note.round < self.round


class OldRoundsCount(Protocol):
    """What a former round writes late counts."""

    ledger = _OldRoundsCount


class _OneBarrierIsEnough(Line):
    def hear(self, shuffle: str, channel: int, barrier: Barrier) -> Heard:
        heard = super().hear(shuffle, channel, barrier)
        for each in range(len(self._marks[shuffle])):
            heard = super().hear(shuffle, each, barrier)
        return heard


class BarrierPerPartition(Protocol):
    """A partition is at the line when it has shown a barrier of anybody."""

    line = _OneBarrierIsEnough


class _DeafToEnds(Ledger):
    def is_released(self, task: TaskId, number: int, frozen: object = ()) -> bool:
        del frozen
        cut = self._cuts.get(number)
        return (
            cut is not None
            and cut.trigger is not None
            and not cut.missing(task.stage)
            and not cut.is_stopping
        )


class EndsAreNotHeard(Protocol):
    """Only who has reached it releases, whatever becomes of the cut."""

    ledger = _DeafToEnds
