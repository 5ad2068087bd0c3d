"""Laws of the ledger: what it says is what a look at the whole log says, in whatever order; and compaction takes nothing away."""

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from streamkit.cuts import ledger as ledger_module
from streamkit.cuts.ledger import Ledger
from streamkit.cuts.notes import (
    Answer,
    Command,
    Declined,
    End,
    Note,
    Reached,
    Round,
    Stored,
    Trigger,
    Wish,
)
from streamkit.model.ids import TaskId
from tests.cuts.story import (
    STRANGER,
    TASKS,
    aborted,
    begin_round,
    begun,
    compact,
    completed,
    declined,
    ledger_of,
    reached,
    stored,
)

everybody = st.sampled_from([*TASKS, STRANGER])


# What the log says, looked at as a whole.


def counting_notes(log: list[Note]) -> list[Note]:
    """Those that are not void."""
    latest, found = 0, list[Note]()
    for note in log:
        if isinstance(note, Round):
            latest = max(latest, note.round)
        if isinstance(note, Command | Answer | Stored) or note.round >= latest:
            found.append(note)
    return found


def of_cut(log: list[Note], number: int, kind: type[Any]) -> list[Any]:
    return [note for note in counting_notes(log) if isinstance(note, kind) and note.cut == number]


def reached_in_time(log: list[Note], number: int) -> set[TaskId]:
    """Who has reached it before its first end; before a newer round because it would be void."""
    triggers, ends = of_cut(log, number, Trigger), of_cut(log, number, End)
    before = log[: log.index(ends[0])] if ends else log
    return {
        note.task for note in of_cut(before, number, Reached) if triggers and note.round == triggers[0].round
    }


def may_complete(log: list[Note], number: int) -> bool:
    has_stored = {note.task for note in of_cut(log, number, Stored)}
    is_open = of_cut(log, number, Trigger) and not of_cut(log, number, End)
    return bool(is_open) and (
        set(TASKS) <= reached_in_time(log, number)
        and set(TASKS) <= has_stored
        and not of_cut(log, number, Declined)
    )


def is_released(log: list[Note], task: TaskId, number: int) -> bool:
    """Rule 4 of the protocol, word by word."""
    triggers, ends = of_cut(log, number, Trigger), of_cut(log, number, End)
    if not triggers:
        return False
    if triggers[0].is_stopping:
        return bool(ends) and not ends[0].is_complete
    there = reached_in_time(log, number)
    newer = any(isinstance(note, Round) and note.round > triggers[0].round for note in log)
    stage_is_there = {each for each in TASKS if each.stage == task.stage} <= there
    return stage_is_there or bool(ends) or (newer and not set(TASKS) <= there)


# Any interleaving of the same transactions.

transactions: st.SearchStrategy[list[list[list[Note]]]] = st.tuples(
    st.booleans(), st.lists(everybody, max_size=2), st.booleans(), st.lists(everybody, max_size=1)
).map(
    # Of each writer, one after the other: two coordinators, two workers, and who comes after them.
    lambda drawn: [
        [[begin_round(1)], [begun(stops=drawn[0])], [completed() if drawn[2] else aborted()]],
        [[*reached(TASKS[0]), *reached(TASKS[2])], [*stored(TASKS[0]), *stored(TASKS[2])]],
        [[*reached(TASKS[1])], [*stored(TASKS[1])]],
        [[begin_round(2)], [*stored(*drawn[1], at=2), *[declined(each, at=2) for each in drawn[3]]]],
    ]
)


@settings(max_examples=300, deadline=None)
@given(writers=transactions, order=st.lists(st.integers(0, 3), max_size=20))
def test_in_any_order_the_ledger_says_what_the_log_says(writers, order):
    log: list[Note] = []
    ledger = Ledger()
    for writer in order:
        if writers[writer]:
            for note in writers[writer].pop(0):
                log.append(note)
                ledger.read(note)
            for cut in ledger.unended:
                assert cut.may_complete is may_complete(log, cut.number)
                assert set(cut.tasks()) - set(cut.missing()) == reached_in_time(log, cut.number)
            for task in TASKS:
                if of_cut(log, 1, Trigger):
                    assert ledger.is_released(task, 1) is is_released(log, task, 1)


# Logs of any length, with what former rounds write late and what is written twice.


class Writers:
    """Write what is asked of them as far as they keep to what the ledger rests on."""

    def __init__(self) -> None:
        self.log: list[Note] = []
        self.now = 0
        self.newest = 0
        self._taken: set[str] = set()
        # What was written in this round, by key: this may come a second time.
        self._reign: dict[str, Note] = {}

    def write(self, note: Note) -> None:
        is_again = self._reign.get(note.key) == note
        if is_again and (isinstance(note, Round) or (isinstance(note, Trigger) and note.cut < self.newest)):
            return
        if note.key not in self._taken or is_again:
            self.log.append(note)
            self._taken.add(note.key)
            self._reign[note.key] = note

    def begin_round(self) -> None:
        self.now += 1
        self._reign.clear()
        self.write(begin_round(self.now))

    def begin_cut(self, *, stops: bool) -> None:
        self.newest += 1
        self.write(begun(self.newest, self.now, stops=stops))

    def write_again(self, which: int) -> None:
        if self._reign:
            self.write(list(self._reign.values())[which % len(self._reign)])

    def write_of_cut(self, what: str, number: int, at: int, drawn: tuple[TaskId, int]) -> None:
        task, chance = drawn
        match what:
            case "late trigger" if at < self.now:
                self.write(begun(number, at, stops=bool(chance % 2)))
            case "reached":
                self.write(*reached(task, number=number, at=at))
            case "stored":
                self.log += stored(task, number=number, at=at, offset=chance)
            case "declined":
                self.write(declined(task, number, at))
            case "end":
                self.write((completed if chance % 2 else aborted)(number, at))
            case _:
                pass


