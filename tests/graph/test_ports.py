"""Ports: a step with two inputs and two outputs in a graph, in a plan, on paper, and at work."""

from typing import Any, ClassVar

import msgspec
import pytest

import streamkit as sk
from streamkit.errors import Bug, InvalidPipeline
from streamkit.graph.describe import as_dict, as_mermaid, as_text
from streamkit.graph.pipeline import Pipeline
from streamkit.graph.stage import Target
from streamkit.graph.stream import Keyed
from streamkit.operators.step import MAIN, Ports, Scope
from streamkit.state.spec import StoreSpec
from streamkit.testing import Harness

words, limits = sk.topic("words", str), sk.topic("limits", int)
passed, refused = sk.topic("passed", str), sk.topic("refused", str)


class Gate(msgspec.Struct, frozen=True):
    """Words up to a length pass, and the other input says up to which; longer ones leave by a port of their own."""

    kind: ClassVar[str] = "gate"
    inputs: ClassVar[tuple[str, ...]] = (MAIN, "limit")
    outputs: ClassVar[tuple[str, ...]] = (MAIN, "too_long")
    fails_clean: ClassVar[bool] = True
    makes_of_many: ClassVar[bool] = False

    name: str
    has_effects: bool = False
    stores: tuple[StoreSpec, ...] = ()

    def bind(self, outputs: Ports, scope: Scope) -> Ports:  # noqa: ARG002
        following, too_long = outputs[MAIN], outputs.get("too_long")
        longest = 3

        def push(key: Any, value: Any, timestamp: int, step: str = self.name) -> None:
            if value == "":
                raise ValueError("an empty word")
            if len(value) <= longest:
                following(key, value, timestamp)
            elif too_long is not None:
                too_long(key, value, timestamp)

        def push_limit(key: Any, value: Any, timestamp: int, step: str = self.name) -> None:
            nonlocal longest
            if value < 0:
                raise ValueError("a limit below zero")
            longest = value

        return {MAIN: push, "limit": push_limit}


def gated(*, hears_refused: bool = True) -> tuple[Pipeline, Any]:
    p = sk.pipeline("p")
    source = p.read_keyed(words)
    control = p.read_keyed(limits)
    builder = p._builder
    node = builder.operate(
        source._node, Gate("gate"), value_type=str, is_named=True, others={"limit": control._node}
    )
    Keyed(builder, node, source._origin).map(str.upper, name="upper").write(passed)
    if hears_refused:
        builder.write(builder.side(node, "too_long", value_type=str), refused)
    return p, node


def test_a_plan_knows_by_which_ports_records_leave_and_enter() -> None:
    (stage,) = gated()[0].plan().stages
    assert [(each.topic, each.entry) for each in stage.inputs] == [
        ("words", (Target(0),)),
        ("limits", (Target(0, "limit"),)),
    ]
    gate = stage.steps[0]
    assert (gate.downstream, gate.sides) == ((Target(1),), {"too_long": (Target(3),)})
    (deaf,) = gated(hears_refused=False)[0].plan().stages
    assert deaf.steps[0].sides == {}


def test_ports_are_named_where_a_plan_is_shown() -> None:
    plan = gated()[0].plan()
    assert (
        "\n".join(as_text(plan).splitlines()[2:])
        == """\
stage words
  source words: str -> str
  └─ gate
     ├─ map upper
     │  └─ write -> passed
     └─ too_long: write -> refused
  source limits: str -> int
  └─ to limit: gate (as above)"""
    )
    drawn = as_mermaid(plan)
    assert 's0_0 -- "too_long" --> s0_3' in drawn
    assert 't1 -- "to limit" --> s0_0' in drawn
    (stage,) = as_dict(plan)["stages"]
    assert stage["inputs"][1]["entry"] == [{"step": 0, "port": "limit"}]
    assert stage["steps"][0] | {"stores": 0} == {
        "id": 0,
        "name": "gate",
        "kind": "gate",
        "downstream": [1],
        "sides": {"too_long": [3]},
        "stores": 0,
    }


def test_records_enter_and_leave_by_their_ports() -> None:
    p, _ = gated()
    with Harness(p, partitions=1) as harness:
        harness.send(words, "one", "three", key="k")
        harness.run()
        harness.send(limits, 5, key="k")
        harness.run()
        harness.send(words, "seven", "sixteen", key="k")
        harness.run()
        assert harness.read(passed) == ["ONE", "SEVEN"]
        assert harness.read(refused) == ["three", "sixteen"]


def test_a_failure_in_any_input_is_told_by_the_name_of_the_step() -> None:
    p, _ = gated()
    with Harness(p, partitions=1) as harness:
        harness.send(words, "", key="k")
        harness.send(limits, -1, key="k")
        harness.run()
        letters = [each.headers for each in harness.dead_letters()]
    assert sorted(each["streamkit.error"] or b"" for each in letters) == [
        b"ValueError: a limit below zero",
        b"ValueError: an empty word",
    ]
    assert {each["streamkit.step"] for each in letters} == {b"gate"}


def test_what_nobody_listens_to_goes_nowhere() -> None:
    p, _ = gated(hears_refused=False)
    with Harness(p, partitions=1) as harness:
        harness.send(words, "one", "three", key="k")
        harness.run()
        assert harness.read(passed) == ["ONE"]


def test_a_step_fails_clean_only_if_whatever_enters_it_came_clean() -> None:
    def clean(*, spoiled: bool) -> bool:
        p = sk.pipeline("p")
        source, control = p.read_keyed(words), p.read_keyed(limits)
        if spoiled:
            control = control.flat_map(lambda n: [n], to=int, name="many")
        node = p._builder.operate(
            source._node, Gate("gate"), value_type=str, is_named=True, others={"limit": control._node}
        )
        Keyed(p._builder, node, source._origin).write(passed)
        (stage,) = p.plan().stages
        return next(each.fails_clean for each in stage.steps if each.step.name == "gate")

    assert clean(spoiled=False)
    assert not clean(spoiled=True)


def test_every_branch_behind_a_port_is_looked_at_for_clean_failures() -> None:
    p, node = gated()
    builder = p._builder
    side = builder.side(node, "too_long", value_type=str)
    builder.write(side, sk.topic("again", str))
    (stage,) = p.plan().stages
    found = {each.step.name: each.fails_clean for each in stage.steps}
    assert found == {
        "gate": True,
        "upper": True,
        "write_passed": True,
        "write_refused": True,
        "write_again": False,  # the other branch of the port has been served before it
    }


def test_a_port_that_a_step_does_not_have_is_a_bug() -> None:
    p, node = gated()
    with pytest.raises(Bug, match='no port "elsewhere"'):
        p._builder.side(node, "elsewhere", value_type=str)
    source = p.read(words)._node
    with pytest.raises(Bug, match="has the inputs"):
        p._builder.operate(source, Gate("gate2"), value_type=str, is_named=True)


def test_results_that_go_nowhere_are_missed_though_a_side_is_written() -> None:
    p = sk.pipeline("p")
    late = sk.topic("too-late", str)
    p.read_keyed(words).window(sk.tumbling(sk.minutes(1)), late=late).count(name="per_minute")
    with pytest.raises(InvalidPipeline, match='the results of step "per_minute" go nowhere'):
        p.plan()


def test_a_side_that_goes_nowhere_is_missed() -> None:
    p, node = gated(hears_refused=False)
    p._builder.side(node, "too_long", value_type=str)
    with pytest.raises(InvalidPipeline, match='side output "too_long" goes nowhere'):
        p.plan()
