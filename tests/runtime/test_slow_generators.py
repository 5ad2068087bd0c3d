"""A watermark generator that outlasts `processing_max_s`: its record is set aside, and without one it is at least named."""

import asyncio
import sys
from typing import Any

import pytest
from structlog.testing import capture_logs

import streamkit as sk
from streamkit.model.event_time import WatermarkGenerator, punctuated
from streamkit.runtime.whereabouts import whereabouts
from streamkit.testing import Harness
from streamkit.testing.virtual_time import VirtualLoop
from tests.runtime.test_watch import LENGTHS, LIMIT_S, WORDS, watch_over


class Promising(WatermarkGenerator):
    """Takes too long over the record "stuck", and over as many ticks as it is told to."""

    def on_record(self, value: str, timestamp: int) -> int | None:
        if value == "stuck":
            spend(1.5 * LIMIT_S)
        return timestamp

    def on_tick(self, now_ms: int) -> int | None:  # noqa: ARG002
        if SLOW_TICKS:
            spend(SLOW_TICKS.pop())
        return None


SLOW_TICKS: list[float] = []


def spend(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.spend(seconds, whereabouts(sys._getframe()))


def promised(late: Any) -> sk.Pipeline:
    class Timed(sk.Operator[str, str, int]):
        def on_record(self, value: str, ctx: sk.Context[str, int]) -> None:
            ctx.set_timer(2**50)
            ctx.emit(len(value))

        def on_timer(self, timer: sk.Timer, ctx: sk.Context[str, int]) -> None: ...

    pipeline = sk.pipeline("promised")
    words = sk.topic(WORDS.name, str, late=late)
    pipeline.read(words).key_by(lambda word: word).process(Timed(), name="timed").write(LENGTHS)
    return pipeline


def spending(word: str, _timestamp: int) -> int | None:
    if word == "stuck":
        spend(1.5 * LIMIT_S)
    return None


@pytest.mark.parametrize("late", [Promising, punctuated(spending)])
def test_a_record_on_which_a_watermark_generator_is_stuck_ends_as_a_dead_letter(late: Any) -> None:
    with (
        capture_logs() as logs,
        Harness(promised(late), partitions=1, processing_max_s=LIMIT_S) as harness,
    ):
        harness.run()
        watch_over(harness, [])
        harness.send(WORDS, *["fine"] * 20, "stuck", *["good"] * 20)
        harness.run()
        assert harness.read(LENGTHS) == [4] * 40
        (letter,) = harness.dead_letters()
        assert letter.value == b"stuck"
        assert letter.headers["streamkit.step"] == b"watermarks"
    held = [entry for entry in logs if entry["event"].startswith("a step holds the event loop")]
    assert [(entry["step"], entry["in_hand"]) for entry in held] == [("watermarks", "words[0]@20")] * 2


def test_a_tick_that_outlasts_the_limit_costs_our_place_and_is_named_but_no_record_is_blamed() -> None:
    with (
        capture_logs() as logs,
        Harness(promised(Promising), partitions=1, processing_max_s=LIMIT_S) as harness,
    ):
        harness.send(WORDS, "fine")
        harness.run()
        watch_over(harness, [])
        SLOW_TICKS.append(1.5 * LIMIT_S)
        harness.advance(3 * LIMIT_S)
        harness.send(WORDS, "good")
        harness.run()
        assert harness.read(LENGTHS) == [4, 4]
    told = [entry for entry in logs if entry["event"] == "this worker is not a member of the group any more"]
    assert [(entry["step"], entry["in_hand"]) for entry in told] == [("watermarks", "no record")]
    assert told[0]["held_s"] >= LIMIT_S
    assert not [entry for entry in logs if "a loss is counted" in entry["event"]]
