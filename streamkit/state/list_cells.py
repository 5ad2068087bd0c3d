"""ListCells: one list per key, each element of it a row of its own.

The state key of an element is that of a map's entry, with the element's number in 8 bytes as the map key. Elements are
numbered from 0 on without a gap, for a list grows at its end or is emptied, and nothing else. So its length needs no row
of its own: it is the first number that has no row, and is found by asking for 0, 1, 3, 7..., then by halving. That is done
once for a key that is not cached, a few lookups for most lists and about 40 for one of a million elements.

A row that holds the length would be written with every span that adds something, and whoever writes rows from outside
would have to keep it in agreement with the elements. Looking for the last row would need stores that walk backwards.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import msgspec

from streamkit.model.keys import GroupPrefixes
from streamkit.state.budget import RowSize
from streamkit.state.cells import DECODED, WHOLE_ROWS_MAX, Cells, Rows, Touched
from streamkit.state.keys import map_key_prefix, split_map_key
from streamkit.state.spec import StoreSpec
from streamkit.state.values import ENCODE_ERRORS, ValueFormat, unwritable

# A number sorts as its bytes do.
NUMBER_BYTES = 8

# About what is kept in memory for a list and an element of one beside the content (measured with counts).
LIST_BYTES = 200
ELEMENT_BYTES = 40


class ChangedList(msgspec.Struct):
    """What a span has made of a list: its first `kept` rows, and behind them what was added."""

    # How many rows it had.
    before: int
    # All of them, or none once it was emptied.
    kept: int
    # Only ever appended to, or replaced: whoever walks it knows how far.
    added: list[Any]

    @property
    def length(self) -> int:
        """How many elements there are now."""
        return self.kept + len(self.added)


class ListCells(Cells):
    """One list per key: adding costs one row and reads none of the others."""

    __slots__ = (
        "_changed",
        "_format",
        "_id",
        "_lengths",
        "_prefixes",
        "_row",
        "_rows",
        "_size",
        "_spec",
        "_whole",
    )

    def __init__(self, spec: StoreSpec, store_id: bytes, prefixes: GroupPrefixes, rows: Rows) -> None:
        self._changed: dict[bytes, ChangedList] = {}
        # How many rows the lists have that this span has not changed.
        self._lengths: dict[bytes, int] = {}
        # Lists of which all is cached, with what this span has added. Changed as `ChangedList.added` is.
        self._whole: dict[bytes, list[Any]] = {}
        # How many elements are in memory.
        self._size = 0
        self._spec = spec
        self._id = store_id
        self._prefixes = prefixes
        self._format = ValueFormat(spec)
        self._row = RowSize()
        self._rows = rows

    def add(self, key: bytes, value: Any) -> None:
        """Append one element."""
        changed = self._changed.get(key)
        if changed is None:
            changed = self._change(key)
        changed.added.append(value)
        whole = self._whole.get(key)
        if whole is not None:
            whole.append(value)
        self._size += 1

    def extend(self, key: bytes, values: Iterable[Any]) -> None:
        """Append these elements; they may come from the list itself."""
        for value in list(values):
            self.add(key, value)

    def replace(self, key: bytes, values: Iterable[Any]) -> None:
        """Have these elements and no others; they may come from the list itself."""
        new = list(values)
        self.clear(key)
        self.extend(key, new)

    def clear(self, key: bytes) -> None:
        """Leave the list without elements; reads none of them."""
        if self.length(key):
            changed = self._changed.get(key) or self._change(key)
            self._size -= len(self._whole.pop(key, changed.added))
            changed.kept, changed.added = 0, []

    def length(self, key: bytes) -> int:
        """How many elements the list has."""
        changed = self._changed.get(key)
        if changed is not None:
            return changed.length
        known = self._lengths.get(key)
        if known is None:
            known = self._lengths[key] = self._count_rows(key)
        return known

    def elements(self, key: bytes) -> Iterator[Any]:
        """The elements in the order in which they were added, as they are at this moment.

        A long list is read as it is walked, and not kept.
        """
        whole, changed = self._whole.get(key), self._changed.get(key)
        added = [] if changed is None else changed.added
        if whole is None and changed is not None and not changed.kept:
            whole = added
        if whole is None:
            prefix = self._prefix(key)
            rows = _unbroken(self._rows.find_all(prefix), len(prefix))
            first = list(islice(rows, WHOLE_ROWS_MAX + 1))
            decode = self._format.decode
            if len(first) > WHOLE_ROWS_MAX:
                stored = (decode(data, key) for data in chain(first, rows))
                return chain(stored, islice(added, len(added)))
            whole = self._whole[key] = [*(decode(data, key) for data in first), *added]
            self._row.see_many(sum(map(len, first)) + NUMBER_BYTES * len(first), len(first))
            self._lengths[key] = len(first)
            self._size += len(first)
        return islice(whole, len(whole))

    def freeze(self, rows: dict[bytes, bytes | None], touched: Touched) -> None:
        """As `Cells.freeze`."""
        key = b""
        try:
            for key, changed in self._changed.items():
                self._freeze_list(key, changed, rows, touched)
        except ENCODE_ERRORS as error:
            raise unwritable(self._spec, key, error) from error
        for key, changed in self._changed.items():
            self._keep_frozen(key, changed)
        self._changed.clear()

    def require_storable(self, rows: Mapping[bytes, bytes | None], bytes_max: int) -> None:
        """As `Cells.require_storable`."""
        for state_key, data in rows.items():
            if data is not None:
                key, _ = split_map_key(state_key)
                self._format.require_storable(key, data, bytes_max - len(state_key))

    def is_dirty(self) -> bool:
        """As `Cells.is_dirty`."""
        return bool(self._changed)

    def size_bytes(self) -> int:
        """As `Cells.size_bytes`."""
        lists = max(len(self._lengths), len(self._changed))
        return int(lists * LIST_BYTES + self._size * (ELEMENT_BYTES + DECODED * self._row.average))

    def evict(self) -> None:
        """As `Cells.evict`."""
        self._whole.clear()
        self._lengths.clear()
        self._size = sum(len(changed.added) for changed in self._changed.values())

    def forget(self) -> None:
        """As `Cells.forget`."""
        self._changed.clear()
        self.evict()

    def _prefix(self, key: bytes) -> bytes:
        return map_key_prefix(self._prefixes[key], self._id, key)

    def _change(self, key: bytes) -> ChangedList:
        length = self.length(key)
        changed = self._changed[key] = ChangedList(length, length, [])
        return changed

    def _count_rows(self, key: bytes) -> int:
        """The first number without a row."""
        prefix, find = self._prefix(key), self._rows.find

        def has(number: int) -> bool:
            return find(prefix + number.to_bytes(NUMBER_BYTES, "big")) is not None

        # At least `known` rows are there; once the first loop has ended, number `above` is not.
        known = above = 0
        while has(above):
            known, above = above + 1, 2 * above + 1
        while known < above:
            middle = (known + above) // 2
            if has(middle):
                known = middle + 1
            else:
                above = middle
        return known

    def _freeze_list(
        self, key: bytes, changed: ChangedList, rows: dict[bytes, bytes | None], touched: Touched
    ) -> None:
        form = self._format
        header, pack, plain, read_back = form.header, form.pack, form.plain, form.read_back
        prefix = self._prefix(key)
        entries = touched.setdefault(prefix, {})
        size = 0
        for number, value in enumerate(changed.added, changed.kept):
            encoded = number.to_bytes(NUMBER_BYTES, "big")
            packed = pack(value)
            size += NUMBER_BYTES + len(packed)
            rows[prefix + encoded] = header + packed
            entries[encoded] = None
            if type(value) is not plain:
                try:
                    read_back(packed)
                except BaseException as error:
                    raise form.not_of_its_type(key, error) from error
        for number in range(changed.length, changed.before):
            encoded = number.to_bytes(NUMBER_BYTES, "big")
            rows[prefix + encoded] = None
            entries[encoded] = None
        self._row.see_many(size, len(changed.added))

    def _keep_frozen(self, key: bytes, changed: ChangedList) -> None:
        """Remember of a list what is worth it, now that its rows say what the span has changed."""
        self._lengths[key] = changed.length
        whole = self._whole.get(key)
        if whole is None and changed.kept:
            self._size -= len(changed.added)
        elif changed.length > WHOLE_ROWS_MAX:
            self._whole.pop(key, None)
            self._size -= changed.length
        elif whole is None:
            self._whole[key] = changed.added


def _unbroken(rows: Iterable[tuple[bytes, bytes]], at: int) -> Iterator[bytes]:
    """What these rows of a list hold, up to the first number that is missing: there the list ends.

    With transactions none is ever missing. Without them, rows of a former owner may lie among those of the next one.
    """
    for number, (row_key, data) in enumerate(rows):
        if int.from_bytes(row_key[at:], "big") != number:
            return
        yield data