OF_CUTS = ("late trigger", "reached", "reached", "reached", "stored", "declined", "end")
DEEDS = st.sampled_from(["round", "cut", "again", "command", *OF_CUTS])


@st.composite
def logs(draw: Any) -> list[Note]:
    """What may come to be written: also late by former rounds, and twice."""
    writers = Writers()
    for _ in range(draw(st.integers(0, 25))):
        chance = draw(st.integers(0, 7))
        match draw(DEEDS):
            case "round":
                writers.begin_round()
            case "cut":
                writers.begin_cut(stops=chance == 0)
            case "again":
                writers.write_again(chance)
            case "command":
                name = "xyz"[chance % 3]
                writers.log.append(Command(name, Wish.STOP) if chance < 5 else Answer(name, is_done=True))
            case what:
                number = draw(
                    st.integers(max(1, writers.newest - 1), max(1, writers.newest + (what == "late trigger")))
                )
                at = max(0, writers.now - draw(st.sampled_from([0, 0, 1, 2])))
                writers.write_of_cut(what, number, at, (draw(everybody), chance))
    return writers.log


def trusted(ledger: Ledger) -> dict[str, object]:
    """All that may be believed also when the log was compacted."""
    numbers = range(ledger.next_number + 1)
    return {
        "round": ledger.round,
        "next": ledger.next_number,
        "open": ledger.open and ledger.open.number,
        "unended": [
            (cut.number, cut.trigger, cut.reached, cut.declined, cut.stored, cut.missing(), cut.may_complete)
            for cut in ledger.unended
        ],
        "released": {
            (task, number): ledger.is_released(task, number) for task in TASKS for number in numbers
        },
        "unanswered": {command.id for command in ledger.unanswered},
        "ended": {
            cut.number: (cut.end and cut.end.is_complete, cut.is_stopping, cut.stored) for cut in ledger.ended
        },
    }


@settings(max_examples=400, deadline=None)
@given(log=logs(), cleaned=st.integers(0, 30))
def test_compaction_takes_nothing_away_from_what_may_be_trusted(log, cleaned):
    assert trusted(ledger_of(*compact(log, cleaned))) == trusted(ledger_of(*log))


@settings(max_examples=100, deadline=None)
@given(log=logs())
def test_to_read_every_note_twice_changes_nothing(log):
    twice = ledger_of(*[note for note in log for _ in range(2)])
    assert trusted(twice) == trusted(ledger_of(*log))


def over(log: list[Note]) -> list[str]:
    """The keys of what may be deleted, in the order in which it may be."""
    ledger = ledger_of(*log)
    numbers = {cut.number for cut in ledger.ended} - {ledger.next_number - 1}
    of_cuts = [note for note in log if not isinstance(note, Round | Command | Answer) and note.cut in numbers]
    of_cuts.sort(key=lambda note: isinstance(note, End))
    answered = {note.id for note in log if isinstance(note, Answer)}
    commands = [note for note in log if isinstance(note, Command | Answer) and note.id in answered]
    commands.sort(key=lambda note: isinstance(note, Answer))
    return [note.key for note in [*commands, *of_cuts]]


@settings(max_examples=200, deadline=None)
@given(log=logs(), count=st.integers(0, 30))
def test_what_is_over_may_be_deleted(log, count):
    gone = set(over(log)[:count])
    left = trusted(ledger_of(*[note for note in log if note.key not in gone]))
    whole = trusted(ledger_of(*log))
    for said in ("round", "next", "open", "unended", "unanswered"):
        assert left[said] == whole[said]


def test_if_all_rounds_had_one_key_compaction_would_take_answers_away():
    """The round that broke a cut would be forgotten, and the cut would seem to have been reached by all."""
    log: list[Note] = [
        *[begin_round(1), begun(), *reached(TASKS[0], TASKS[1])],
        *[begin_round(2), *reached(TASKS[2]), begin_round(3)],
    ]
    thinned = [note for note in log if not isinstance(note, Round) or note.round == 3]
    assert ledger_of(*log).open is None
    assert ledger_of(*thinned).open is not None


# And the law is worth something: it fails if what it guards is taken away.


@pytest.mark.parametrize("name", ["void notes count", "the first image counts"])
def test_a_ledger_that_is_wrong_is_caught(name, monkeypatch):
    if name == "void notes count":
        monkeypatch.setattr(Ledger, "_is_void", lambda *_: False)
    else:
        take = ledger_module.Cut.take

        def first_counts(cut: Any, note: Any) -> bool:
            return True if isinstance(note, Stored) and note.task in cut.stored else take(cut, note)

        monkeypatch.setattr(ledger_module.Cut, "take", first_counts)

    @settings(max_examples=3_000, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(log=logs(), cleaned=st.integers(0, 30))
    def law(log, cleaned):
        assert trusted(ledger_of(*compact(log, cleaned))) == trusted(ledger_of(*log))

    @settings(max_examples=1_000, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(log=logs())
    def says_what_the_log_says(log):
        for cut in ledger_of(*log).unended:
            assert cut.may_complete is may_complete(log, cut.number)
            assert set(cut.reached) == {note.task for note in of_cut(log, cut.number, Reached)}

    with pytest.raises(AssertionError):
        (law if name == "the first image counts" else says_what_the_log_says)()
