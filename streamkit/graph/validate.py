"""What can be wrong with a whole graph, and what to do about it. Mistakes of a single call are in `graph/builder.py`."""

import re
from collections.abc import Iterable, Sequence

from streamkit.errors import InvalidPipeline
from streamkit.graph.node import Graph, Node, Operation, Outlet, Source, Union
from streamkit.model.ids import KEY_GROUPS
from streamkit.model.topic_name import ALLOWED, name_problem
from streamkit.operators.exchange import WriteStep
from streamkit.windows.assigners import Everything
from streamkit.windows.step import WindowStep
from streamkit.windows.triggers import EventTimeTrigger

# Without dots: the first dot of an internal topic's name ends the pipeline's, so no two pipelines share one.
PIPELINE_NAME = re.compile(r"[a-zA-Z0-9_-]+")
# A branch may end in these: they are there for what they do.
ENDINGS = frozenset({"write", "peek", "process"})

# What streamkit itself says of a record stands in headers that begin like this.
RESERVED_HEADERS = "streamkit."


def require_valid(graph: Graph) -> None:
    """Refuse a graph that has no plan.

    Raises:
        InvalidPipeline: for the first mistake, with a hint.
    """
    _require_source(graph)
    _require_no_loop(graph)
    _require_endings(graph)
    _require_triggers(graph)


def require_pipeline_name(name: str) -> None:
    """Refuse a name that cannot begin the names of topics."""
    if not PIPELINE_NAME.fullmatch(name):
        raise InvalidPipeline(
            f'pipeline name "{name}" has characters that it may not have',
            hint=f'use letters, digits, "-" and "_", for example pipeline("{_legal(name)}")',
        )


def require_topic_name(name: str, *, of: str) -> None:
    """Refuse what Kafka would refuse as the name of a topic; `of` says whose name it is."""
    if problem := name_problem(name):
        raise InvalidPipeline(
            f'{of} makes the topic name "{name}", which Kafka does not take',
            detail=problem,
            hint=f'use {ALLOWED}; pass a short name="..." where a function has a long one or other letters',
        )


def require_unused(dead_letters: str, used: Iterable[str]) -> None:
    """Refuse a pipeline that reads its dead letters, or writes results among them."""
    if dead_letters in used:
        raise InvalidPipeline(
            f'topic "{dead_letters}" is where this pipeline keeps its dead letters',
            detail="results among them could not be told apart, and letters that are read here would come back for ever",
            hint="write to a topic of another name, and read dead letters in another pipeline",
        )


def require_count(partitions: int | None, where: str) -> None:
    """Refuse a partition count that key groups cannot be shared among."""
    if partitions is None or 1 <= partitions <= KEY_GROUPS:
        return
    raise InvalidPipeline(
        f"a shuffle cannot have {partitions} partitions",
        where=where,
        detail=f"keys are handed out in {KEY_GROUPS} groups, and every partition needs one at least",
        hint=f"choose a count from 1 to {KEY_GROUPS}",
    )


def require_header_names(names: object, where: str) -> None:
    """Refuse what cannot name the headers that are to be carried; a single text is a list of letters, and a mistake."""
    hint = 'name them like this: carry_headers=("traceparent", "tracestate")'
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidPipeline(f"carry_headers are names, got {names!r}", where=where, hint=hint)
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidPipeline(f"a header's name is a text, got {name!r}", where=where, hint=hint)
        if name.startswith(RESERVED_HEADERS):
            raise InvalidPipeline(
                f'header "{name}" cannot be carried',
                where=where,
                detail=f'names that begin with "{RESERVED_HEADERS}" are for what streamkit itself says of a record',
                hint="leave it out of carry_headers",
            )


def require_stages_in_order(is_ordered: bool) -> None:
    """Refuse stages that read, over however many shuffles, what they write themselves."""
    if not is_ordered:
        raise InvalidPipeline(
            "a union joins records from before and after a shuffle, so a stage would read its own output",
            hint="write both streams to the topic, each with its own write(), or key both before the union",
        )


def require_different(names: Iterable[str]) -> None:
    """Refuse two stages with one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidPipeline(
                f'two stages are named "{name}"',
                detail="a stage is named after its key_by, or after the first topic it reads",
                hint='pass name="..." to that key_by() or read()',
            )
        seen.add(name)


def _require_source(graph: Graph) -> None:
    if not any(isinstance(node, Source) for node in graph.nodes):
        raise InvalidPipeline(
            f'pipeline "{graph.name}" reads nothing',
            hint="begin with pipeline.read(topic) or @pipeline.agent(topic)",
        )


def _require_no_loop(graph: Graph) -> None:
    read = {node.topic.name for node in graph.nodes if isinstance(node, Source)}
    for topic in read | _written(graph):
        require_topic_name(topic, of=f'topic "{topic}"')
    for topic in sorted(read & _written(graph)):
        raise InvalidPipeline(
            f'topic "{topic}" is read and written by the same pipeline',
            detail="every record would come back for ever",
            hint="write to another topic, or let a second pipeline read this one",
        )


def _require_endings(graph: Graph) -> None:
    continued = {
        parent for node in graph.nodes if not isinstance(node, Outlet) for parent in node.parents
    }  # a side takes nothing of the results
    for node in graph.nodes:
        if node.id in continued or (isinstance(node, Operation) and node.step.kind in ENDINGS):
            continue
        match node:
            case Source():
                what = f'topic "{node.topic.name}" is read, and its records go nowhere'
            case Outlet():
                what = f'what leaves by side output "{node.port}" goes nowhere'
            case Union():
                what = "the records of a union go nowhere"
            case Operation():
                what = f'the results of step "{node.step.name}" go nowhere'
            case _:
                what = f'the records of step "{node.name}" go nowhere'
        raise InvalidPipeline(
            what,
            where=f'pipeline "{graph.name}"',
            hint="end the stream with write(topic), or with peek(fn) if only the effect counts",
        )


def _require_triggers(graph: Graph) -> None:
    """Refuse windows that never send anything on: without an end, and without a trigger, while their input goes on."""
    for node in graph.nodes:
        if not isinstance(node, Operation) or not isinstance(node.step, WindowStep):
            continue
        windows = node.step.windows
        is_endless = isinstance(windows.assigner, Everything) and isinstance(
            windows.trigger, EventTimeTrigger
        )
        if is_endless and windows.is_default and not _ends(graph, node):
            raise InvalidPipeline(
                f'step "{node.step.name}" never sends a result on: {windows.assigner.definition} has no end, and no trigger',
                hint='pass trigger=sk.CountTrigger(100) or another trigger to window(), or emit="update" for a new result '
                'after every record; read(topic, until="latest") has an end',
            )


def _ends(graph: Graph, node: Node) -> bool:
    """Whether all topics that a step gets its records from are read up to an end."""
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each.id in seen:
            continue
        seen.add(each.id)
        if isinstance(each, Source) and not each.is_bounded:
            return False
        waiting += (graph.nodes[parent] for parent in each.parents)
    return True


def _written(graph: Graph) -> set[str]:
    steps = (node.step for node in graph.nodes if isinstance(node, Operation))
    return {step.topic for step in steps if isinstance(step, WriteStep)}


def _legal(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]+", "-", name).strip("-") or "orders"
