"""Cells: the write-back overlay of one store of one task, where operators read and write.

This is the hot path. An operator works on plain dicts of decoded values; bytes are made once per changed key and
span, by `freeze`, and read once per key that is not cached. None means absent, in every cell.

A value is kept as the object that was put. Whoever changes it in place must put it again, or the change is lost.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Protocol

from streamkit.model.keys import GroupPrefixes
from streamkit.state.budget import RowSize
from streamkit.state.keys import KEY_AT, StateKeys, WindowKeys, map_key_prefix, split_map_key
from streamkit.state.map_keys import EVERYTHING, KeyRange, key_range, map_key_format
from streamkit.state.spec import StoreSpec
from streamkit.state.values import ENCODE_ERRORS, ValueFormat, unwritable

# Encoded map keys per prefix: which entries of a map a span has changed.
Touched = dict[bytes, dict[bytes, None]]

# About what is kept in memory for a value, a map and an entry of one beside the content: dicts, objects, key bytes
# (measured with counts). And how much larger the content is than its bytes, roughly: text hardly, structs of small
# numbers ten times.
VALUE_BYTES = 150
MAP_BYTES = 300
ENTRY_BYTES = 60
DECODED = 3
# Rows of a span whose size is looked at: they stand for the others.
SAMPLES = 8

# A map of up to this many rows is cached as a whole when all of it is asked for; a larger one is read as it is walked.
WHOLE_ROWS_MAX = 1_000


class Rows(Protocol):
    """What lies under the overlay: frozen spans, committed rows that are not in the store yet, the store."""

    def find(self, key: bytes) -> bytes | None:
        """The newest bytes of this state key, or None."""
        ...

    def find_all(
        self, prefix: bytes, start: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """The newest bytes of the entries of one map, in the order of their state keys; a snapshot of this moment.

        Only those of which what follows the prefix is at least `start` and before `end`. Read as it is walked.
        """
        ...


class ValueCells:
    """One value per key, or per key and window: then a cell's key is the tuple (key, namespace).

    Operators use `cache` and `dirty` directly: `value = cache.get(key)`, and `load(key)` if that is None; to write,
    `cache[key] = value` and `dirty[key] = None`. Both dicts are only mutated, never replaced, so they may be kept.
    A deleted key is dirty and None in the cache until it is frozen.
    """

    __slots__ = ("_find", "_format", "_keys", "_row", "_spec", "cache", "dirty")

    def __init__(self, spec: StoreSpec, store_id: bytes, prefixes: GroupPrefixes, rows: Rows) -> None:
        # Any, for a cell's key is bytes in one kind of store and a tuple in the other.
        self.cache: dict[Any, Any] = {}
        self.dirty: dict[Any, None] = {}
        self._spec = spec
        self._keys: dict[Any, bytes] = (
            WindowKeys(prefixes, store_id) if spec.kind == "window" else StateKeys(prefixes, store_id)
        )
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

    def freeze(self, rows: dict[bytes, bytes | None]) -> None:
        """Add what this span changed to `rows`, in the order of the first change, and begin the next span.

        Raises:
            EncodeError: a value cannot be written, or not be read back; the span cannot be committed.
        """
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
        """Refuse rows of this store that the changelog would not take.

        Raises:
            EncodeError: with the store and the key in it.
        """
        for state_key, data in rows.items():
            if data is not None:
                key = state_key[KEY_AT:] if self._spec.kind == "value" else split_map_key(state_key)[0]
                self._format.require_storable(key, data, bytes_max - len(state_key))

    def is_dirty(self) -> bool:
        """Whether this span has changed anything."""
        return bool(self.dirty)

    def size_bytes(self) -> int:
        """About how much memory the values take, and the keys: those that were asked for in vain are kept too."""
        return int(max(len(self.cache), len(self._keys)) * (VALUE_BYTES + DECODED * self._row.average))

    def evict(self) -> None:
        """Empty the cache, except for what only the cache knows: the changes of this span."""
        kept = {key: self.cache[key] for key in self.dirty}
        self.cache.clear()
        self.cache.update(kept)
        self._keys.clear()

    def forget(self) -> None:
        """Drop the changes of this span and everything cached."""
        self.cache.clear()
        self.dirty.clear()


class MapCells:
    """One map per key, each entry of it a row of its own: a big map costs what is touched of it."""

    __slots__ = (
        "_cache",
        "_decode_key",
        "_dirty",
        "_encode_key",
        "_format",
        "_id",
        "_prefixes",
        "_row",
        "_rows",
        "_size",
        "_spec",
        "_whole",
    )

    def __init__(self, spec: StoreSpec, store_id: bytes, prefixes: GroupPrefixes, rows: Rows) -> None:
        # key -> encoded map key -> value; None for an entry that was removed in this span.
        self._cache: dict[bytes, dict[bytes, Any]] = {}
        self._dirty: Touched = {}
        # Keys whose whole map is cached, so that what is not there does not exist.
        self._whole: set[bytes] = set()
        self._size = 0
        self._spec = spec
        self._id = store_id
        self._prefixes = prefixes
        self._format = ValueFormat(spec)
        self._row = RowSize()
        self._rows = rows
        self._encode_key, self._decode_key = map_key_format(spec)

    def get(self, key: bytes, map_key: Any) -> Any | None:
        """The value of one entry, or None."""
        encoded = self._encode_key(map_key)
        entries = self._cache.get(key)
        if entries is not None:
            value = entries.get(encoded)
            if value is not None:
                return value
            if encoded in entries or key in self._whole:
                return None
        data = self._rows.find(self._prefix(key) + encoded)
        if data is None:
            return None
        value = self._format.decode(data, key)
        self._entries(key)[encoded] = value
        self._size += 1
        self._row.see(len(encoded) + len(data))
        return value

    def put(self, key: bytes, map_key: Any, value: Any) -> None:
        """Set one entry; None removes it."""
        self._put(key, self._encode_key(map_key), value)

    def remove(self, key: bytes, map_key: Any) -> None:
        """Leave the map without this entry, whether or not it had one."""
        self._put(key, self._encode_key(map_key), None)

    def items(self, key: bytes, within: KeyRange = EVERYTHING) -> Iterator[tuple[Any, Any]]:
        """The entries of the map in this range, sorted by the bytes of the map key, as they are at this moment.

        A large map is read as it is walked, and not kept.
        """
        rows = None if key in self._whole else self._rows_to_walk(key, within)
        entries, (start, end) = self._cache.get(key, {}), within
        cached = sorted(entries if end is None else (each for each in entries if each < end))
        cached = cached[bisect_left(cached, start) :] if start else cached
        decode, decode_key = self._format.decode, self._decode_key
        if rows is None:
            return iter(
                [(decode_key(each), value) for each in cached if (value := entries[each]) is not None]
            )
        newer = [(each, value) for each in cached if (value := entries[each]) is not None]
        known, at = set(cached), len(self._prefix(key))
        stored = (
            (encoded, decode(data, key)) for row_key, data in rows if (encoded := row_key[at:]) not in known
        )
        return ((decode_key(encoded), value) for encoded, value in merge(stored, newer, key=itemgetter(0)))

    def _rows_to_walk(self, key: bytes, within: KeyRange) -> Iterator[tuple[bytes, bytes]] | None:
        """What has to be read beside the cache; None if the whole map is small, and is in the cache now."""
        rows = self._rows.find_all(self._prefix(key), *within)
        if within is not EVERYTHING:
            return rows
        first = list(islice(rows, WHOLE_ROWS_MAX + 1))
        if len(first) > WHOLE_ROWS_MAX:
            return chain(first, rows)
        self._load(key, first)
        return None

    def key_range(self, start: Any, end: Any, prefix: Any) -> KeyRange:
        """The bytes of a range of map keys; see `state/map_keys.py`."""
        return key_range(self._spec, self._encode_key, start, end, prefix)

    def clear(self, key: bytes) -> None:
        """Remove every entry of the map."""
        entries = self._load_whole(key)
        for encoded in sorted(encoded for encoded, value in entries.items() if value is not None):
            self._put(key, encoded, None)

    def freeze(self, rows: dict[bytes, bytes | None], touched: Touched) -> None:
        """Add what this span changed to `rows`, and which entries of which map to `touched`.

        Raises:
            EncodeError: a value cannot be written, or not be read back; the span cannot be committed.
        """
        form = self._format
        header, pack, plain, read_back = form.header, form.pack, form.plain, form.read_back
        removed = []
        key = b""
        try:
            for key, changed in self._dirty.items():
                prefix = self._prefix(key)
                entries = self._cache[key]
                before = touched.get(prefix)
                touched[prefix] = changed if before is None else before | changed
                for encoded in changed:
                    value = entries[encoded]
                    if value is None:
                        removed.append((key, encoded))
                        rows[prefix + encoded] = None
                    else:
                        packed = pack(value)
                        rows[prefix + encoded] = header + packed
                        if type(value) is not plain:
                            try:
                                read_back(packed)
                            except BaseException as error:
                                raise form.not_of_its_type(key, error) from error
                self._row.see(len(encoded) + len(rows[prefix + encoded] or b""))  # the last stands for all
        except ENCODE_ERRORS as error:
            raise unwritable(self._spec, key, error) from error
        self._dirty.clear()
        self._drop(removed)

    def require_storable(self, rows: Mapping[bytes, bytes | None], bytes_max: int) -> None:
        """As `ValueCells.require_storable`."""
        for state_key, data in rows.items():
            if data is not None:
                key, _ = split_map_key(state_key)
                self._format.require_storable(key, data, bytes_max - len(state_key))

    def is_dirty(self) -> bool:
        """Whether this span has changed anything."""
        return bool(self._dirty)

    def size_bytes(self) -> int:
        """About how much memory the entries take."""
        return int(len(self._cache) * MAP_BYTES + self._size * (ENTRY_BYTES + DECODED * self._row.average))

    def evict(self) -> None:
        """Empty the cache, except for what only the cache knows: the changes of this span."""
        kept = {
            key: {encoded: self._cache[key][encoded] for encoded in changed}
            for key, changed in self._dirty.items()
        }
        self._cache.clear()
        self._cache.update(kept)
        self._whole.clear()
        self._size = sum(len(entries) for entries in kept.values())

    def forget(self) -> None:
        """Drop the changes of this span and everything cached."""
        self._dirty.clear()
        self.evict()

    def _prefix(self, key: bytes) -> bytes:
        return map_key_prefix(self._prefixes[key], self._id, key)

    def _entries(self, key: bytes) -> dict[bytes, Any]:
        entries = self._cache.get(key)
        if entries is None:
            entries = self._cache[key] = {}
        return entries

    def _put(self, key: bytes, encoded: bytes, value: Any) -> None:
        entries = self._entries(key)
        if encoded not in entries:
            self._size += 1
        entries[encoded] = value
        changed = self._dirty.get(key)
        if changed is None:
            changed = self._dirty[key] = {}
        changed[encoded] = None

    def _drop(self, removed: Collection[tuple[bytes, bytes]]) -> None:
        """Forget entries of which the tombstone in the rows speaks from now on."""
        for key, encoded in removed:
            entries = self._cache[key]
            del entries[encoded]
            if not entries and key not in self._whole:
                del self._cache[key]
        self._size -= len(removed)

    def _load_whole(self, key: bytes) -> dict[bytes, Any]:
        if key in self._whole:
            return self._entries(key)
        return self._load(key, self._rows.find_all(self._prefix(key)))

    def _load(self, key: bytes, rows: Iterable[tuple[bytes, bytes]]) -> dict[bytes, Any]:
        """Cache the whole map: these are all its rows."""
        entries = self._entries(key)
        start, known = len(self._prefix(key)), len(entries)
        for row_key, data in rows:
            encoded = row_key[start:]
            if encoded not in entries:  # what is cached is newer, removals of this span included
                entries[encoded] = self._format.decode(data, key)
        self._whole.add(key)
        self._size += len(entries) - known + 1  # one for the map itself: an empty one takes room too
        return entries
