import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamkit.errors import InvalidPipeline, UserCodeError
from streamkit.operators.agent import agent_processor
from streamkit.operators.process import Context, ProcessStep
from streamkit.state.collection_views import MapState, map_of
from streamkit.state.views import ValueState, value
from tests.operators.scope import Chain

Ctx = Context[str, Any]


def dedup(item: str, ctx: Ctx, seen: ValueState[bool] = value(bool, False)) -> None:  # noqa: B008
    if not seen.get():
        seen.set(True)
        ctx.emit(item)


async def words(
    item: str,
    ctx: Ctx,
    total: ValueState[int] = value(int, 0),  # noqa: B008
    *,
    counts: MapState[str, int] = map_of(str, int),  # noqa: B008
) -> None:
    counts[item] = counts.get(item, 0) + 1
    total.set(total.get() + 1)
    ctx.emit((item, counts[item], total.get()))


async def sleeper(item: str, ctx: Ctx) -> None:
    ctx.emit(item)
    await asyncio.sleep(0)


def step(function: Callable[..., Any]) -> ProcessStep:
    return ProcessStep(function.__name__, agent_processor(function))


def test_a_function_handles_one_record_per_call_with_its_declared_state() -> None:
    chain = Chain(step(dedup))
    for key in (b"a", b"a", b"b"):
        chain.push(key, "x", 1)
    assert chain.out == [(b"a", "x", 1), (b"b", "x", 1)]


def test_an_async_function_is_run_to_its_end_without_a_loop() -> None:
    chain = Chain(step(words))
    for item in ("x", "y", "x"):
        chain.push(b"a", item, 1)
    assert chain.values == [("x", 1, 1), ("y", 1, 2), ("x", 2, 3)]


def test_an_async_function_that_waits_is_refused() -> None:
    chain = Chain(step(sleeper))
    with pytest.raises(UserCodeError) as caught:
        chain.push(b"a", "x", 1)
    assert caught.value.problem == "an agent waited for something, and inside a span nothing may wait"
    assert caught.value.where == 'agent "sleeper"'
    assert caught.value.hint.startswith("awaiting I/O inside an agent is not supported")


def test_tasks_do_not_share_state() -> None:
    first, second = Chain(step(dedup)), Chain(step(dedup))
    for chain in (first, second):
        chain.push(b"a", "x", 1)
    assert first.values == second.values == ["x"]


def test_stores_are_named_for_agent_and_parameter() -> None:
    assert [(spec.name, spec.kind) for spec in step(words).stores] == [
        ("words.total", "value"),
        ("words.counts", "map"),
    ]


def test_an_error_in_an_async_agent_is_the_users_own() -> None:
    async def broken(item: str, ctx: Ctx) -> None:
        raise LookupError(item)

    with pytest.raises(LookupError, match="x"):
        Chain(step(broken)).push(b"a", "x", 1)


def test_what_cannot_be_an_agent_is_refused_with_a_hint() -> None:
    def generator(item: str, ctx: Ctx) -> Iterator[str]:
        yield item

    def greedy(item: str, ctx: Ctx, limit: int = 3) -> None: ...

    def short(item: str) -> None: ...

    problems = []
    for function in (generator, greedy, short, print):
        with pytest.raises(InvalidPipeline) as caught:
            agent_processor(function)
        assert caught.value.hint
        problems.append(caught.value.problem)
    assert problems == [
        "an agent does not yield",
        "an agent takes a value, a context and declared state, got (item, ctx, limit)",
        "an agent takes a value, a context and declared state, got (item)",
        "an agent is a function, got the function print",
    ]
