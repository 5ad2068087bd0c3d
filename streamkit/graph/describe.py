"""A plan for the eye: text for terminals, plain data for programs, Mermaid for pages."""

from collections.abc import Iterable, Iterator
from typing import Any

from streamkit.codec.naming import type_name
from streamkit.graph.fingerprint import fingerprint
from streamkit.graph.plan import Plan
from streamkit.graph.stage import Input, Stage, StageStep, Target
from streamkit.graph.unread import unread_sides
from streamkit.operators.exchange import ShuffleStep, WriteStep
from streamkit.operators.step import MAIN
from streamkit.state.kinds import cells_class

# An output port and where it leads, in the order in which records are served.
Edges = list[tuple[str, Target]]


def as_text(plan: Plan) -> str:
    """The plan as a tree, one stage after the other, each step under the one it follows."""
    lines = [f"pipeline {plan.name}  (generation {plan.generation}, on error: {_policy(plan)})"]
    if carried := _carried(plan):
        lines.append(f"  headers carried on: {', '.join(carried)}")
    for stage in plan.stages:
        lines += ["", f"stage {stage.name}{_count(stage.partitions, 'task')}"]
        shown: set[int] = set()
        for each in stage.inputs:
            lines.append(f"  {_arrow(each)}")
            lines += _tree(stage, _from_main(each.entry), "  ", shown)
        lines += [f"  state {store.name}: {cells_class(store).in_words(store)}" for store in stage.stores]
    warnings = unread_sides(plan)
    lines += [*([""] if warnings else []), *(f"! {each}" for each in warnings)]
    return "\n".join(lines)


def as_dict(plan: Plan) -> dict[str, Any]:
    """The plan as plain data, ready for JSON."""
    return {
        "pipeline": plan.name,
        "generation": plan.generation,
        "fingerprint": fingerprint(plan),
        "key_groups": plan.key_groups,
        "on_error": plan.on_error.action,
        "dead_letter_topic": plan.dead_letter_topic,
        "carry_headers": _carried(plan),
        "stages": [_stage_dict(stage) for stage in plan.stages],
        "warnings": unread_sides(plan),
    }


def as_mermaid(plan: Plan) -> str:
    """The plan as a Mermaid flowchart: stages as boxes, topics between them."""
    lines = ["flowchart LR"]
    topics: dict[str, str] = {}

    def topic(name: str) -> str:
        if name not in topics:
            topics[name] = f"t{len(topics)}"
            lines.append(f'  {topics[name]}[("{_escape(name)}")]')
        return topics[name]

    for number, stage in enumerate(plan.stages):
        lines.append(f'  subgraph s{number}["{_escape(stage.name)}"]')
        lines += [f'    {_box(number, each)}["{_escape(_title(each))}"]' for each in stage.steps]
        lines += [
            f"    {_box(number, each)} {_line(output, target)} {_box(number, stage.steps[target.step])}"
            for each in stage.steps
            for output, target in _edges(each)
        ]
        lines.append("  end")
        for each in stage.inputs:
            lines += [
                f"  {topic(each.topic)} {_line(MAIN, target)} {_box(number, stage.steps[target.step])}"
                for target in each.entry
            ]
        for each_step in stage.steps:
            if isinstance(each_step.step, WriteStep | ShuffleStep):
                lines.append(f"  {_box(number, each_step)} --> {topic(each_step.step.topic)}")
    return "\n".join(lines)


def _tree(stage: Stage, edges: Edges, indent: str, shown: set[int]) -> Iterator[str]:
    """Each step once with what follows it; where branches meet again, it is only named."""
    for place, (output, target) in enumerate(edges):
        is_last = place == len(edges) - 1
        each = stage.steps[target.step]
        again = " (as above)" if target.step in shown else ""
        by = f"{ports}: " if (ports := _ports(output, target)) else ""
        yield f"{indent}{'└─' if is_last else '├─'} {by}{_title(each)}{again}"
        if not again:
            shown.add(target.step)
            yield from _tree(stage, _edges(each), indent + ("   " if is_last else "│  "), shown)


def _edges(each: StageStep) -> Edges:
    """What leaves a step: its results first, then what goes by other ports."""
    sides = [(port, target) for port, targets in each.sides.items() for target in targets]
    return [*_from_main(each.downstream), *sides]


def _from_main(targets: Iterable[Target]) -> Edges:
    return [(MAIN, target) for target in targets]


def _ports(output: str, target: Target) -> str:
    """The ports between two steps in words, those that go without saying left out."""
    left = "" if output == MAIN else output
    return left if target.port == MAIN else f"{left} to {target.port}".lstrip()


def _title(each: StageStep) -> str:
    step, kind = each.step, each.step.kind
    if isinstance(step, WriteStep):
        return f"write -> {step.topic}"
    if isinstance(step, ShuffleStep):
        return f"key_by {step.name} -> {step.topic}"
    return kind if step.name == kind else f"{kind} {step.name}"


def _arrow(each: Input) -> str:
    types = f"{type_name(each.key_type)} -> {type_name(each.value_type)}"
    return f"{each.kind} {each.topic}{_count(each.partitions, 'partition')}: {types}"


def _stage_dict(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "partitions": stage.partitions,
        "changelog": stage.changelog,
        "inputs": [
            {
                "topic": each.topic,
                "kind": each.kind,
                "key_type": type_name(each.key_type),
                "value_type": type_name(each.value_type),
                "partitions": each.partitions,
                "entry": [_target(target) for target in each.entry],
            }
            for each in stage.inputs
        ],
        "steps": [_step_dict(each) for each in stage.steps],
        "outputs": [
            {"topic": each.topic, "kind": each.kind, "partitions": each.partitions} for each in stage.outputs
        ],
        "stores": [
            {
                "name": store.name,
                "kind": store.kind,
                "type": type_name(store.value_type),
                "version": store.version,
            }
            for store in stage.stores
        ],
    }


def _step_dict(each: StageStep) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "id": each.id,
        "name": each.step.name,
        "kind": each.step.kind,
        "downstream": [_target(target) for target in each.downstream],
        "stores": [store.name for store in each.step.stores],
    }
    sides = {port: [_target(target) for target in targets] for port, targets in each.sides.items()}
    return plain | ({"sides": sides} if sides else {})


def _target(target: Target) -> int | dict[str, Any]:
    """The id of the step; with its port, where that is not the main one."""
    return target.step if target.port == MAIN else {"step": target.step, "port": target.port}


def _policy(plan: Plan) -> str:
    policy = plan.on_error
    tries = f" after {policy.retries} retries" if policy.retries else ""
    target = f" -> {plan.dead_letter_topic}" if policy.action == "dead_letter" else ""
    return f"{policy.action}{tries}{target}"


def _carried(plan: Plan) -> list[str]:
    """The headers that go on from a record to what is made of it, which are the same in all stages."""
    return list(dict.fromkeys(name for stage in plan.stages for name in stage.carry_headers))


def _count(number: int | None, noun: str) -> str:
    return "" if number is None else f" ({number} {noun}{'' if number == 1 else 's'})"


def _box(stage: int, each: StageStep) -> str:
    return f"s{stage}_{each.id}"


def _line(output: str, target: Target) -> str:
    ports = _ports(output, target)
    return f'-- "{_escape(ports)}" -->' if ports else "-->"


def _escape(text: str) -> str:
    return text.replace('"', "#quot;")
