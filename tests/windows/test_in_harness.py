"""Windows in the real runtime: the same model, with event time that the records themselves bring, and crashes."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import streamkit as sk
from streamkit.graph.stream import Windowed
from streamkit.model.duration import milliseconds
from streamkit.testing import Harness
from streamkit.windows import (
    CountTrigger,
    Window,
    WindowContext,
    WindowProcess,
    cumulating,
    hopping,
    session,
    sliding,
    tumbling,
    window_value,
)
from tests.windows.reference import Model, Rules, SlidingModel

LATE_MS = 6


class Event(msgspec.Struct):
    number: int
    at: int


class Out(msgspec.Struct):
    key: str
    start: int
    end: int
    numbers: list[int]


class Numbers(sk.Aggregator[Event, list[int], list[int]]):
    def create(self) -> list[int]:
        return []

    def add(self, accumulator: list[int], value: Event, /) -> list[int]:
        return [*accumulator, value.number]

    def merge(self, accumulator: list[int], other: list[int]) -> list[int]:
        return accumulator + other

    def result(self, accumulator: list[int], /) -> list[int]:
        return accumulator


def to_out(key: str, window: Window, numbers: list[int]) -> Out:
    return Out(key, window.start, window.end, numbers)


events = sk.topic("events", Event, time="at", late=milliseconds(LATE_MS))
too_late = sk.topic("too-late", Event)
outs = sk.topic("outs", Out)


def windows_of(windows: Any, **options: Any) -> tuple[sk.Pipeline, Windowed[Any, Event]]:
    # Without a shuffle the watermark follows every record at once, so that it is known what is late.
    p = sk.pipeline("windows")
    return p, p.read_keyed(events).window(windows, late=too_late, **options)


def pipeline(windows: Any, **options: Any) -> sk.Pipeline:
    p, windowed = windows_of(windows, **options)
    windowed.aggregate(Numbers(), into=to_out).write(outs)
    return p


def stream(seed: int) -> list[tuple[str, Event]]:
    """Records in which time goes on, with a few that are out of order and a few that are late."""
    chance = random.Random(seed)
    now, found = 50, []
    for number in range(60):
        now += chance.choice([0, 1, 1, 2, 5, 30 if chance.random() < 0.1 else 3])
        at = max(now - chance.choice([0, 0, 1, 4, 8, 20]), 0)
        found.append((chance.choice("abc"), Event(number, at)))
    return found


CASES: list[tuple[str, Any, dict[str, Any], Callable[[], Model | SlidingModel]]] = [
    ("tumbling", tumbling(milliseconds(10)), {}, lambda: Model(Rules("tumbling", (10,)))),
    (
        "tumbling, lateness",
        tumbling(milliseconds(10)),
        {"lateness": milliseconds(7)},
        lambda: Model(Rules("tumbling", (10,), lateness=7)),
    ),
    (
        "hopping",
        hopping(milliseconds(15), milliseconds(6)),
        {},
        lambda: Model(Rules("hopping", (15, 6))),
    ),
    (
        "cumulating",
        cumulating(milliseconds(20), milliseconds(5)),
        {"lateness": milliseconds(3)},
        lambda: Model(Rules("cumulating", (20, 5), lateness=3)),
    ),
    ("session", session(milliseconds(5)), {}, lambda: Model(Rules("session", (5,)))),
    (
        "session, lateness",
        session(milliseconds(5)),
        {"lateness": milliseconds(7)},
        lambda: Model(Rules("session", (5,), lateness=7)),
    ),
    (
        "session, count",
        session(milliseconds(5)),
        {"trigger": CountTrigger(3)},
        lambda: Model(Rules("session", (5,), trigger=("count", 3))),
    ),
    ("sliding", sliding(milliseconds(8)), {}, lambda: SlidingModel(8, 0, is_updating=False)),
]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_results_and_late_records_are_those_of_the_model(case: Any, seed: int) -> None:
    _, windows, options, make = case
    model = make()
    model.watermark = 0
    records = stream(seed)
    chance = random.Random(seed)
    with Harness(pipeline(windows, **options), partitions=1) as harness:
        for key, event in records:
            harness.send(events, event, key=key)
            model.record(key.encode(), event.number, event.at)
            highest = max(model.watermark + LATE_MS + 1, event.at)
            model.advance(highest - LATE_MS - 1)
            if chance.random() < 0.1:
                if chance.random() < 0.5:
                    harness.run()
                harness.crash()
                harness.restart()
        harness.run()
        ours = [
            (each.key.encode(), each.start, each.end, each.numbers, record.timestamp)
            for record in harness.records(outs)
            for each in [record.value]
        ]
        late = [
            (record.key.encode(), record.value.number, record.timestamp)
            for record in harness.records(too_late)
        ]
    for key in (b"a", b"b", b"c"):
        assert [each for each in ours if each[0] == key] == [each for each in model.results if each[0] == key]
    assert late == model.late


class Firings(WindowProcess[str, Event, Out]):
    fired = window_value(int, 0)
    windows = sk.value(int, 0)

    def process(self, key: str, window: Window, elements: list[Event], ctx: WindowContext[Out]) -> None:  # noqa: ARG002
        if self.fired.update(lambda n: n + 1) == 1:
            self.windows.set(self.windows.get() + 1)
        ctx.emit(Out(key, self.windows.get(), self.fired.get(), [each.number for each in elements]))


def test_state_of_keys_and_windows_survives_a_crash() -> None:
    p, windowed = windows_of(tumbling(milliseconds(10)), lateness=milliseconds(100))
    windowed.process(Firings()).write(outs)
    with Harness(p, partitions=1) as harness:
        for number, at in enumerate((5, 15, 26, 6, 7)):
            harness.send(events, Event(number, at), key="a")
            harness.run()
            harness.crash()
            harness.restart()
        assert [(each.start, each.end, each.numbers) for each in harness.read(outs)] == [
            (1, 1, [0]),
            (2, 1, [1]),
            (2, 2, [0, 3]),
            (2, 3, [0, 3, 4]),
        ]


def test_all_windows_close_when_the_input_ends() -> None:
    p = sk.pipeline("bounded")
    counts = sk.topic("counts", int)
    p.read(events, until="latest").window_all(tumbling(milliseconds(10))).count().write(counts)
    p.read(events, until="latest").window_all(session(milliseconds(10)), name="visits").count().write(counts)
    with Harness(p, partitions=1, workers=0) as harness:
        harness.send(events, *(Event(number, number) for number in range(25)))
        harness.scale(1)
        harness.run()
        harness.advance(5)
        assert sorted(harness.read(counts)) == [5, 10, 10, 25]


def test_a_late_record_carries_its_time_in_a_header_too():
    with Harness(pipeline(tumbling(milliseconds(10))), partitions=1) as harness:
        for number, at in enumerate((5, 100, 7)):
            harness.send(events, Event(number, at), key="k")
        harness.run()
        (late,) = harness.records(too_late)
    assert (late.value.at, late.headers) == (7, {"streamkit.timestamp": b"7"})
