from typing import Any

import pytest

from streamkit.errors import InvalidPipeline, Misconfigured
from streamkit.model.duration import milliseconds
from streamkit.model.ids import MAX_TIME
from streamkit.operators.aggregators import count
from streamkit.operators.process import Context, Operator, OperatorProcessor, ProcessStep
from streamkit.operators.step import MAIN
from streamkit.state.collection_views import map_of
from streamkit.state.views import value
from streamkit.windows import (
    CountEvictor,
    CountTrigger,
    Window,
    WindowContext,
    WindowProcess,
    everything,
    session,
    sliding,
    tumbling,
    window_value,
)
from streamkit.windows.definition import windowing
from streamkit.windows.process import emitted_type, require_process
from streamkit.windows.step import WindowStep
from tests.windows.scope import Task, WindowScope

TEN = tumbling(milliseconds(10))


class Report(WindowProcess[str, int, str]):
    """All that a process can know and remember."""

    windows = value(int, 0)
    sizes = map_of(int, int)
    firings = window_value(int, 0)

    def process(self, key: str, window: Window, elements: list[int], ctx: WindowContext[str]) -> None:
        firing = self.firings.update(lambda n: n + 1)
        if firing == 1:
            self.windows.set(self.windows.get() + 1)
        self.sizes[window.start] = len(elements)
        ctx.emit(f"{key} {window.start} {elements} firing {firing} of window {self.windows.get()}")

    def clear(self, ctx: WindowContext[str]) -> None:
        ctx.emit(f"closed {ctx.window.start} after {self.firings.get()}", timestamp=ctx.watermark)


def task(process: WindowProcess[Any, Any, Any], windows: Any = TEN, fold: Any = None, **options: Any) -> Task:
    chosen = windowing(windows, **options)
    return Task(WindowStep(name="w", windows=chosen, fold=fold, process=process, value_type=int))


def said(task: Task) -> list[Any]:
    taken = [value for _, value, _ in task.out]
    task.out.clear()
    return taken


def test_a_process_sees_the_window_and_has_state_of_the_key_and_of_the_window() -> None:
    each = task(Report(), lateness=milliseconds(20))
    each.push(b"a", 1, 5)
    each.push(b"a", 2, 3)
    each.push(b"a", 3, 12)
    each.advance(9)
    assert said(each) == ["a 0 [1, 2] firing 1 of window 1"]
    each.restart()
    each.push(b"a", 4, 7)
    assert said(each) == ["a 0 [1, 2, 4] firing 2 of window 1"]
    each.advance(19)
    assert said(each) == ["a 10 [3] firing 1 of window 2"]
    each.advance(29)
    assert each.out == [(b"a", "closed 0 after 2", 29)]
    each.advance(39)
    left = each.rows
    assert len(left) == 3, "the state of the key stays: one value, two entries of a map"


def test_after_a_fold_a_process_gets_one_element() -> None:
    class Rate(WindowProcess[str, int, float]):
        def process(self, key: str, window: Window, elements: list[int], ctx: WindowContext[float]) -> None:  # noqa: ARG002
            (counted,) = elements
            ctx.emit(counted / (window.end - window.start))

    each = task(Rate(), fold=count())
    assert each.step.stores[0].value_type is int
    for time in (1, 2, 3):
        each.push(b"a", 7, time)
    each.advance(9)
    assert each.out == [(b"a", 0.3, 9)]
    assert each.rows == {}


class Clocks(WindowProcess[str, int, Any]):
    def process(self, key: str, window: Window, elements: list[int], ctx: WindowContext[Any]) -> None:  # noqa: ARG002
        ctx.emit((ctx.partition, ctx.watermark, ctx.now, ctx.timestamp, ctx.window, elements))


def test_a_process_knows_both_clocks_and_the_time_of_its_results() -> None:
    each = task(Clocks())
    each.pass_time(1_234)
    each.push(b"a", 7, 1)
    each.advance(50)
    assert said(each) == [(0, 50, 1_234, 9, Window(0, 10), [7])]
    open_end = task(Clocks(), everything(), trigger=CountTrigger(2))
    open_end.push(b"a", 7, 1)
    open_end.push(b"a", 8, 5)
    ((_, _, _, timestamp, _, elements),) = said(open_end)
    assert (timestamp, elements) == (5, [7, 8])


@pytest.mark.parametrize(
    "windows", [session(milliseconds(10)), sliding(milliseconds(10))], ids=["session", "sliding"]
)
def test_a_process_may_stand_behind_any_windows(windows: Any) -> None:
    each = task(Clocks(), windows)
    each.push(b"a", 7, 1)
    each.push(b"a", 8, 4)
    each.advance(MAX_TIME)
    assert said(each)[-1][-1] in ([7, 8], [8])
    assert each.rows == {}


def test_a_process_sees_what_an_evictor_leaves() -> None:
    each = task(Clocks(), evictor=CountEvictor(1))
    each.push(b"a", 7, 1)
    each.push(b"a", 8, 4)
    each.advance(9)
    assert said(each)[0][-1] == [8]


def test_each_task_has_a_process_of_its_own() -> None:
    shared = Report()
    for _ in range(2):
        each = task(shared)
        each.push(b"a", 1, 5)
        each.advance(9)
        assert said(each)[0] == "a 0 [1] firing 1 of window 1"
    with pytest.raises(Misconfigured):
        shared.windows.get()


def test_stores_are_named_for_step_and_attribute() -> None:
    assert [(store.name, store.kind) for store in task(Report()).step.stores] == [
        ("w", "window"),
        ("w.event_timers", "event_timers"),
        ("w.processing_timers", "processing_timers"),
        ("w.windows", "value"),
        ("w.sizes", "map"),
        ("w.firings", "window"),
    ]


def test_the_emitted_type_is_read_off_the_class() -> None:
    assert emitted_type(Report()) is str
    assert emitted_type(Clocks()) is None


def test_windows_that_become_one_another_have_no_state_of_their_own() -> None:
    for windows in (session(milliseconds(5)), sliding(milliseconds(5))):
        with pytest.raises(InvalidPipeline) as caught:
            require_process(Report(), windows)
        assert caught.value.problem.startswith('"Report.firings" belongs to a window')
        assert caught.value.hint == "keep it by key: value(...) instead of window_value(...)"
    require_process(Report(), TEN)
    with pytest.raises(InvalidPipeline, match="process\\(\\) takes a WindowProcess"):
        require_process(Report, TEN)


def test_state_of_a_window_is_refused_where_there_is_no_window() -> None:
    class Stray(Operator[str, int, int]):
        count = window_value(int, 0)

        def on_record(self, value: int, ctx: Context[str, int]) -> None:
            """Never reached."""

    stray = ProcessStep("stray", OperatorProcessor(Stray()))
    with pytest.raises(InvalidPipeline, match="where there is no window"):
        stray.bind({MAIN: lambda *_: None}, WindowScope(stray))


def test_a_default_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match="is not of the declared type"):
        window_value(int, "x")  # type: ignore[call-overload]
