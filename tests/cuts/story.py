"""Notes for tests, in short: a pipeline of two stages, and what its workers write about its cuts."""

from collections.abc import Iterable

from streamkit.cuts.ledger import Ledger
from streamkit.cuts.notes import Declined, End, Kind, Note, Reached, Round, Stored, Trigger
from streamkit.model.ids import TaskId

A0, A1, B0 = TaskId("a", 0), TaskId("a", 1), TaskId("b", 0)
TASKS = (A0, A1, B0)
STRANGER = TaskId("a", 2)
STAGES = {"a": 2, "b": 1}


def ledger_of(*notes: Note, made: type[Ledger] = Ledger) -> Ledger:
    ledger = made()
    for note in notes:
        ledger.read(note)
    return ledger


def begun(number: int = 1, at: int = 1, *, stops: bool = False) -> Trigger:
    kind = Kind.SAVEPOINT if stops else Kind.CHECKPOINT
    return Trigger(number, at, kind, STAGES, "f", is_stopping=stops)


def reached(*tasks: TaskId, number: int = 1, at: int = 1) -> list[Note]:
    return [Reached(number, at, task, 1, "b", {}) for task in tasks]


def stored(*tasks: TaskId, number: int = 1, at: int = 1, offset: int = 5) -> list[Note]:
    return [Stored(number, at, task, offset, (), 0) for task in tasks]


def declined(task: TaskId, number: int = 1, at: int = 1) -> Declined:
    return Declined(number, at, task, "it is restored")


def completed(number: int = 1, at: int = 1) -> End:
    return End(number, at, is_complete=True)


def aborted(number: int = 1, at: int = 1) -> End:
    return End(number, at, is_complete=False, why="slow")


def begin_round(number: int) -> Round:
    return Round(number, f"w-{number}")


def compact(log: Iterable[Note], cleaned: int) -> list[Note]:
    """What is left when the log was cleaned up to this place: there the last note of each key."""
    notes = list(log)
    last = {note.key: place for place, note in enumerate(notes[:cleaned])}
    return [note for place, note in enumerate(notes) if place >= cleaned or last[note.key] == place]
