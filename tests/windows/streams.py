"""Random streams for window steps, and window steps as both sides understand them: rules for the model, a step for us."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from streamkit.model.duration import milliseconds
from streamkit.model.ids import MAX_TIME
from streamkit.operators.aggregators import Aggregator
from streamkit.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeTrigger,
    Evictor,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeEvictor,
    TimeoutTrigger,
    Trigger,
    Window,
)
from streamkit.windows.assigners import (
    Assigner,
    Counting,
    Cumulating,
    Everything,
    Hopping,
    Session,
    Sliding,
    Tumbling,
)
from streamkit.windows.definition import emitting, windowing
from streamkit.windows.step import WindowStep
from tests.windows.reference import Model, Result, Rules, SlidingModel
from tests.windows.scope import Task

KEYS = [b"a", b"b", b"c"]

# What happens to a task: a record (key, distance of its time from the watermark), event time or wall clock advance by
# so much, the task is restarted or loses its cache.
Happening = tuple[Any, ...]


class Listed(Aggregator[int, list[int], list[int]]):
    """All values in order: what tells most about a window."""

    def create(self) -> list[int]:
        return []

    def add(self, accumulator: list[int], value: int, /) -> list[int]:
        return [*accumulator, value]

    def merge(self, accumulator: list[int], other: list[int]) -> list[int]:
        return accumulator + other

    def result(self, accumulator: list[int], /) -> list[int]:
        return accumulator


def own_gap(value: int) -> Any:
    return milliseconds(value % 7 + 1)


def described(key: str, window: Window, values: list[int]) -> tuple[str, Window, list[int]]:
    return key, window, values


def assigner_of(rules: Rules) -> Assigner:
    time: Any = "processing" if rules.is_processing else "event"
    match rules.kind:
        case "tumbling":
            return Tumbling(*rules.numbers, offset=rules.offset, time=time)
        case "hopping":
            return Hopping(*rules.numbers, offset=rules.offset, time=time)
        case "cumulating":
            return Cumulating(*rules.numbers, offset=rules.offset, time=time)
        case "session":
            return Session(own_gap if rules.gap else rules.numbers[0], time)
        case "everything":
            return Everything()
        case _:
            return Counting(*rules.numbers)


def trigger_of(rules: Rules) -> Trigger[Any] | None:
    if rules.kind == "counting" or rules.trigger[0] == "each":
        return None
    trigger = _trigger(rules.trigger, is_processing=rules.is_processing)
    if rules.is_purging:
        return PurgingTrigger(trigger)
    return None if rules.trigger == ("end",) else trigger


def _trigger(told: tuple[Any, ...], *, is_processing: bool) -> Trigger[Any]:
    match told:
        case ("end",):
            return ProcessingTimeTrigger() if is_processing else EventTimeTrigger()
        case ("count", number):
            return CountTrigger(number)
        case ("continuous", interval):
            kind = ContinuousProcessingTimeTrigger if is_processing else ContinuousEventTimeTrigger
            return kind(milliseconds(interval))
        case ("delta", threshold):
            return DeltaTrigger(threshold, lambda last, value: abs(last - value))
        case ("timeout", timeout, is_reset, inner):
            within = _trigger(inner, is_processing=is_processing)
            return TimeoutTrigger(within, milliseconds(timeout), reset_on_record=is_reset)
    raise AssertionError(told)


@dataclass
class Eviction:
    """An evictor, and the same rule for the model."""

    evictor: Evictor[Any] | None
    name: str
    number: int = 0
    is_after: bool = False

    def kept(self, elements: list[Any]) -> list[Any]:
        match self.name:
            case "count":
                return elements[max(len(elements) - self.number, 0) :]
            case "time":
                newest = max(at for at, _ in elements)
                return [(at, value) for at, value in elements if newest - at < self.number]
            case "delta":
                last = elements[-1][1]
                return [(at, value) for at, value in elements if abs(value - last) < self.number]
        return elements


def step_of(rules: Rules, evictor: Evictor[Any] | None = None) -> WindowStep:
    has_lateness = rules.lateness > 0
    windows = windowing(
        assigner_of(rules),
        lateness=milliseconds(rules.lateness) if has_lateness else None,
        trigger=trigger_of(rules),
        evictor=evictor,
    )
    windows = emitting(windows, "update" if rules.trigger[0] == "each" else "close")
    return WindowStep(name="w", windows=windows, fold=Listed(), into=described, value_type=int)


def sliding_step(difference: int, lateness: int, *, is_updating: bool) -> WindowStep:
    windows = windowing(Sliding(difference), lateness=milliseconds(lateness))
    chosen = emitting(windows, "update" if is_updating else "close")
    return WindowStep(name="w", windows=chosen, fold=Listed(), into=described, value_type=int)


def happenings(*, with_clock: bool = False) -> st.SearchStrategy[list[Happening]]:
    distance = st.one_of(st.integers(-25, 25), st.integers(-8, 8))
    record = st.tuples(st.just("record"), st.sampled_from(KEYS), distance)
    time = st.tuples(st.just("watermark"), st.one_of(st.integers(0, 20), st.integers(0, 4)))
    trouble = st.sampled_from([("restart",), ("evict",), ("commit",)])
    clock = st.tuples(st.just("clock"), st.integers(0, 15))
    kinds = [record, record, record, time, trouble, clock if with_clock else time]
    return st.lists(st.one_of(*kinds), max_size=60)


@dataclass
class Ran:
    """What came of a stream, by our step and by the model."""

    task: Task
    model: Model | SlidingModel
    sent: int

    def ours(self) -> dict[bytes, list[Result]]:
        found: dict[bytes, list[Result]] = {key: [] for key in KEYS}
        for key, value, timestamp in self.task.out:
            assert key is not None
            name, window, values = value
            assert name.encode() == key
            found[key].append((key, window.start, window.end, values, timestamp))
        return found

    def theirs(self) -> dict[bytes, list[Result]]:
        return {key: [each for each in self.model.results if each[0] == key] for key in KEYS}

    def late(self) -> list[Any]:
        """Values that were sent on as late."""
        return [value for _, value, _ in self.task.sent_late]


def run(
    step: WindowStep,
    model: Model | SlidingModel,
    stream: list[Happening],
    *,
    start: int,
    calm: bool = False,
    hears_late: bool = False,
) -> Ran:
    """Let the step and the model see the same stream; a calm task is never restarted and keeps its cache."""
    task = Task(step, hears_late=hears_late)
    task.advance(start)
    model.watermark = start
    number = 0
    for what, *details in stream:
        match what:
            case "record":
                number += 1
                key, distance = details
                task.push(key, number, task.scope.watermark + distance)
                model.record(key, number, model.watermark + distance)
            case "watermark":
                task.advance(task.scope.watermark + details[0])
                model.advance(model.watermark + details[0])
            case "clock":
                task.pass_time(task.scope.wall_ms + details[0])
                assert isinstance(model, Model)
                model.pass_time(model.wall + details[0])
            case _ if calm:
                pass
            case "restart":
                task.restart()
            case "commit":
                task.scope.end_span()
            case _:
                task.scope.evict()
    return Ran(task, model, number)


def finish(ran: Ran) -> Ran:
    """All input ends."""
    ran.task.advance(MAX_TIME)
    if isinstance(ran.model, Model):
        ran.model.advance(ran.model.watermark + 200, is_end=True)
    else:
        ran.model.advance(ran.model.watermark + 200)
    return ran


def evictions() -> st.SearchStrategy[Eviction]:
    def made(name: str, number: int, is_after: bool) -> Eviction:
        match name:
            case "count":
                return Eviction(CountEvictor(number, after=is_after), name, number, is_after)
            case "time":
                return Eviction(TimeEvictor(milliseconds(number), after=is_after), name, number, is_after)
            case _:
                distance = DeltaEvictor[Any](number, lambda value, last: abs(value - last), after=is_after)
                return Eviction(distance, name, number, is_after)

    return st.builds(made, st.sampled_from(["count", "time", "delta"]), st.integers(1, 8), st.booleans())
