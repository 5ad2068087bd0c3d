"""A look at the open windows of a step from outside: for tests and for people, never for the engine."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from streamkit.state.keys import split_map_key
from streamkit.state.spec import StoreSpec
from streamkit.state.values import ValueFormat
from streamkit.windows.window import Window, decode_namespace

_KEY_AT = 4  # behind key group and store id


class OpenWindow(NamedTuple):
    """What one key has in one window: an accumulator, or a list of (timestamp, value)."""

    key: bytes
    window: Window
    contents: Any


def open_windows(
    contents: StoreSpec,
    rows: Mapping[bytes, bytes],
    sessions: StoreSpec | None = None,
    session_rows: Mapping[bytes, bytes] | None = None,
) -> Iterator[OpenWindow]:
    """The windows in the rows of a step's contents; sessions are shown as they are, not as they began."""
    homes: dict[tuple[bytes, Window], Window] = {}
    if sessions is not None:
        listed = ValueFormat(sessions).decode
        for state_key, data in (session_rows or {}).items():
            for start, end, home_start, home_end in listed(data):
                homes[state_key[_KEY_AT:], Window(home_start, home_end)] = Window(start, end)
    decode = ValueFormat(contents).decode
    for state_key, data in rows.items():
        key, namespace = split_map_key(state_key)
        window = decode_namespace(namespace)
        yield OpenWindow(key, homes.get((key, window), window), decode(data))
