"""From graph to plan: cut at every shuffle, name what lies between, and number its steps.

A stage is what hangs together without a shuffle: streams that are united, and everything that begins at the same
topic, so that no topic is read twice. A stage that reads shuffles is named after its first `key_by`, any other after the
first topic it reads (or the name given to that `read`). Internal topics are named after the pipeline and the stage,
`orders.by_user.shuffle.1` and `orders.by_user.changelog.1`, where the last part is the generation. Names depend on
what the user wrote, never on the order in which something happens to be visited.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from streamkit.graph.node import Graph, Node, Operation, Outlet, Shuffle, Source, Union
from streamkit.graph.plan import Plan
from streamkit.graph.stage import Input, Output, Stage, StageStep, Target
from streamkit.graph.validate import (
    require_different,
    require_stages_in_order,
    require_topic_name,
    require_unused,
    require_valid,
)
from streamkit.operators.exchange import ShuffleStep, WriteStep
from streamkit.operators.step import MAIN, Step
from streamkit.state.keys import store_ids

_CHANGELOG = re.compile(r"(?P<pipeline>[^.]+)\..+\.changelog\.\d+")


def pipeline_of_changelog(topic: str) -> str | None:
    """The pipeline that a topic is a changelog of, as its name says; None for one that is no changelog."""
    found = _CHANGELOG.fullmatch(topic)
    return None if found is None else found["pipeline"]


def cut(graph: Graph, generation: int = 1) -> Plan:
    """The plan of a graph.

    Raises:
        InvalidPipeline: there is none.
    """
    require_valid(graph)
    cutting = _Cutting(graph, generation)
    stages = tuple(cutting.stage(nodes) for nodes in _in_order(cutting.groups()))
    require_different(stage.name for stage in stages)
    store_ids(store.name for stage in stages for store in stage.stores)
    dead_letters = f"{graph.name}.dead-letters"
    used = {each.topic for stage in stages for each in stage.inputs}
    require_unused(dead_letters, used | {each.topic for stage in stages for each in stage.outputs})
    for topic in (dead_letters, *(stage.changelog for stage in stages)):
        require_topic_name(topic, of=f'pipeline "{graph.name}"')
    return Plan(
        name=graph.name,
        stages=stages,
        on_error=graph.on_error,
        dead_letter_topic=dead_letters,
        generation=generation,
    )


class _Group(msgspec.Struct):
    """The nodes of a stage to be: what its records come from, and what handles them (ids, in order of writing)."""

    entrances: list[Source | Shuffle]
    workers: list[Operation | Shuffle]


class _Cutting:
    """One graph on its way to a plan, with what is looked up again and again."""

    def __init__(self, graph: Graph, generation: int) -> None:
        self.graph = graph
        self.generation = generation
        self.names = step_names(graph)
        # What follows each node, and by which of its ports it is entered.
        self.children: dict[int, list[tuple[Node, str]]] = {node.id: [] for node in graph.nodes}
        for node in graph.nodes:
            ports = node.entered_by if isinstance(node, Operation) else (MAIN,) * len(node.parents)
            for parent, port in zip(node.parents, ports, strict=True):
                self.children[parent].append((node, port))

    def groups(self) -> list[_Group]:
        """What hangs together without a shuffle. A shuffle is at the end of one group and the beginning of another."""
        owners = _owners(self.graph)
        far_side = len(self.graph.nodes)
        found: dict[int, _Group] = {}
        for node in self.graph.nodes:
            near = found.setdefault(owners[node.id], _Group([], []))
            match node:
                case Source():
                    near.entrances.append(node)
                case Operation():
                    near.workers.append(node)
                case Shuffle():
                    near.workers.append(node)
                    found.setdefault(owners[node.id + far_side], _Group([], [])).entrances.append(node)
                case Union() | Outlet():
                    pass
        return list(found.values())

    def stage(self, group: _Group) -> Stage:
        """One group as a stage."""
        index = {node.id: number for number, node in enumerate(group.workers)}
        inputs = tuple(self._input(node, self._targets(node, index)) for node in group.entrances)
        steps = [self._stage_step(node, index) for node in group.workers]
        steps = _told_of_many(_told_clean(steps, inputs))
        name = stage_name(group.entrances)
        return Stage(
            name=name,
            inputs=inputs,
            steps=tuple(steps),
            outputs=tuple(dict.fromkeys(self._outputs(group.workers))),
            stores=tuple(store for each in steps for store in each.step.stores),
            changelog=f"{self.graph.name}.{name}.changelog.{self.generation}",
            carry_headers=self.graph.carry_headers,
        )

    def _stage_step(self, node: Operation | Shuffle, index: dict[int, int]) -> StageStep:
        """A step with all that follows it; what follows a shuffle is in another stage."""
        if isinstance(node, Shuffle):
            return StageStep(id=index[node.id], step=self._step(node), downstream=())
        sides: dict[str, tuple[Target, ...]] = {}
        for child, _ in self.children[node.id]:
            if isinstance(child, Outlet):
                sides[child.port] = (*sides.get(child.port, ()), *self._targets(child, index))
        results = self._targets(node, index)
        return StageStep(id=index[node.id], step=self._step(node), downstream=results, sides=sides)

    def _targets(self, node: Node, index: dict[int, int]) -> tuple[Target, ...]:
        """Where a node's records go, unions looked through. What leaves a step by another port is not among them."""
        found: list[Target] = []
        for child, port in self.children[node.id]:
            if isinstance(child, Union):
                found.extend(self._targets(child, index))
            elif not isinstance(child, Outlet):
                found.append(Target(index[child.id], port))
        return tuple(found)

    def _input(self, node: Source | Shuffle, entry: tuple[Target, ...]) -> Input:
        if isinstance(node, Source):
            topic = node.topic
            return Input(
                topic=topic.name,
                kind="source",
                value_type=topic.value_type,
                key_type=topic.key_type,
                entry=entry,
                time=topic.time,
                is_bounded=node.is_bounded,
            )
        return Input(
            topic=self._shuffle_topic(node),
            kind="shuffle",
            value_type=node.value_type,
            key_type=node.key_type,
            entry=entry,
            partitions=node.partitions or self.graph.partitions,
        )

    def _step(self, node: Operation | Shuffle) -> Step:
        if isinstance(node, Shuffle):
            topic = self._shuffle_topic(node)
            return ShuffleStep(node.name, topic, node.key_fn, node.key_type, node.value_type)
        step: Any = node.step
        name = self.names[node.id]
        renamed: Step = step if step.name == name else msgspec.structs.replace(step, name=name)
        return renamed

    def _outputs(self, workers: Iterable[Operation | Shuffle]) -> Iterator[Output]:
        for node in workers:
            if isinstance(node, Shuffle):
                count = node.partitions or self.graph.partitions
                topic, is_fixed = self._shuffle_topic(node), node.partitions is not None
                yield Output(topic=topic, kind="shuffle", partitions=count, is_fixed=is_fixed)
            elif isinstance(node.step, WriteStep):
                yield Output(topic=node.step.topic, kind="sink")

    def _shuffle_topic(self, node: Shuffle) -> str:
        topic = f"{self.graph.name}.{node.name}.shuffle.{self.generation}"
        require_topic_name(topic, of=f'step "{node.name}"')
        return topic


