"""AnyStream: what can be done with a stream whether it has a key or not, and leaves it what it is."""

from collections.abc import Callable
from copy import copy
from typing import Generic, Self, TypeVar

from streamkit.graph import steps
from streamkit.graph.builder import Builder
from streamkit.graph.node import Node
from streamkit.model.topic import Topic

T = TypeVar("T")


class AnyStream(Generic[T]):
    """Records with values of type `T`: what `Stream` and `Keyed` have in common."""

    def __init__(self, builder: Builder, node: Node) -> None:
        self._builder = builder
        self._node = node

    def filter(self, fn: Callable[[T], object], *, name: str | None = None) -> Self:
        """Let through the values for which `fn(value)` is true."""
        return self._followed_by(steps.add_filter(self._builder, self._node, fn, name))

    def peek(self, fn: Callable[[T], object], *, name: str | None = None) -> Self:
        """Call `fn(value)` for what it does; a pipeline may end here. It may see a record more than once."""
        return self._followed_by(steps.add_peek(self._builder, self._node, fn, name))

    def write(
        self, topic: Topic[T], *, key: Callable[[T], object] | None = None, name: str | None = None
    ) -> None:
        """Write every record to a topic, with the key it has or the one that `key(value)` makes."""
        self._builder.write(self._node, topic, key, name)

    def _followed_by(self, node: Node) -> Self:
        """The same stream, one step further."""
        following = copy(self)
        following._node = node  # noqa: SLF001 - it is one of these itself
        return following
