"""Cells: the write-back overlay of one store of one task, where operators read and write.

This is the hot path. An operator works on plain dicts of decoded values; bytes are made once per changed key and
span, by `freeze`, and read once per key that is not cached. None means absent, in values and in entries of maps.

A value is kept as the object that was put. Whoever changes it in place must put it again, or the change is lost.

Here stands what the cells of every kind of state have in common. Each kind has a class of its own: `state/kinds.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from streamkit.codec.naming import type_name
from streamkit.errors import EncodeError
from streamkit.model.keys import GroupPrefixes
from streamkit.state.spec import StoreSpec

# What follows the prefix of a map (or of what else a key has in many rows) in its state keys, by prefix: which of its
# entries a span has changed.
Touched = dict[bytes, dict[bytes, None]]

# How much larger decoded values are than their bytes, roughly: text hardly, structs of small numbers ten times.
DECODED = 3

# What a key has of up to this many rows is cached as a whole when all of it is asked for; more is read as it is walked.
WHOLE_ROWS_MAX = 1_000


class Changes(msgspec.Struct, frozen=True):
    """Rows that a span has changed, and which entries of which maps are among them."""

    rows: dict[bytes, bytes | None]
    touched: Touched


class Rows(Protocol):
    """What lies under the overlay: frozen spans, committed rows that are not in the store yet, the store."""

    def find(self, key: bytes) -> bytes | None:
        """The newest bytes of this state key, or None."""
        ...

    def find_all(
        self, prefix: bytes, start: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """The newest rows with one prefix, a map say, in the order of their state keys; a snapshot of this moment.

        Only those of which what follows the prefix is at least `start` and before `end`. Read as it is walked.
        """
        ...


class Cells(ABC):
    """The cells of one store of one task: what its state and the budget of memory ask of each of them."""

    __slots__ = ()

    @abstractmethod
    def __init__(self, spec: StoreSpec, store_id: bytes, prefixes: GroupPrefixes, rows: Any) -> None:
        """`rows` is what lies under the cells: `Rows`, or what else this kind reads."""

    # How a declared store is described, before there is a task.

    @classmethod
    def details(cls, spec: StoreSpec) -> dict[str, str]:  # noqa: ARG003
        """What stored state depends on beside kind, type and version; for the fingerprint."""
        return {}

    @classmethod
    def in_words(cls, spec: StoreSpec) -> str:
        """What such a store holds, for people."""
        return f"{spec.kind} of {type_name(spec.value_type)}, version {spec.version}"

    # The life of a span.

    @abstractmethod
    def freeze(self, rows: dict[bytes, bytes | None], touched: Touched) -> None:
        """Add what this span changed to `rows`, and begin the next span.

        What is found again by `Rows.find_all` is added to `touched` too.

        Raises:
            EncodeError: a value cannot be written, or not be read back; the span cannot be committed.
        """

    @abstractmethod
    def require_storable(self, rows: Mapping[bytes, bytes | None], bytes_max: int) -> None:
        """Refuse rows of this store that the changelog would not take.

        Raises:
            EncodeError: with the store and the key in it.
        """

    @abstractmethod
    def is_dirty(self) -> bool:
        """Whether this span has changed anything."""

    @abstractmethod
    def size_bytes(self) -> int:
        """About how much memory the cells take."""

    @abstractmethod
    def evict(self) -> None:
        """Empty the cache, except for what only the cache knows: the changes of this span."""

    @abstractmethod
    def forget(self) -> None:
        """Drop the changes of this span and everything cached."""

    # One record at a time, in a careful task: see `state/record_layer.py`. Cells that have all their changes in the
    # rows that they freeze need no more than this.

    def prepare(self, changes: Changes, row_bytes_max: int) -> None:
        """Add the rows that were changed since the last `settle`, if all of them can be stored.

        Raises:
            EncodeError: one of them cannot; undo them.
        """
        if self.is_dirty():
            rows: dict[bytes, bytes | None] = {}
            self.freeze(rows, changes.touched)
            self.require_storable(rows, row_bytes_max)
            require_short(rows, row_bytes_max)
            changes.rows.update(rows)

    def settle(self) -> None:
        """What was prepared stays, and is read from its rows; from now on `undo` can take back what comes."""
        self.forget()

    def undo(self) -> None:
        """Forget what was changed since the last `settle`."""
        self.forget()

    def trust(self) -> None:  # noqa: B027
        """Nothing has to be undone any more."""


def require_short(state_keys: Iterable[bytes], bytes_max: int) -> None:
    """Refuse a row whose key alone is more than its changelog takes: a timer, or the deletion of what is not there.

    Raises:
        EncodeError: there is one.
    """
    for state_key in state_keys:
        if len(state_key) >= bytes_max:
            raise EncodeError(
                f"a key with its timer or its state has {len(state_key)} bytes, and its changelog takes {bytes_max}",
                hint="use shorter keys, or raise max.message.bytes of the changelog topic and start the worker again",
            )