def step_names(graph: Graph) -> dict[int, str]:
    """The final name of every step: fixed names as they are, the others told apart by a number."""
    names: dict[int, str] = {}
    for node in graph.nodes:
        if isinstance(node, Shuffle):
            names[node.id] = node.name
        elif isinstance(node, Operation) and node.is_name_fixed:
            names[node.id] = node.step.name
    taken = set(names.values())
    for node in graph.nodes:
        if isinstance(node, Operation) and node.id not in names:
            wanted = node.step.name
            numbered = (f"{wanted}_{number}" for number in range(2, len(graph.nodes) + 2))
            name = wanted if wanted not in taken else next(each for each in numbered if each not in taken)
            taken.add(name)
            names[node.id] = name
    return names


def stage_name(entrances: list[Source | Shuffle]) -> str:
    """A stage's name: its first key_by, else the first topic it reads or that topic's given name."""
    shuffles = [node for node in entrances if isinstance(node, Shuffle)]
    if shuffles:
        return shuffles[0].name
    first = entrances[0]
    assert isinstance(first, Source)
    return first.name or first.topic.name


def _owners(graph: Graph) -> list[int]:
    """For every node the one that stands for its group; a shuffle's far side is at its id + the number of nodes."""
    far_side = len(graph.nodes)
    owner = list(range(2 * far_side))

    def find(place: int) -> int:
        while owner[place] != place:
            place = owner[place]
        return place

    for node in graph.nodes:
        for parent in node.parents:
            is_cut = isinstance(graph.nodes[parent], Shuffle)
            owner[find(node.id)] = find(parent + far_side if is_cut else parent)
    return [find(place) for place in range(2 * far_side)]


def _in_order(groups: list[_Group]) -> list[_Group]:
    """Every group after the groups it reads from; among those that are ready, in the order of writing."""
    made_by = {
        node.id: position
        for position, group in enumerate(groups)
        for node in group.workers
        if isinstance(node, Shuffle)
    }
    waits = {
        position: {made_by[node.id] for node in group.entrances if isinstance(node, Shuffle)}
        for position, group in enumerate(groups)
    }
    ordered: list[int] = []
    while waits:
        ready = [position for position, upstream in waits.items() if upstream <= set(ordered)]
        require_stages_in_order(bool(ready))
        ordered.append(ready[0])
        del waits[ready[0]]
    return [groups[position] for position in ordered]


def _told_clean(steps: list[StageStep], inputs: tuple[Input, ...]) -> list[StageStep]:
    """The steps, each with whether a record that raises in it has left nothing behind.

    It has not if no step above may have effects, if no other branch was served before, and if the step itself is clean.
    """
    is_clean = [True] * len(steps)  # until the step is reached: whether a record comes to it clean
    for each in inputs:
        for place, target in enumerate(each.entry):
            is_clean[target.step] &= place == 0
    for step in steps:  # in order of writing: what is above comes first
        for targets in (step.downstream, *step.sides.values()):
            for place, target in enumerate(targets):
                is_clean[target.step] &= is_clean[step.id] and not step.step.has_effects and place == 0
    return [
        msgspec.structs.replace(step, fails_clean=is_clean[step.id] and step.step.fails_clean)
        for step in steps
    ]


def _told_of_many(steps: list[StageStep]) -> list[StageStep]:
    """The steps, each with whether a result that was made of many records may come to it."""
    is_of_many = [False] * len(steps)
    for step in steps:  # in order of writing: what is above comes first
        for targets in (step.downstream, *step.sides.values()):
            for target in targets:
                is_of_many[target.step] |= is_of_many[step.id] or step.step.makes_of_many
    return [msgspec.structs.replace(step, is_of_many=is_of_many[step.id]) for step in steps]
