import pytest

from streamkit.cuts.ledger import ENDED_KEPT, LATE, STRANGE, VOID, Ledger
from streamkit.cuts.notes import Answer, Command, Wish
from tests.cuts.story import (
    A0,
    A1,
    B0,
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

R1, R2, R3 = begin_round(1), begin_round(2), begin_round(3)


def open_number(ledger: Ledger) -> int | None:
    return None if ledger.open is None else ledger.open.number


# Which cut is open.


def test_before_the_first_note_nothing_is_open():
    ledger = Ledger()
    assert (ledger.round, ledger.open, ledger.next_number, ledger.unanswered) == (0, None, 1, [])


def test_a_trigger_opens_a_cut_and_says_all_about_it():
    cut = ledger_of(R1, begun(stops=True)).open
    assert cut is not None
    assert cut.trigger is not None
    assert (cut.number, cut.trigger.round, cut.is_stopping) == (1, 1, True)
    assert cut.missing() == [A0, A1, B0]
    assert cut.missing("a") == [A0, A1]
    assert cut.missing("c") == []


def test_who_has_reached_is_not_missing_any_more():
    cut = ledger_of(R1, begun(), *reached(A1)).open
    assert cut is not None
    assert cut.missing() == [A0, B0]
    assert not cut.is_lined_up


@pytest.mark.parametrize("end", [completed(), aborted()])
def test_an_end_closes_it_and_the_first_end_counts(end):
    ledger = ledger_of(R1, begun(), *reached(*TASKS), end, R2, completed(at=2), aborted(at=2))
    assert ledger.open is None
    assert ledger.unended == []
    assert [each.end for each in ledger.ended] == [end]
    assert ledger.ignored[LATE] == 2


def test_it_may_complete_when_all_have_reached_and_stored():
    notes = [R1, begun(), *reached(*TASKS), *stored(A0, A1)]
    ledger = ledger_of(*notes)
    assert ledger.open is not None
    assert ledger.open.is_lined_up
    assert not ledger.open.may_complete
    assert ledger.open.unstored == [B0]
    ledger.read(*stored(B0))
    assert ledger.open.may_complete
    ledger.read(completed())
    assert not ledger.ended[0].may_complete


@pytest.mark.parametrize("task", [B0, STRANGER])
def test_it_may_not_complete_once_somebody_declined_even_a_stranger(task):
    cut = ledger_of(R1, begun(), *reached(*TASKS), *stored(*TASKS), declined(task)).open
    assert cut is not None
    assert not cut.may_complete
    assert cut.declined.keys() == {task}


def test_a_stranger_who_reaches_it_changes_nothing():
    ledger = ledger_of(R1, begun(), *reached(STRANGER, A0), *stored(STRANGER))
    assert ledger.open is not None
    assert ledger.open.missing() == [A1, B0]
    assert ledger.ignored[STRANGE] == 1


# Rounds.


def test_a_newer_round_breaks_a_cut_that_not_all_have_reached():
    ledger = ledger_of(R1, begun(), *reached(A0, A1), R2)
    assert ledger.round == 2
    assert ledger.open is None
    assert [cut.number for cut in ledger.unended] == [1]
    assert ledger.unended[0].is_broken(ledger.round)


def test_a_cut_that_all_had_reached_outlives_its_round():
    ledger = ledger_of(R1, begun(), *reached(*TASKS), R2, *stored(*TASKS, at=2), R3)
    assert open_number(ledger) == 1
    assert ledger.open is not None
    assert ledger.open.may_complete
    ledger.read(completed(at=3))
    assert ledger.open is None


def test_what_comes_of_an_older_round_is_void_but_for_stored():
    ledger = ledger_of(R1, begun(), R2, *reached(*TASKS), aborted(), declined(A0), begun(2), R1, *stored(A0))
    assert ledger.round == 2
    assert ledger.ignored[VOID] == 7
    (cut,) = ledger.unended
    assert (cut.number, cut.end, cut.reached, cut.declined) == (1, None, {}, {})
    assert cut.stored.keys() == {A0}


def test_a_number_that_a_void_note_names_is_not_taken_again():
    assert ledger_of(R2, begun(7, at=1)).next_number == 8


def test_a_coordinator_that_did_not_know_of_a_void_trigger_may_use_its_number():
    ledger = ledger_of(R2, begun(7, at=1, stops=True), begun(7, at=2), *reached(A0, number=7, at=2))
    assert open_number(ledger) == 7
    assert ledger.open is not None
    assert not ledger.open.is_stopping
    assert ledger.open.missing() == [A1, B0]


def test_to_reach_it_in_another_round_than_its_own_is_not_to_reach_it():
    ledger = ledger_of(R1, begun(), R2, *reached(*TASKS, at=2))
    assert not ledger.unended[0].is_lined_up


def test_to_reach_it_after_its_end_is_too_late():
    ledger = ledger_of(R1, begun(), aborted(), *reached(*TASKS))
    assert not ledger.ended[0].is_lined_up
    assert ledger.ignored[LATE] == 3


# Who is released.


@pytest.mark.parametrize(
    ("what", "notes", "is_released"),
    [
        ("nobody else has reached it", reached(A0), False),
        ("all of the stage have", reached(A0, A1), True),
        ("another stage has, too", reached(A0, B0), False),
        ("it was aborted", [*reached(A0), aborted()], True),
        ("it is complete", [*reached(*TASKS), *stored(*TASKS), completed()], True),
        ("the round changed before all had reached it", [*reached(A0), R2], True),
        ("its end is void", [R2, aborted(), *reached(A0)], True),
        ("another was begun", [*reached(A0), begun(2)], False),
        ("somebody declined", [*reached(A0), declined(A1)], False),
        ("all others had reached it in an older round", [R2, *reached(*TASKS)], True),
    ],
)
def test_a_task_is_released_if(what, notes, is_released):
    assert ledger_of(R1, begun(), *notes).is_released(A0, 1) is is_released


@pytest.mark.parametrize(
    ("what", "notes", "is_released"),
    [
        ("all have reached it", reached(*TASKS), False),
        ("the round changed before all had reached it", [*reached(A0), R2], False),
        ("the round changed afterwards", [*reached(*TASKS), R2], False),
        ("it is complete", [*reached(*TASKS), *stored(*TASKS), completed()], False),
        ("it was aborted", [*reached(*TASKS), aborted()], True),
        ("the next coordinator aborted it", [*reached(A0), R2, aborted(at=2)], True),
        ("it was aborted by one that is none any more", [*reached(A0), R2, aborted(at=1)], False),
        ("it is complete, and a later one was begun", [*reached(*TASKS), completed(), begun(2)], False),
    ],
)
def test_a_task_at_a_stopping_cut_is_released_if(what, notes, is_released):
    assert ledger_of(R1, begun(stops=True), *notes).is_released(A0, 1) is is_released


def test_tasks_of_the_same_worker_count_when_they_are_frozen():
    ledger = ledger_of(R1, begun(), *reached(A1))
    assert not ledger.is_released(A0, 1)
    assert ledger.is_released(A0, 1, frozen=[A0])
    assert not ledger_of(R1, begun()).is_released(A0, 1, frozen=[A0])
    assert not ledger_of(R1, begun(stops=True)).is_released(A0, 1, frozen=TASKS)


def test_a_newer_round_does_not_release_for_the_sake_of_who_is_only_frozen():
    ledger = ledger_of(R1, begun(), *reached(A1, B0), R2)
    assert ledger.is_released(A1, 1, frozen=[A0])
    assert ledger.unended[0].is_broken(ledger.round)


def test_a_cut_that_was_not_read_yet_holds_and_one_that_is_forgotten_does_not():
    ledger = ledger_of(R1, begun(5), aborted(5))
    assert not ledger.is_released(A0, 6)
    assert ledger.is_released(A0, 4)


def test_a_cut_is_over_with_its_end_or_a_newer_round_and_not_before_it_was_read():
    ledger = ledger_of(R1, begun(5), *reached(A0, number=5))
    assert [ledger.is_over(number) for number in (4, 5, 6)] == [True, False, False]
    assert ledger_of(R1, begun(), aborted()).is_over(1)
    assert ledger_of(R1, begun(), R2).is_over(1)
    assert not ledger_of(R1, begun(), *reached(*TASKS), R2).is_over(1)


def test_what_is_over_is_forgotten_but_not_where_tasks_were_stopped_for_good():
    ledger = ledger_of(R1, begun(1, stops=True), completed(1))
    for number in range(2, 2 * ENDED_KEPT):
        for note in (begun(number), aborted(number)):
            ledger.read(note)
    assert len(ledger.ended) == ENDED_KEPT
    assert not ledger.is_released(A0, 1)
    assert ledger.is_released(A0, 2)
    assert ledger.next_number == 2 * ENDED_KEPT


# Commands.


def test_commands_wait_in_the_order_in_which_they_came_until_they_are_answered():
    first, second = Command("x", Wish.SAVEPOINT), Command("y", Wish.STOP)
    assert ledger_of(first, second, first).unanswered == [first, second]
    assert ledger_of(first, second, Answer("x", is_done=True)).unanswered == [second]
    assert ledger_of(first, Answer("x", is_done=False), first).unanswered == []


# What compaction would do if notes had no round in their keys: the valid one is the first, and the last one stays.


def test_a_late_note_of_an_older_round_takes_no_other_notes_place():
    log = [
        *[R2, begun(7, at=2), begun(7, at=1), *reached(*TASKS, number=7, at=2)],
        *[*reached(*TASKS, number=7, at=1), completed(7, at=2), aborted(7, at=1)],
    ]
    compacted = ledger_of(*compact(log, len(log)))
    assert [cut.end for cut in compacted.ended] == [completed(7, at=2)]
    assert compacted.ended[0].is_lined_up


def test_a_round_in_between_is_remembered_when_more_have_followed():
    log = [R1, begun(), *reached(A0, A1), R2, *reached(B0), R3]
    assert ledger_of(*compact(log, len(log))).open is None
