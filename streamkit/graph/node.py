"""The graph as the user wrote it: frozen nodes that point to their parents, before anything is cut or named for good.

A node's id is its place in the order of writing, so parents always have smaller ids. `value_type` and `key_type` are
None where nobody said.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from streamkit.graph.policy import ErrorPolicy
from streamkit.model.topic import Topic
from streamkit.operators.step import MAIN, Step


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that is read. One per topic, however often the pipeline says `read`."""

    id: int
    topic: Topic[Any]
    name: str | None
    is_bounded: bool = False
    parents: tuple[int, ...] = ()

    @property
    def value_type(self) -> Any:
        """The type of the topic's values."""
        return self.topic.value_type

    @property
    def key_type(self) -> Any:
        """The type of the topic's keys."""
        return self.topic.key_type


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A step that runs inside a stage. `entered_by` has for each parent the input port that its records enter by.

    `is_name_fixed`: the name was given, or decides where state lives. Other names only need to be told apart.
    """

    id: int
    parents: tuple[int, ...]
    entered_by: tuple[str, ...] = (MAIN,)
    step: Step
    value_type: Any
    key_type: Any
    is_name_fixed: bool


class Shuffle(msgspec.Struct, frozen=True, kw_only=True):
    """A cut: the records of one stage go to the owner of their key in the next."""

    id: int
    parents: tuple[int, ...]
    name: str
    key_fn: Callable[[Any], Any]
    key_type: Any
    value_type: Any
    partitions: int | None


class Union(msgspec.Struct, frozen=True, kw_only=True):
    """Several streams seen as one; no step of its own."""

    id: int
    parents: tuple[int, ...]
    value_type: Any
    key_type: Any


class Outlet(msgspec.Struct, frozen=True, kw_only=True):
    """What leaves a step by another port than the main one; no step of its own."""

    id: int
    parents: tuple[int]
    port: str
    value_type: Any
    key_type: Any


Node = Source | Operation | Shuffle | Union | Outlet


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a pipeline says."""

    name: str
    nodes: tuple[Node, ...]
    on_error: ErrorPolicy
    partitions: int | None
    carry_headers: tuple[str, ...] = ()
