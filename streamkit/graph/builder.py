"""Builder: the pipeline while it is being written. Streams add nodes to it and keep none themselves.

Mistakes that can be seen at once are raised here, so that the traceback ends in the user's own line.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from streamkit.codec.annotations import field_type, returned_type
from streamkit.codec.naming import call_name, type_name, without_none
from streamkit.codec.values import internal_codec, key_codec, value_codec
from streamkit.errors import Bug, InvalidPipeline
from streamkit.graph.functions import VALUE, require_function, require_functions
from streamkit.graph.node import Graph, Node, Operation, Outlet, Shuffle, Source, Union
from streamkit.graph.place import line_of_caller
from streamkit.graph.plain import require_plain
from streamkit.graph.policy import ErrorPolicy
from streamkit.graph.validate import require_count
from streamkit.graph.writable import require_writable
from streamkit.model.topic import Topic
from streamkit.operators.exchange import WriteStep
from streamkit.operators.step import MAIN, Step

# Where a read ends: where the topic ended when the pipeline first began, or never.
Until = Literal["latest"] | None

AnyNode = TypeVar("AnyNode", Operation, Shuffle, Union, Outlet)


class Builder:
    """Collects the nodes of one pipeline in the order of writing."""

    def __init__(
        self, name: str, on_error: ErrorPolicy, partitions: int | None, carry_headers: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        _require_a(ErrorPolicy, on_error, "an error policy", "write sk.dead_letter(), sk.skip() or sk.fail()")
        self._on_error = on_error
        self._partitions = partitions
        self._carry_headers = carry_headers
        self._nodes: list[Node] = []
        self._sources: dict[str, int] = {}
        self._topics: dict[str, Topic[Any]] = {}
        # Where in the user's code each of them was given.
        self._fixed_names: dict[str, str] = {}

    def graph(self) -> Graph:
        """What has been written so far."""
        return Graph(
            name=self.name,
            nodes=tuple(self._nodes),
            on_error=self._on_error,
            partitions=self._partitions,
            carry_headers=self._carry_headers,
        )

    def read(self, topic: Topic[Any], name: str | None, until: Until = None) -> Source:
        """The one source of this topic; a name or an end given by any `read` of it holds for all."""
        if until not in (None, "latest"):
            raise InvalidPipeline(
                f'until is "latest" or None, got {until!r}',
                hint='read(topic, until="latest") ends where the topic ended when the pipeline first began',
            )
        self._declare(topic)
        require_plain(topic.time.time, of=f'topic "{topic.name}"')
        known = self._sources.get(topic.name)
        if known is None:
            source = Source(id=len(self._nodes), topic=topic, name=name, is_bounded=until is not None)
            self._sources[topic.name] = source.id
            self._nodes.append(source)
            return source
        source = self._nodes[known]  # type: ignore[assignment]
        if source.topic.time != topic.time:
            raise InvalidPipeline(
                f'topic "{topic.name}" is declared twice with different event times',
                hint="declare the topic once and use that object everywhere",
            )
        if name is not None and source.name not in (None, name):
            raise InvalidPipeline(
                f'topic "{topic.name}" is read under two names, "{source.name}" and "{name}"',
                detail="a pipeline reads a topic once, however many streams begin there",
                hint=f'leave out name="{name}"',
            )
        if name is not None and source.name is None:
            source = self._nodes[known] = msgspec.structs.replace(source, name=name)
        if until is not None and not source.is_bounded:
            source = self._nodes[known] = msgspec.structs.replace(source, is_bounded=True)
        return source

    def operate(
        self,
        parent: Node,
        step: Step,
        *,
        value_type: Any,
        is_named: bool,
        others: Mapping[str, Node] | None = None,
    ) -> Operation:
        """Add a step after `parent`; it keeps the key. `others` are what enters by its other ports."""
        entering = {MAIN: parent, **(others or {})}
        if set(entering) != set(step.inputs):
            raise Bug(f'step "{step.name}" has the inputs {step.inputs}, and is given {tuple(entering)}')
        require_plain(step, of=f'step "{step.name}"')
        require_functions(step, parent.value_type)
        is_fixed = is_named or bool(step.stores)
        if is_fixed:
            self._claim(step.name)
        return self._add(
            Operation(
                id=len(self._nodes),
                parents=tuple(each.id for each in entering.values()),
                entered_by=tuple(entering),
                step=step,
                value_type=value_type,
                key_type=parent.key_type,
                is_name_fixed=is_fixed,
            )
        )

    def shuffle(
        self,
        parent: Node,
        key_fn: Callable[[Any], Any],
        *,
        key_type: Any,
        name: str | None,
        partitions: int | None,
        calls: str = "key_by()",
    ) -> Shuffle:
        """Cut after `parent`. Without a word about the type of the keys, `key_fn` tells it; `calls` is what it is given to."""
        name = name or call_name(key_fn) or "key_by"
        value_type = self.known_type(parent, needed_by=name)
        require_plain(key_fn, of=f'step "{name}"')
        require_function(key_fn, VALUE, of=calls, value_type=value_type)
        require_count(partitions, f'step "{name}"')
        internal_codec(value_type)
        key_type, _ = without_none(key_type or _told_by(key_fn, value_type))
        key_codec(key_type)
        self._claim(name)
        return self._add(
            Shuffle(
                id=len(self._nodes),
                parents=(parent.id,),
                name=name,
                key_fn=key_fn,
                key_type=key_type,
                value_type=value_type,
                partitions=partitions,
            )
        )

    def union(self, parents: tuple[Node, ...]) -> Union:
        """Several streams as one. A type on which they do not agree is a type that nobody knows."""
        return self._add(
            Union(
                id=len(self._nodes),
                parents=tuple(each.id for each in parents),
                value_type=_agreed([each.value_type for each in parents]),
                key_type=_agreed([each.key_type for each in parents]),
            )
        )

    def side(self, parent: Operation, port: str, *, value_type: Any) -> Outlet:
        """What leaves a step by one of its other ports, under the key that it has."""
        if port not in parent.step.outputs:
            raise Bug(f'step "{parent.step.name}" has no port "{port}"')
        return self._add(
            Outlet(
                id=len(self._nodes),
                parents=(parent.id,),
                port=port,
                value_type=value_type,
                key_type=parent.key_type,
            )
        )

    def write(
        self,
        parent: Node,
        topic: Topic[Any],
        key_fn: Callable[[Any], Any] | None = None,
        name: str | None = None,
        *,
        is_late: bool = False,
    ) -> Operation:
        """End a stream in a topic."""
        self._declare(topic)
        require_writable(parent.value_type, None if key_fn else parent.key_type, topic)
        step = WriteStep(
            name or f"write_{topic.name}", topic.name, topic.value_type, topic.key_type, key_fn, is_late
        )
        return self.operate(parent, step, value_type=topic.value_type, is_named=name is not None)

    def known_type(self, node: Node, *, needed_by: str) -> Any:
        """The type of the values of a node.

        Raises:
            InvalidPipeline: nobody said, and the step `needed_by` must put these values into bytes.
        """
        if node.value_type is not None:
            return node.value_type
        blamed = self._where_type_was_lost(node)
        if isinstance(blamed, Union):
            raise InvalidPipeline(
                f'step "{needed_by}" needs to know of which type its values are, and the united streams differ',
                hint="bring them to one type with map(fn, to=Type) before union()",
            )
        name = blamed.step.name if isinstance(blamed, Operation) else needed_by
        raise InvalidPipeline(
            f'step "{needed_by}" needs to know of which type its values are, and step "{name}" does not say',
            detail="values are put into bytes to be shuffled or kept, and the type chooses how",
            hint=f'annotate the return type of the function of "{name}", or pass to=Type there',
        )

    def _where_type_was_lost(self, node: Node) -> Node:
        """The first node upstream whose parents all have a type: the one that should have said."""
        while True:
            unknown = [p for p in node.parents if self._nodes[p].value_type is None]
            if not unknown:
                return node
            node = self._nodes[unknown[0]]

    def _add(self, node: AnyNode) -> AnyNode:
        self._nodes.append(node)
        return node

    def _claim(self, name: str) -> None:
        written = line_of_caller()
        if name in self._fixed_names:
            raise InvalidPipeline(
                f'two steps are named "{name}"',
                where=f"{written}; the other one: {self._fixed_names[name]}",
                detail="a name decides where state and shuffled records live, so it must be one step's alone",
                hint='pass name="..." to one of them',
            )
        self._fixed_names[name] = written

    def _declare(self, topic: Topic[Any]) -> None:
        require_topic(topic)
        known = self._topics.get(topic.name)
        if known is None:
            value_codec(topic.value_type)
            key_codec(topic.key_type)
            self._topics[topic.name] = topic
        elif (known.value_type, known.key_type) != (topic.value_type, topic.key_type):
            raise InvalidPipeline(
                f'topic "{topic.name}" is declared twice with different types',
                detail=f"{_types(known)} and {_types(topic)}",
                hint="declare the topic once and use that object everywhere",
            )


def require_topic(given: object) -> None:
    """Refuse what is no topic.

    Raises:
        InvalidPipeline: it is something else.
    """
    _require_a(Topic, given, "a topic", 'declare it: orders = sk.topic("orders", Order)')


def _told_by(key_fn: Callable[[Any], Any], value_type: Any) -> Any:
    """The type of the keys: as annotated, or that of the field which a lambda names; else text, and a record will tell.

    Texts of all kinds, such as literals and names in an enum, stay text: their bytes are those of the text alone.
    """
    if annotated := returned_type(key_fn):
        return annotated
    found, _ = without_none(field_type(key_fn, value_type))
    return found if isinstance(found, type) and not issubclass(found, str) else str


def _types(topic: Topic[Any]) -> str:
    return f"{type_name(topic.key_type)} -> {type_name(topic.value_type)}"


def _agreed(found: list[Any]) -> Any:
    return found[0] if all(each == found[0] for each in found) else None


def _require_a(wanted: type, given: object, what: str, hint: str) -> None:
    if not isinstance(given, wanted):
        raise InvalidPipeline(f"not {what}: {given!r}", hint=hint)
