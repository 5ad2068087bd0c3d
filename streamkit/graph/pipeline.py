"""Pipeline: where a user begins. A value that can be planned, drawn and compared; building it touches nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from streamkit.codec.naming import type_name
from streamkit.errors import InvalidPipeline
from streamkit.graph.builder import Builder, Until, require_topic
from streamkit.graph.copied import NO_SINKS, copied
from streamkit.graph.cut import cut
from streamkit.graph.node import Node
from streamkit.graph.plan import Plan
from streamkit.graph.policy import ErrorPolicy, dead_letter
from streamkit.graph.stream import Keyed, Stream
from streamkit.graph.validate import require_count, require_header_names, require_pipeline_name
from streamkit.model.topic import Topic
from streamkit.operators.agent import agent_processor
from streamkit.operators.process import Context, ProcessStep

V = TypeVar("V")
K = TypeVar("K")
X = TypeVar("X")
P = ParamSpec("P")

# (value, context, declared state...) -> None, or a coroutine of None.
AgentFunction = Callable[Concatenate[V, Context[Any, Any], P], X]


class Pipeline:
    """A graph of streams between topics, under one name. Made by `pipeline()`."""

    def __init__(
        self, name: str, on_error: ErrorPolicy, partitions: int | None, carry_headers: tuple[str, ...] = ()
    ) -> None:
        self._builder = Builder(name, on_error, partitions, carry_headers)

    @property
    def name(self) -> str:
        """What the pipeline is called: the beginning of all its internal topics, and its consumer group."""
        return self._builder.name

    def read(self, topic: Topic[V], *, name: str | None = None, until: Until = None) -> Stream[V]:
        """A stream of the records of a topic. `name` names the stage; by default the topic does.

        With until="latest" it ends where the topic ended when the pipeline first began: event time then runs to its end,
        open windows close, and the workers stop by themselves.
        """
        return Stream(self._builder, self._builder.read(topic, name, until))

    @overload
    def read_keyed(
        self, topic: Topic[V], *, name: str | None = None, until: Until = None
    ) -> Keyed[Any, V]: ...
    @overload
    def read_keyed(
        self, topic: Topic[V], *, key_type: type[K], name: str | None = None, until: Until = None
    ) -> Keyed[K, V]: ...
    def read_keyed(
        self, topic: Topic[V], *, key_type: Any = None, name: str | None = None, until: Until = None
    ) -> Keyed[Any, V]:
        """A keyed stream of a topic that is partitioned by its key already: no shuffle.

        Right only if every producer of the topic uses the same partitioner. `key_type` tells the type checker what
        the topic declares; `until` is that of `read`.
        """
        if key_type is not None and key_type != topic.key_type:
            raise InvalidPipeline(
                f'topic "{topic.name}" has keys of type {type_name(topic.key_type)}, not {type_name(key_type)}',
                hint=f'declare it as topic("{topic.name}", ..., key={type_name(key_type)})',
            )
        source = self._builder.read(topic, name, until)
        return Keyed(self._builder, source, source.id)

    def agent(
        self,
        topic: Topic[V],
        *,
        key: Callable[[V], object] | None = None,
        key_type: Any = None,
        to: Topic[Any] | None = None,
        name: str | None = None,
        partitions: int | None = None,
    ) -> Callable[[AgentFunction[V, P, X]], AgentFunction[V, P, X]]:
        """Call the decorated function for every record of a topic.

        It takes the value, a context and its state: parameters whose default is a declaration, `seen=value(bool,
        False)`. What it emits goes to the topic `to`. With `key` the records are brought together by that key first;
        without, the key of the topic is the key. An `async def` may not wait for anything. The function itself is
        returned as it is, for unit tests.
        """

        def register(function: AgentFunction[V, P, X]) -> AgentFunction[V, P, X]:
            processor = agent_processor(function)
            if to is not None:
                require_topic(to)
            if key is None and (key_type is not None or partitions is not None):
                raise InvalidPipeline(
                    "key_type and partitions belong to a key, and the agent has none",
                    where=f'agent "{processor.function.__name__}"',
                    hint="pass key=... too, or leave them out to work by the key of the topic",
                )
            chosen = name or processor.function.__name__
            source = self._builder.read(topic, None)
            parent: Node = source
            if key is not None:
                parent = self._builder.shuffle(
                    source,
                    key,
                    key_type=key_type,
                    name=f"{chosen}_by_key",
                    partitions=partitions,
                    calls="agent(key=...)",
                )
            step = ProcessStep(chosen, processor, parent.key_type)
            node = self._builder.operate(
                parent, step, value_type=to.value_type if to else None, is_named=True
            )
            if to is not None:
                self._builder.write(node, to, None, None)
            return function

        return register

    def plan(
        self,
        *,
        generation: int = 1,
        name: str | None = None,
        sink_suffix: str = "",
        sinks: Mapping[str, str] = NO_SINKS,
    ) -> Plan:
        """What would run. Partition counts of topics are filled in later, by `resolve`.

        With another `name` it is a copy, with a group and internal topics of its own. It must write somewhere else: to
        topics with a suffix, or to those that `sinks` names for them, as in sinks={"counts": "counts-of-b"}.

        Raises:
            InvalidPipeline: the pipeline, as written, has no plan, or a copy would write to the same topics.
        """
        graph = self._builder.graph()
        if name is not None or sink_suffix or sinks:
            graph = copied(graph, graph.name if name is None else name, sink_suffix=sink_suffix, sinks=sinks)
        return cut(graph, generation)

    def __repr__(self) -> str:
        return f"pipeline({self.name!r})"


def pipeline(
    name: str,
    *,
    on_error: ErrorPolicy | None = None,
    partitions: int | None = None,
    carry_headers: Sequence[str] = (),
) -> Pipeline:
    """Begin a pipeline.

    `on_error` is `fail()`, `skip()` or `dead_letter()`, the default. `partitions` is how many tasks share the keys
    after each shuffle; by default as many as there are upstream of it.

    `carry_headers` names headers that go from a record to all that is made of it, through every `key_by` to the topics
    that are written: carry_headers=("traceparent",) lets a trace go on. What a timer emits carries none, and neither
    do late records and what `reduce`, `aggregate` (hence `count` and its kin) or a window makes of many records. A
    dead letter has in any case all headers that its record still had where it failed.

    Raises:
        InvalidPipeline: the name cannot begin a topic's name, or a header of this name cannot be carried.
    """
    require_pipeline_name(name)
    require_count(partitions, f'pipeline "{name}"')
    require_header_names(carry_headers, f'pipeline "{name}"')
    return Pipeline(name, on_error or dead_letter(), partitions, tuple(carry_headers))
