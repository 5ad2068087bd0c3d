from itertools import pairwise, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import InvalidPipeline
from streamkit.model.duration import milliseconds
from streamkit.model.ids import MAX_TIME
from streamkit.operators.aggregators import count, max_of, sum_of
from streamkit.windows import DeltaTrigger, Window, session
from streamkit.windows.contents import Reducing, require_merge
from streamkit.windows.definition import windowing
from streamkit.windows.sessions import OpenSession, join
from streamkit.windows.step import WindowStep
from tests.operators.test_keyed import Average
from tests.windows.scope import Task
from tests.windows.streams import Listed, described


def opened(*windows: tuple[int, int]) -> list[OpenSession]:
    return [OpenSession(Window(*each), Window(*each)) for each in windows]


def task(fold: Any = None, gap: int = 10, **options: Any) -> Task:
    windows = windowing(session(milliseconds(gap)), **options)
    return Task(WindowStep(name="w", windows=windows, fold=fold or Listed(), into=described, value_type=int))


def results(task: Task) -> list[tuple[int, int, Any]]:
    taken = [(window.start, window.end, found) for _, (_, window, found), _ in task.out]
    task.out.clear()
    return taken


def test_a_record_far_from_all_others_begins_a_session() -> None:
    assert join(opened((0, 10), (30, 40)), Window(15, 25)) == (
        OpenSession(Window(15, 25), Window(15, 25)),
        [],
    )


@pytest.mark.parametrize(
    ("new", "expected"),
    [((9, 19), (0, 19)), ((-9, 1), (-9, 10)), ((3, 7), (0, 10)), ((-5, 15), (-5, 15))],
    ids=["overlaps the end", "overlaps the start", "lies within", "lies around"],
)
def test_a_record_that_overlaps_a_session_becomes_part_of_it(new: Any, expected: Any) -> None:
    sessions = opened((0, 10), (30, 40))
    joined, absorbed = join(sessions, Window(*new))
    assert (joined.window, joined.home) == (Window(*expected), Window(0, 10))
    assert absorbed == sessions[:1]


@pytest.mark.parametrize("new", [(10, 20), (-10, 0)], ids=["touches the end", "touches the start"])
def test_a_record_that_only_touches_a_session_begins_its_own(new: Any) -> None:
    assert join(opened((0, 10), (30, 40)), Window(*new)) == (OpenSession(Window(*new), Window(*new)), [])


def test_a_record_that_closes_a_gap_makes_one_of_all_it_overlaps_and_the_first_gives_the_home() -> None:
    sessions = opened((20, 30), (0, 10), (40, 50), (11, 19))
    joined, absorbed = join(sessions, Window(9, 41))
    assert joined == OpenSession(Window(0, 50), Window(0, 10))
    assert [each.window.start for each in absorbed] == [0, 11, 20, 40]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6, unique=True), st.integers(1, 20), st.randoms())
def test_sessions_do_not_depend_on_the_order_of_their_records(
    times: list[int], gap: int, random: Any
) -> None:
    def found(ordered: list[int]) -> list[Window]:
        sessions: list[OpenSession] = []
        for time in ordered:
            joined, absorbed = join(sessions, Window(time, time + gap))
            sessions = [*(each for each in sessions if each not in absorbed), joined]
        return sorted(each.window for each in sessions)

    shuffled = random.sample(times, len(times))
    assert found(shuffled) == found(sorted(times))
    windows = found(times)
    assert all(one.end <= other.start for one, other in pairwise(windows))


@pytest.mark.parametrize("order", list(permutations([0, 9, 18, 27])), ids=str)
def test_a_chain_of_records_is_one_session_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    each = task()
    for time in order:
        each.push(b"a", time, time)
        each.restart()
    each.advance(35)
    assert results(each) == []
    each.advance(36)
    ((start, end, values),) = results(each)
    assert (start, end, sorted(values)) == (0, 37, [0, 9, 18, 27])
    assert each.rows == {}


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_record_at_the_very_end_of_a_session_begins_the_next_one_whether_or_not_it_is_closed(
    is_closed: bool,
) -> None:
    each = task()
    each.push(b"a", 1, 0)
    if is_closed:
        each.advance(9)
    each.push(b"a", 2, 10)
    each.push(b"a", 3, 19)
    each.advance(MAX_TIME)
    assert results(each) == [(0, 10, [1]), (10, 29, [2, 3])]


def test_a_late_record_that_an_open_session_takes_in_is_not_late() -> None:
    each = task()
    each.push(b"a", 1, 20)
    each.advance(21)
    each.push(b"a", 2, 11)  # by itself it would have ended at 20
    each.push(b"a", 3, 5)  # touches what has become of the session
    each.push(b"b", 4, 5)
    each.advance(29)
    assert results(each) == [(5, 30, [1, 2, 3])]
    assert each.late_records == 1


def test_a_session_that_grows_while_late_records_are_allowed_fires_again_as_it_is_now() -> None:
    each = task(lateness=milliseconds(20))
    each.push(b"a", 1, 0)
    each.advance(9)
    assert results(each) == [(0, 10, [1])]
    each.push(b"a", 2, 8)
    each.advance(20)
    each.push(b"a", 3, 1)
    assert results(each) == [(0, 18, [1, 2]), (0, 18, [1, 2, 3])]
    each.advance(MAX_TIME)
    assert results(each) == []
    assert each.rows == {}


def test_a_session_has_a_gap_of_its_own_where_records_say_so() -> None:
    windows = windowing(session(milliseconds))
    each = Task(WindowStep(name="w", windows=windows, fold=Listed(), into=described, value_type=int))
    each.push(b"a", 5, 0)
    each.push(b"a", 50, 3)
    each.push(b"a", 1, 40)
    each.advance(MAX_TIME)
    assert results(each) == [(0, 53, [5, 50, 1])]


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        (count(), 3),
        (sum_of(int), 6),
        (max_of(int), 3),
        (Reducing("joined", lambda one, other: one * 10 + other, int), 132),
    ],
    ids=["count", "sum", "max", "reduce"],
)
def test_accumulators_are_merged_by_the_start_of_their_sessions(fold: Any, expected: int) -> None:
    each = task(fold)
    for value, time in ((1, 0), (3, 18), (2, 9)):
        each.push(b"a", value, time)
    each.advance(MAX_TIME)
    assert results(each) == [(0, 28, expected)]


def test_an_aggregator_without_merge_is_refused_with_a_hint() -> None:
    with pytest.raises(InvalidPipeline) as caught:
        require_merge(Average())
    assert "sessions grow together" in caught.value.problem
    assert caught.value.hint.startswith("give Average a method merge(self, accumulator, other)")


def test_a_trigger_that_cannot_merge_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match='trigger "DeltaTrigger" does not say what happens'):
        windowing(session(milliseconds(5)), trigger=DeltaTrigger[int](1, lambda a, b: a - b))
