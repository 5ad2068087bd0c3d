"""ValueCells: one value per key, and WindowCells: one per key and window."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from streamkit.model.keys import GroupPrefixes
from streamkit.state.budget import RowSize
from streamkit.state.cells import DECODED, Cells, Rows, Touched
from streamkit.state.keys import KEY_AT, StateKeys, WindowKeys, split_map_key
from streamkit.state.spec import StoreSpec
from streamkit.state.values import ENCODE_ERRORS, ValueFormat, unwritable

# About what is kept in memory for a value beside its content: dicts, objects, key bytes (measured with counts).
VALUE_BYTES = 150
# Rows of a span whose size is looked at: they stand for the others.
SAMPLES = 8


class ValueCells(Cells):
    """One value per key.

    Operators use `cache` and `dirty` directly: `value = cache.get(key)`, and `load(key)` if that is None; to write,
    `cache[key] = value` and `dirty[key] = None`. Both dicts are only mutated, never replaced, so they may be kept.
    A deleted key is dirty and None in the cache until it is frozen.
    """

    __slots__ = ("_find", "_format", "_keys", "_row", "_spec", "cache", "dirty")

    def __init__(self, spec: StoreSpec, store_id: bytes, prefixes: GroupPrefixes, rows: Rows) -> None:
        # Any, for a cell's key is bytes here, and a tuple in WindowCells.
        self.cache: dict[Any, Any] = {}
        self.dirty: dict[Any, None] = {}
        self._spec = spec
        self._keys: dict[Any, bytes] = self._state_keys(prefixes, store_id)
        self._format = ValueFormat(spec)
        self._row = RowSize()
        self._find = rows.find

    def load(self, key: Any) -> Any | None:
        """The value of a key that is not cached, cached from now on; None if there is none (this is not cached)."""
        if key in self.dirty:  # deleted in this span; what lies under it is older
            return self.cache.get(key)
        data = self._find(self._keys[key])
        if data is None:
            return None
        value = self._format.decode(data, key)
        self.cache[key] = value
        self._row.see(len(key) + len(data))
        return value

    def get(self, key: Any) -> Any | None:
        """The value of `key`, or None."""
        value = self.cache.get(key)
        return self.load(key) if value is None else value

    def put(self, key: Any, value: Any) -> None:
        """Set the value of `key`; None deletes it."""
        self.cache[key] = value
        self.dirty[key] = None

    def delete(self, key: Any) -> None:
        """Leave `key` without a value."""
        self.cache[key] = None
        self.dirty[key] = None

    def freeze(self, rows: dict[bytes, bytes | None], touched: Touched) -> None:  # noqa: ARG002
        """As `Cells.freeze`, in the order of the first change."""
        cache, keys = self.cache, self._keys
        form = self._format
        header, pack, plain, read_back = form.header, form.pack, form.plain, form.read_back
        deleted = []
        key = None
        try:
            for key in self.dirty:
                value = cache[key]
                if value is None:
                    deleted.append(key)
                    rows[keys[key]] = None
                else:
                    packed = pack(value)
                    rows[keys[key]] = header + packed
                    if type(value) is not plain:
                        try:
                            read_back(packed)
                        except BaseException as error:
                            raise form.not_of_its_type(key, error) from error
        except ENCODE_ERRORS as error:
            raise unwritable(self._spec, key, error) from error
        for key in islice(self.dirty, SAMPLES):
            self._row.see(len(keys[key]) + len(rows[keys[key]] or b""))
        self.dirty.clear()
        for key in deleted:  # the tombstone in the rows says it from now on
            del cache[key]

    def require_storable(self, rows: Mapping[bytes, bytes | None], bytes_max: int) -> None:
        """As `Cells.require_storable`."""
        for state_key, data in rows.items():
            if data is not None:
                self._format.require_storable(self._key_in(state_key), data, bytes_max - len(state_key))

    def is_dirty(self) -> bool:
        """As `Cells.is_dirty`."""
        return bool(self.dirty)

    def size_bytes(self) -> int:
        """About how much memory the values take, and the keys: those that were asked for in vain are kept too."""
        return int(max(len(self.cache), len(self._keys)) * (VALUE_BYTES + DECODED * self._row.average))

    def evict(self) -> None:
        """As `Cells.evict`."""
        kept = {key: self.cache[key] for key in self.dirty}
        self.cache.clear()
        self.cache.update(kept)
        self._keys.clear()

    def forget(self) -> None:
        """As `Cells.forget`."""
        self.cache.clear()
        self.dirty.clear()

    @staticmethod
    def _state_keys(prefixes: GroupPrefixes, store_id: bytes) -> dict[Any, bytes]:
        return StateKeys(prefixes, store_id)

    @staticmethod
    def _key_in(state_key: bytes) -> bytes:
        return state_key[KEY_AT:]


class WindowCells(ValueCells):
    """One value per key and window: a cell's key is the tuple (key, namespace)."""

    __slots__ = ()

    @staticmethod
    def _state_keys(prefixes: GroupPrefixes, store_id: bytes) -> dict[Any, bytes]:
        return WindowKeys(prefixes, store_id)

    @staticmethod
    def _key_in(state_key: bytes) -> bytes:
        return split_map_key(state_key)[0]
