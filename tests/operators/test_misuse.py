"""What an operator cannot have meant is an error of the record, and says what to write instead."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import streamkit as sk
from streamkit.errors import InvalidPipeline, UserCodeError
from streamkit.operators.agent import agent_processor
from streamkit.operators.misuse import as_time
from streamkit.operators.process import OperatorProcessor, ProcessStep
from tests.operators.scope import Chain

ALERTS = sk.side("alerts", int)
Does = Callable[[Any, Any], object]


def failure_of(does: Does) -> str:
    """What is said when an operator with timers and a side output does this at a record."""

    class Doing(sk.Operator[str, str, str]):
        sides = (ALERTS,)

        def on_record(self, value: str, ctx: sk.Context[str, str]) -> None:
            return does(value, ctx)  # type: ignore[return-value]

        def on_timer(self, timer: sk.Timer, ctx: sk.Context[str, str]) -> None: ...

    chain = Chain(ProcessStep("s", OperatorProcessor(Doing())))
    with pytest.raises(UserCodeError) as caught:
        chain.push(b"k", "value", 1)
    return str(caught.value)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (lambda _, ctx: ctx.set_timer(5, clock="proc"), 'clock is "event" or "processing", got \'proc\''),
        (
            lambda _, ctx: ctx.set_timer(sk.seconds(7)),
            "got datetime.timedelta(seconds=7); hint: a timer has a time, not a duration: "
            "write ctx.set_timer(ctx.timestamp + 7_000)",
        ),
        (lambda _, ctx: ctx.set_timer(5.5), "milliseconds, got the float 5.5; hint"),
        (
            lambda _, ctx: ctx.cancel_timer("5", clock="processing"),
            "milliseconds, got the str '5'; hint: a timer has a time, not a duration: "
            'write ctx.set_timer(ctx.now + 5_000, clock="processing")',
        ),
        (lambda _, ctx: ctx.set_timer(datetime(2026, 1, 1, tzinfo=UTC)), "int(at.timestamp() * 1000)"),
        (
            lambda _, ctx: ctx.emit_to("alerts", 5),
            "got the str 'alerts'; declared here: alerts; hint: give it",
        ),
        (lambda _, ctx: ctx.emit_to(5, ALERTS), "the arguments are swapped: the side output comes first"),
        (lambda _, ctx: ctx.emit_to([5], ALERTS), "the arguments are swapped: the side output comes first"),
        (
            lambda _, ctx: ctx.emit_to(sk.side("alerts", str), "x"),
            'a side of the name "alerts" is declared with type int; this one has str',
        ),
        (
            lambda _, ctx: ctx.emit_to(sk.side("other", str), "x"),
            'side output "other" is not declared here; declared: alerts',
        ),
        (lambda value, _: value, 'a result was returned, .* at step "s"; hint: send results with ctx.emit'),
    ],
)
def test_misuse_of_a_context_says_what_to_write(does: Does, said: str) -> None:
    found = failure_of(does)
    assert all(part in found for part in said.split(" .* ")), found


def test_a_timer_takes_whatever_is_an_integer() -> None:
    class Whole:
        def __index__(self) -> int:
            return 7

    assert as_time(Whole(), "event") == 7


@pytest.mark.parametrize("is_async", [False, True])
def test_an_agent_that_returns_a_result_is_told(is_async: bool) -> None:
    def plain(value: str, ctx: sk.Context[str, str]) -> None:
        return value  # type: ignore[return-value]

    async def waiting(value: str, ctx: sk.Context[str, str]) -> None:
        return value  # type: ignore[return-value]

    chain = Chain(ProcessStep("s", agent_processor(waiting if is_async else plain)))
    with pytest.raises(UserCodeError, match=r"a result was returned.*ctx.emit\(value\)"):
        chain.push(b"k", "x", 1)


def test_an_agent_with_state_says_how_its_records_get_a_key() -> None:
    def counting(
        value: str,
        ctx: sk.Context[str, int],
        seen: sk.ValueState[int] = sk.value(int, 0),
    ) -> None:
        seen.set(1)

    chain = Chain(ProcessStep("s", agent_processor(counting)))
    with pytest.raises(UserCodeError, match=r"@pipeline.agent\(topic, key=...\)"):
        chain.push(None, "x", 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sk.side("a b", int), "cannot be named 'a b'"),
        (lambda: sk.side(int, "a"), 'swapped: .* sk.side("a", int)'),
        (lambda: sk.side("a", 5), 'side output "a" has values of a type, got the int 5'),
        (lambda: sk.side("a", "Alert"), "got the str 'Alert'"),
    ],
)
def test_a_side_has_a_name_and_a_type(make: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        make()
    assert all(part in str(caught.value) for part in said.split(" .* ")), caught.value


@pytest.mark.parametrize("kind", [int, list[int], int | None, Any, dict, type(None)])
def test_a_side_takes_every_type(kind: Any) -> None:
    assert sk.side("a.b-c_1", kind).value_type is kind
