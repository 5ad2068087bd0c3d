"""A copy of a pipeline under another name, which may run beside the first: what it writes must go somewhere else.

Internal topics, group, changelogs and dead letters follow from the name. Sinks belong to those who read them, and two
pipelines that write the same results to one topic would give them everything twice.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from streamkit.errors import InvalidPipeline
from streamkit.graph.node import Graph, Node, Operation
from streamkit.graph.validate import require_pipeline_name
from streamkit.operators.exchange import WriteStep

NO_SINKS: Mapping[str, str] = MappingProxyType({})


def copied(graph: Graph, name: str, *, sink_suffix: str = "", sinks: Mapping[str, str] = NO_SINKS) -> Graph:
    """The same graph under this name, each sink with the suffix, or as `sinks` names it.

    A sink that `sinks` gives its own name is meant to have the results of both.

    Raises:
        InvalidPipeline: the name cannot begin a topic's name, a copy would write where the first does, `sinks` has a topic
            that is not written, or two sinks would become one.
    """
    require_pipeline_name(name)
    steps = [node.step for node in graph.nodes if isinstance(node, Operation)]
    written = dict.fromkeys(step.topic for step in steps if isinstance(step, WriteStep))
    for topic in sinks:
        if topic not in written:
            raise InvalidPipeline(
                f'topic "{topic}" is to be written under another name, and pipeline "{graph.name}" does not write it',
                hint=f"it writes {_listed(written)}" if written else "it writes no topic",
            )
    renamed = {topic: sinks.get(topic, f"{topic}{sink_suffix}") for topic in written}
    same = [topic for topic in renamed if renamed[topic] == topic and topic not in sinks]
    if name != graph.name and same:
        raise InvalidPipeline(
            f'a copy of pipeline "{graph.name}" by the name of "{name}" would write to {_listed(same)} too',
            detail="whoever reads there would get the results of both",
            hint=f'give a suffix for its sinks, for example "-{name}"; or another topic for each',
        )
    _require_apart(renamed)
    return msgspec.structs.replace(
        graph, name=name, nodes=tuple(_written_to(each, renamed) for each in graph.nodes)
    )


def _written_to(node: Node, renamed: Mapping[str, str]) -> Node:
    """The node, writing to the sink by its new name; the step keeps its own name."""
    if not (isinstance(node, Operation) and isinstance(node.step, WriteStep)):
        return node
    step = msgspec.structs.replace(node.step, topic=renamed[node.step.topic])
    return msgspec.structs.replace(node, step=step)


def _require_apart(renamed: Mapping[str, str]) -> None:
    """Refuse results in one topic that were in two, be it those of the copy or of the first and the copy."""
    owners: dict[str, str] = {topic: topic for topic in renamed}
    for topic, new in renamed.items():
        if owners.setdefault(new, topic) != topic:
            raise InvalidPipeline(
                f'results for sinks "{owners[new]}" and "{topic}" would both be in "{new}"',
                detail="results that were in two topics could not be told apart",
                hint="choose another suffix, or another topic for one of them",
            )


def _listed(topics: Mapping[str, object] | list[str]) -> str:
    return ", ".join(f'"{each}"' for each in topics)
