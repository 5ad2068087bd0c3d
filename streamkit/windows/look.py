"""A look at the open windows of a step from outside: for tests and for people, never for the engine."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from streamkit.state.keys import TIMERS_PREFIX, split_map_key, store_id
from streamkit.state.spec import StoreSpec
from streamkit.state.values import ValueFormat
from streamkit.windows.window import Window, decode_namespace

_STORE_AT, _KEY_AT = 2, 4  # behind the key group, and behind the store id


class Entries(Protocol):
    """What a task has committed."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All entries whose key begins with `prefix`, in key order."""
        ...


class OpenWindow(NamedTuple):
    """What one key has in one window: an accumulator, or a list of (timestamp, value)."""

    key: bytes
    window: Window
    contents: Any


def open_windows(
    store: Entries, contents: StoreSpec, sessions: StoreSpec | None = None
) -> Iterator[OpenWindow]:
    """The open windows in the store of a task; sessions are shown as they are, not as they began."""
    homes: dict[tuple[bytes, Window], Window] = {}
    for state_key, listed in _rows(store, sessions):
        for start, end, home_start, home_end in listed:
            homes[state_key[_KEY_AT:], Window(home_start, home_end)] = Window(start, end)
    for state_key, found in _rows(store, contents):
        key, namespace = split_map_key(state_key)
        window = decode_namespace(namespace)
        yield OpenWindow(key, homes.get((key, window), window), found)


def _rows(store: Entries, spec: StoreSpec | None) -> Iterator[tuple[bytes, Any]]:
    """All entries of one keyed store, decoded; reads everything that the task has."""
    if spec is None:
        return
    own, decode = store_id(spec.name), ValueFormat(spec).decode
    for state_key, data in store.scan(b""):
        if state_key >= TIMERS_PREFIX:
            return  # timers, and behind them what is reserved
        if state_key[_STORE_AT:_KEY_AT] == own:
            yield state_key, decode(data)
