from typing import Any

import pytest

from streamkit.errors import InvalidPipeline
from streamkit.graph.pipeline import pipeline
from streamkit.operators.process import Context
from streamkit.state.views import ValueState, value
from tests.graph.shop import Click, by_page, clicks, unique


def test_an_agent_is_a_process_step_behind_its_key() -> None:
    p = pipeline("p")

    @p.agent(clicks, key=by_page, to=unique)
    async def first(
        click: Click,
        ctx: Context[str, Click],
        seen: ValueState[bool] = value(bool, False),  # noqa: B008
    ) -> None:
        if not seen.get():
            seen.set(True)
            ctx.emit(click)

    plan = p.plan()
    assert [stage.name for stage in plan.stages] == ["clicks", "first_by_key"]
    assert [each.step.name for each in plan.stages[1].steps] == ["first", "write_unique"]
    assert [store.name for store in plan.stages[1].stores] == ["first.seen"]


def test_the_function_is_returned_as_it_is_for_unit_tests() -> None:
    p = pipeline("p")

    def plain(click: Click, ctx: Context[str, Click]) -> None:
        ctx.emit(click)

    assert p.agent(clicks)(plain) is plain
    said: list[Any] = []

    class Ctx:
        def emit(self, value: Any) -> None:
            said.append(value)

    plain(Click("u", "/"), Ctx())  # type: ignore[arg-type]
    assert said == [Click("u", "/")]


def test_without_a_key_an_agent_works_by_the_key_of_the_topic() -> None:
    p = pipeline("p")

    @p.agent(clicks, name="watch")
    def anything(click: Click, ctx: Context[str, Click]) -> None: ...

    plan = p.plan()
    assert [stage.name for stage in plan.stages] == ["clicks"]
    assert [each.step.name for each in plan.stages[0].steps] == ["watch"]


def test_two_agents_of_one_name_are_refused() -> None:
    p = pipeline("p")

    def watch(click: Click, ctx: Context[str, Click]) -> None: ...

    p.agent(clicks)(watch)
    with pytest.raises(InvalidPipeline, match='two steps are named "watch"'):
        p.agent(clicks)(watch)


def test_partitions_without_a_key_are_refused() -> None:
    p = pipeline("p")
    with pytest.raises(InvalidPipeline) as caught:

        @p.agent(clicks, partitions=3)
        def watch(click: Click, ctx: Context[str, Click]) -> None: ...

    assert caught.value.problem == "key_type and partitions belong to a key, and the agent has none"
