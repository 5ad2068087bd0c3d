"""MapCells: one map per key."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from streamkit.codec.naming import type_name
from streamkit.model.keys import GroupPrefixes
from streamkit.state.budget import RowSize
from streamkit.state.cells import DECODED, WHOLE_ROWS_MAX, Cells, Rows, Touched
from streamkit.state.keys import map_key_prefix, split_map_key
from streamkit.state.map_keys import EVERYTHING, KeyRange, key_range, map_key_format
from streamkit.state.spec import StoreSpec
from streamkit.state.values import ENCODE_ERRORS, ValueFormat, unwritable

# About what is kept in memory for a map and an entry of one beside the content: dicts, objects, key bytes (measured
# with counts).
MAP_BYTES = 300
ENTRY_BYTES = 60


class MapCells(Cells):
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

    @classmethod
    def details(cls, spec: StoreSpec) -> dict[str, str]:
        """As `Cells.details`."""
        return {"map_key": type_name(spec.map_key_type)}

    @classmethod
    def in_words(cls, spec: StoreSpec) -> str:
        """As `Cells.in_words`."""
        types = f"{type_name(spec.map_key_type)} -> {type_name(spec.value_type)}"
        return f"map of {types}, version {spec.version}"

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
        """As `Cells.freeze`."""
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
        """As `Cells.require_storable`."""
        for state_key, data in rows.items():
            if data is not None:
                key, _ = split_map_key(state_key)
                self._format.require_storable(key, data, bytes_max - len(state_key))

    def is_dirty(self) -> bool:
        """As `Cells.is_dirty`."""
        return bool(self._dirty)

    def size_bytes(self) -> int:
        """About how much memory the entries take."""
        return int(len(self._cache) * MAP_BYTES + self._size * (ENTRY_BYTES + DECODED * self._row.average))

    def evict(self) -> None:
        """As `Cells.evict`."""
        kept = {
            key: {encoded: self._cache[key][encoded] for encoded in changed}
            for key, changed in self._dirty.items()
        }
        self._cache.clear()
        self._cache.update(kept)
        self._whole.clear()
        self._size = sum(len(entries) for entries in kept.values())

    def forget(self) -> None:
        """As `Cells.forget`."""
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
            self._row.see(len(encoded) + len(data))
            if encoded not in entries:  # what is cached is newer, removals of this span included
                entries[encoded] = self._format.decode(data, key)
        self._whole.add(key)
        self._size += len(entries) - known + 1  # one for the map itself: an empty one takes room too
        return entries
