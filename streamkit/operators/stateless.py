"""Steps without memory: map, filter, flat_map, peek and map_keyed. Each says what it does in a line or two."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from streamkit.codec.values import key_codec
from streamkit.errors import UserCodeError
from streamkit.operators.fused import InlineStep
from streamkit.operators.step import Scope, Statements
from streamkit.state.spec import StoreSpec

# Decoded keys that a step remembers before it forgets them all: the hot keys are back at once, memory stays small.
REMEMBERED_KEYS_MAX = 10_000


class Map(InlineStep, frozen=True):
    """Replace every value by `fn(value)`."""

    kind: ClassVar[str] = "map"

    name: str
    fn: Callable[[Any], Any]
    has_effects: bool = False
    stores: tuple[StoreSpec, ...] = ()

    def code(self, scope: Scope) -> Statements:  # noqa: ARG002 - a stateless step needs no scope
        """As `InlineStep.code`."""
        return Statements(self.name, ("value = fn(value)",), {"fn": self.fn})


class Filter(InlineStep, frozen=True):
    """Let through the values for which `fn(value)` is true."""

    kind: ClassVar[str] = "filter"

    name: str
    fn: Callable[[Any], Any]
    has_effects: bool = False
    stores: tuple[StoreSpec, ...] = ()

    def code(self, scope: Scope) -> Statements:  # noqa: ARG002 - a stateless step needs no scope
        """As `InlineStep.code`."""
        return Statements(self.name, ("if fn(value):",), {"fn": self.fn})


class FlatMap(InlineStep, frozen=True):
    """Replace every value by the values of `fn(value)`: none, one or many.

    All of them are made before the first goes on, so a generator that raises half-way has passed on nothing.
    """

    kind: ClassVar[str] = "flat_map"

    name: str
    fn: Callable[[Any], Iterable[Any]]
    has_effects: bool = True
    stores: tuple[StoreSpec, ...] = ()

    def code(self, scope: Scope) -> Statements:  # noqa: ARG002 - a stateless step needs no scope
        """As `InlineStep.code`."""
        return Statements(
            self.name,
            (
                "results = fn(value)",
                "for value in results if type(results) is list else tuple(results):",
            ),
            {"fn": self.fn},
        )


class Peek(InlineStep, frozen=True):
    """Call `fn(value)` for what it does, and pass the value on unchanged.

    It may be called again for the same record, when a span is repeated after a failure.
    """

    kind: ClassVar[str] = "peek"

    name: str
    fn: Callable[[Any], Any]
    has_effects: bool = False
    stores: tuple[StoreSpec, ...] = ()

    def code(self, scope: Scope) -> Statements:  # noqa: ARG002 - a stateless step needs no scope
        """As `InlineStep.code`."""
        return Statements(self.name, ("fn(value)",), {"fn": self.fn})


class MapKeyed(InlineStep, frozen=True):
    """Replace every value by `fn(key, value)`; the key itself stays."""

    kind: ClassVar[str] = "map_keyed"

    name: str
    fn: Callable[[Any, Any], Any]
    key_type: Any = str
    has_effects: bool = False
    stores: tuple[StoreSpec, ...] = ()

    def code(self, scope: Scope) -> Statements:  # noqa: ARG002 - a stateless step needs no scope
        """As `InlineStep.code`."""
        return Statements(
            self.name,
            ("value = fn(keys[key], value)",),
            {"fn": self.fn, "keys": DecodedKeys(self.key_type, self.name)},
        )


class DecodedKeys(dict[bytes, Any]):
    """key bytes -> key, remembered: a known key costs one lookup. A missing key (None) is never known and raises."""

    def __init__(self, key_type: Any, step: str) -> None:
        super().__init__()
        self._decode = key_codec(key_type).decode
        self._step = step

    def __missing__(self, key: bytes | None) -> Any:
        if key is None:
            raise missing_key(self._step)
        if len(self) >= REMEMBERED_KEYS_MAX:
            self.clear()
        decoded = self[key] = self._decode(key)
        return decoded


# What to do about records without a key, in a pipeline of steps.
GIVE_KEYS = (
    "the topic holds records with a null key: read it with read() and give each record a key by key_by()"
)


def missing_key(step: str, hint: str = GIVE_KEYS) -> UserCodeError:
    """What a keyed step says about a record without a key."""
    return UserCodeError(
        "a record without a key reached a step that works by key",
        where=f'step "{step}"',
        hint=hint,
    )
