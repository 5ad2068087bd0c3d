from typing import Any

import pytest

from streamkit.errors import InvalidPipeline
from streamkit.model.duration import milliseconds, seconds
from streamkit.operators.aggregators import count, sum_of
from streamkit.windows import (
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    Evictor,
    TimeEvictor,
    Window,
    WindowContext,
    WindowProcess,
    everything,
    session,
    tumbling,
)
from streamkit.windows.contents import Reducing
from streamkit.windows.definition import windowing
from streamkit.windows.step import WindowStep
from tests.windows.scope import Task
from tests.windows.streams import Listed

WINDOW = Window(0, 10)
ELEMENTS = [(3, 5), (1, 9), (7, 2), (4, 4)]


def task(evictor: Evictor[Any], fold: Any = None, windows: Any = None) -> Task:
    chosen = windowing(windows or everything(), trigger=CountTrigger(3), evictor=evictor)
    return Task(WindowStep(name="w", windows=chosen, fold=fold or Listed(), value_type=int))


def fired(task: Task, *values: int) -> list[Any]:
    for number, value in enumerate(values):
        task.push(b"a", value, number)
    return [value for _, value, _ in task.out]


def test_count_keeps_the_last_ones() -> None:
    assert CountEvictor(2).before(ELEMENTS, WINDOW) == [(7, 2), (4, 4)]
    assert CountEvictor(9).before(ELEMENTS, WINDOW) == ELEMENTS
    assert CountEvictor(2).after(ELEMENTS, WINDOW) == ELEMENTS
    assert CountEvictor(2, after=True).before(ELEMENTS, WINDOW) == ELEMENTS
    assert CountEvictor(2, after=True).after(ELEMENTS, WINDOW) == [(7, 2), (4, 4)]


def test_time_drops_what_is_as_old_as_its_size_or_older_than_the_newest() -> None:
    assert TimeEvictor(milliseconds(4)).before(ELEMENTS, WINDOW) == [(7, 2), (4, 4)]
    assert TimeEvictor(milliseconds(5)).before(ELEMENTS, WINDOW) == [(3, 5), (7, 2), (4, 4)]


def test_delta_drops_what_is_as_far_as_the_threshold_from_the_last() -> None:
    assert DeltaEvictor[int](2, lambda value, last: abs(value - last)).before(ELEMENTS, WINDOW) == [
        (3, 5),
        (4, 4),
    ]


def test_what_is_evicted_is_gone_for_later_firings_too() -> None:
    assert fired(task(CountEvictor(2)), 1, 2, 3, 4, 5, 6) == [[2, 3], [5, 6]]
    assert fired(task(CountEvictor(2, after=True)), 1, 2, 3, 4, 5, 6) == [[1, 2, 3], [2, 3, 4, 5, 6]]


def test_folds_see_what_is_kept_when_it_fires() -> None:
    assert fired(task(CountEvictor(2), count()), 1, 2, 3) == [2]
    assert fired(task(CountEvictor(2), sum_of(int)), 1, 2, 3) == [5]
    assert fired(task(CountEvictor(2), Reducing("r", lambda a, b: a * 10 + b, int)), 1, 2, 3) == [23]


def test_elements_of_sessions_stay_together_by_session() -> None:
    windows = windowing(session(milliseconds(10)), evictor=CountEvictor(3))
    each = Task(WindowStep(name="w", windows=windows, fold=Listed(), value_type=int))
    for value, time in ((1, 0), (2, 19), (3, 1), (4, 10)):
        each.push(b"a", value, time)
    each.advance(100)
    assert [value for _, value, _ in each.out] == [[3, 2, 4]]
    assert each.rows == {}


def test_an_evictor_of_the_user_may_leave_nothing_and_then_there_is_no_result() -> None:
    class OnlyEven(Evictor[int]):
        def before(self, elements: list[tuple[int, int]], window: Window) -> list[tuple[int, int]]:  # noqa: ARG002
            return [each for each in elements if each[1] % 2 == 0]

    each = task(OnlyEven(), windows=tumbling(seconds(1)))
    assert fired(each, 1, 3, 5) == []
    assert fired(each, 7, 4, 9) == [[4]]
    each.restart()
    assert fired(each, 2, 2, 2) == [[4], [4, 2, 2, 2]]
    each.advance(1_000)
    assert each.rows == {}


class Nothing(Evictor[int]):
    def before(self, elements: list[tuple[int, int]], window: Window) -> list[tuple[int, int]]:  # noqa: ARG002
        return []


def test_what_is_left_of_nothing_is_no_row() -> None:
    each = task(Nothing())
    assert fired(each, 1, 2, 3) == []
    assert each.rows == {}


def test_a_process_is_not_called_for_nothing() -> None:
    class Fails(WindowProcess[str, int, int]):
        def process(self, key: str, window: Window, elements: list[int], ctx: WindowContext[int]) -> None:  # noqa: ARG002
            raise AssertionError

    windows = windowing(everything(), trigger=CountTrigger(1), evictor=Nothing())
    each = Task(WindowStep(name="w", windows=windows, process=Fails(), value_type=int))
    assert fired(each, 1) == []


def test_a_fold_that_comes_to_none_is_no_result() -> None:
    assert fired(task(CountEvictor(2), Reducing("r", lambda *_: None, int)), 1, 2, 3) == []


def test_an_evictor_keeps_elements_and_says_so_in_its_store() -> None:
    step = task(CountEvictor(2), count()).step
    assert step.stores[0].value_type == list[tuple[int, int]]


@pytest.mark.parametrize("make", [lambda: CountEvictor(0), lambda: TimeEvictor(seconds(0))])
def test_evictors_that_make_no_sense_are_refused_with_a_hint(make: Any) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        make()
    assert caught.value.hint
