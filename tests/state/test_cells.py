import datetime as dt
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pytest

from streamkit.errors import EncodeError
from streamkit.model.keys import GroupPrefixes
from streamkit.state.cells import Touched
from streamkit.state.keys import map_key_prefix, store_id
from streamkit.state.map_cells import MapCells
from streamkit.state.spec import StoreSpec
from streamkit.state.value_cells import ValueCells
from streamkit.state.values import ValueFormat

PREFIXES = GroupPrefixes()
COUNTS = StoreSpec("counts", "value", int)
ID = store_id("counts")


class DictRows:
    """Rows in a dict, counting how often they are asked."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes | None] = {}
        self.asked = 0

    def find(self, key: bytes) -> bytes | None:
        self.asked += 1
        return self.rows.get(key)

    def find_all(
        self, prefix: bytes, start: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        self.asked += 1
        found = [(key, row) for key, row in self.rows.items() if row is not None and key.startswith(prefix)]
        first, last = prefix + start, None if end is None else prefix + end
        return iter(sorted(row for row in found if row[0] >= first and (last is None or row[0] < last)))


@pytest.fixture
def rows() -> DictRows:
    return DictRows()


@pytest.fixture
def counts(rows: DictRows) -> ValueCells:
    return ValueCells(COUNTS, ID, PREFIXES, rows)


def map_cells(rows: DictRows, map_key_type: Any = str, value_type: Any = int) -> MapCells:
    return MapCells(StoreSpec("counts", "map", value_type, map_key_type), ID, PREFIXES, rows)


def freeze(cells: MapCells, rows: DictRows) -> Touched:
    touched: Touched = {}
    cells.freeze(rows.rows, touched)
    return touched


def state_key(key: bytes) -> bytes:
    return PREFIXES[key] + ID + key


class Profile(msgspec.Struct):
    age: int = 0


class Restless(msgspec.Struct):
    age: int = 0

    def __post_init__(self) -> None:
        if self.age < 0:
            sys.exit("no such age")


class Frozen(msgspec.Struct, frozen=True):
    age: int


def restless(age: int) -> Restless:
    made = Restless()
    made.age = age
    return made


# Of each a type, and a value of its class that would not be read back.
WRONG_INSIDE = [
    (Profile, Profile("old")),  # type: ignore[arg-type]
    (Profile | None, Profile("old")),  # type: ignore[arg-type]
    (Restless, restless(-1)),
    (list[int], ["one"]),
    (dict[str, int], {"x": "one"}),
    (set[int], {"one"}),
    (dict, {Frozen(1): 2}),
    (set, {Frozen(1)}),
    (Any, [{Frozen(1): 2}]),
    (int | str, 1.5),
    (dt.date, "yesterday"),
    (Annotated[int, msgspec.Meta(ge=0)], -1),
    (int, 1.5),
]


# One value per key.


@pytest.mark.parametrize(("value_type", "wrong"), WRONG_INSIDE)
def test_a_value_that_would_not_be_read_back_is_not_frozen(
    rows: DictRows, value_type: Any, wrong: Any
) -> None:
    cells = ValueCells(StoreSpec("counts", "value", value_type), ID, PREFIXES, rows)
    cells.put(b"a", wrong)
    with pytest.raises(EncodeError, match='store "counts" is not of the declared type') as caught:
        cells.freeze({}, {})
    assert caught.value.where == "key b'a'"
    maps = map_cells(rows, value_type=value_type)
    maps.put(b"a", "x", wrong)
    with pytest.raises(EncodeError, match='store "counts" is not of the declared type') as caught:
        maps.freeze({}, {})
    assert caught.value.where == "key b'a'"


def test_a_changed_value_is_frozen_once_under_its_state_key(counts: ValueCells, rows: DictRows) -> None:
    counts.put(b"b", 1)
    counts.put(b"a", 2)
    counts.put(b"b", 3)
    frozen: dict[bytes, bytes | None] = {}
    counts.freeze(frozen, {})
    assert list(frozen.items()) == [(state_key(b"b"), b"\x01\x03"), (state_key(b"a"), b"\x01\x02")]
    again: dict[bytes, bytes | None] = {}
    counts.freeze(again, {})
    assert again == {}
    assert counts.get(b"b") == 3
    assert rows.asked == 0


def test_a_loaded_value_is_cached_and_an_absent_one_is_not(counts: ValueCells, rows: DictRows) -> None:
    rows.rows[state_key(b"a")] = ValueFormat(COUNTS).encode(7)
    assert [counts.get(b"a"), counts.get(b"a"), rows.asked] == [7, 7, 1]
    assert [counts.get(b"b"), counts.get(b"b"), rows.asked] == [None, None, 3]
    assert b"b" not in counts.cache


def test_the_way_of_an_operator(counts: ValueCells, rows: DictRows) -> None:
    rows.rows[state_key(b"a")] = b"\x01\x07"
    cache, dirty, load = counts.cache, counts.dirty, counts.load
    for key in (b"a", b"b", b"a", b""):
        known = cache.get(key)
        if known is None:
            known = load(key)
        cache[key] = 1 if known is None else known + 1
        dirty[key] = None
    frozen: dict[bytes, bytes | None] = {}
    counts.freeze(frozen, {})
    assert frozen == {state_key(b"a"): b"\x01\x09", state_key(b"b"): b"\x01\x01", state_key(b""): b"\x01\x01"}
    counts.evict()
    counts.forget()
    assert counts.cache is cache
    assert counts.dirty is dirty


@pytest.mark.parametrize("is_put", [True, False])
def test_a_deleted_key_has_no_value_whatever_lies_below(
    counts: ValueCells, rows: DictRows, is_put: bool
) -> None:
    rows.rows[state_key(b"a")] = b"\x01\x07"
    assert counts.get(b"a") == 7
    if is_put:
        counts.put(b"a", None)
    else:
        counts.delete(b"a")
    assert counts.get(b"a") is None
    assert counts.load(b"a") is None
    counts.evict()
    assert counts.load(b"a") is None
    counts.freeze(rows.rows, {})
    assert rows.rows[state_key(b"a")] is None
    assert counts.get(b"a") is None
    counts.put(b"a", 1)
    assert counts.get(b"a") == 1


def test_a_falsy_value_is_a_value(rows: DictRows) -> None:
    cells = ValueCells(StoreSpec("counts", "value", str | bool | int), ID, PREFIXES, rows)
    for key, value in ((b"a", 0), (b"b", ""), (b"c", False)):
        cells.put(key, value)
    cells.freeze(rows.rows, {})
    cells.evict()
    assert [cells.get(key) for key in (b"a", b"b")] == [0, ""]


def test_eviction_keeps_what_only_the_cache_knows(counts: ValueCells, rows: DictRows) -> None:
    counts.put(b"old", 1)
    counts.freeze(rows.rows, {})
    counts.put(b"new", 2)
    counts.evict()
    assert counts.cache == {b"new": 2}
    assert counts.get(b"old") == 1


def test_a_value_that_cannot_be_written_stops_the_span(counts: ValueCells, rows: DictRows) -> None:
    counts.put(b"a", 1)
    counts.put(b"b", object())
    with pytest.raises(EncodeError, match='store "counts"'):
        counts.freeze({}, {})
    counts.forget()
    assert counts.get(b"b") is None
    assert not counts.is_dirty()


# One map per key.


def test_entries_are_frozen_as_rows_of_their_own(rows: DictRows) -> None:
    cells = map_cells(rows)
    cells.put(b"k", "b", 1)
    cells.put(b"k", "a", 2)
    cells.put(b"l", "a", 3)
    cells.remove(b"k", "b")
    touched = freeze(cells, rows)
    one, other = (map_key_prefix(PREFIXES[key], ID, key) for key in (b"k", b"l"))
    assert rows.rows == {one + b"b": None, one + b"a": b"\x01\x02", other + b"a": b"\x01\x03"}
    assert touched == {one: {b"b": None, b"a": None}, other: {b"a": None}}
    assert not cells.is_dirty()


def test_items_join_what_is_stored_and_what_is_new(rows: DictRows) -> None:
    cells = map_cells(rows)
    for map_key, value in (("a", 1), ("b", 2), ("c", 3), ("d", 4)):
        cells.put(b"k", map_key, value)
    freeze(cells, rows)
    cells.forget()
    cells.put(b"k", "b", 20)
    cells.remove(b"k", "c")
    cells.put(b"k", "aa", 0)
    cells.remove(b"k", "never")
    assert list(cells.items(b"k")) == [("a", 1), ("aa", 0), ("b", 20), ("d", 4)]
    assert list(cells.items(b"other")) == []


def test_a_whole_map_is_read_once(rows: DictRows) -> None:
    cells = map_cells(rows)
    cells.put(b"k", "a", 1)
    freeze(cells, rows)
    cells.forget()
    for _ in range(3):
        assert list(cells.items(b"k")) == [("a", 1)]
        assert cells.get(b"k", "b") is None
        assert cells.get(b"k", "c") is None
    assert rows.asked == 1
    cells.remove(b"k", "a")
    freeze(cells, rows)
    assert (list(cells.items(b"k")), cells.get(b"k", "a"), rows.asked) == ([], None, 1)


def test_a_removed_entry_is_absent_whatever_lies_below(rows: DictRows) -> None:
    cells = map_cells(rows)
    cells.put(b"k", "a", 1)
    freeze(cells, rows)
    cells.forget()
    cells.remove(b"k", "a")
    assert cells.get(b"k", "a") is None
    cells.evict()
    assert cells.get(b"k", "a") is None
    assert list(cells.items(b"k")) == []


def test_clear_writes_a_tombstone_for_every_entry(rows: DictRows) -> None:
    cells = map_cells(rows)
    for map_key in "abc":
        cells.put(b"k", map_key, 1)
    freeze(cells, rows)
    cells.forget()
    cells.put(b"k", "d", 1)
    cells.clear(b"k")
    assert list(cells.items(b"k")) == []
    cells.put(b"k", "b", 2)
    freeze(cells, rows)
    cells.forget()
    assert list(cells.items(b"k")) == [("b", 2)]
    assert sum(row is None for row in rows.rows.values()) == 3


def test_eviction_of_maps_keeps_what_only_the_cache_knows(rows: DictRows) -> None:
    cells = map_cells(rows)
    for map_key in "abc":
        cells.put(b"k", map_key, 1)
    freeze(cells, rows)
    cells.put(b"k", "b", 2)
    assert cells._size == 3
    cells.evict()
    assert cells._size == 1
    assert list(cells.items(b"k")) == [("a", 1), ("b", 2), ("c", 1)]


@pytest.mark.parametrize(
    ("map_key_type", "in_order"),
    [
        (str, ["", "a", "aa", "b", "é"]),
        (int, [-(2**63), -256, -1, 0, 1, 255, 256, 2**63 - 1]),
        (bytes, [b"", b"\x00", b"a", b"\xff"]),
    ],
)
def test_plain_map_keys_sort_as_they_should(rows: DictRows, map_key_type: Any, in_order: list[Any]) -> None:
    cells = map_cells(rows, map_key_type)
    for map_key in reversed(in_order):
        cells.put(b"k", map_key, 1)
    freeze(cells, rows)
    cells.forget()
    assert [map_key for map_key, _ in cells.items(b"k")] == in_order


@pytest.mark.parametrize(
    ("map_key_type", "map_key"),
    [(tuple[int, str], (1, "a")), (float, 1.5), (bool, True), (Any, "a"), (None, 7)],
)
def test_other_map_keys_are_read_as_they_were_written(
    rows: DictRows, map_key_type: Any, map_key: Any
) -> None:
    cells = map_cells(rows, map_key_type)
    cells.put(b"k", map_key, 1)
    freeze(cells, rows)
    cells.forget()
    assert cells.get(b"k", map_key) == 1
    assert list(cells.items(b"k")) == [(map_key, 1)]


@pytest.mark.parametrize(
    ("map_key_type", "map_key"),
    [(str, 1), (str, "\ud800"), (int, "a"), (int, 2**63), (bytes, "a"), (Any, object())],
)
def test_a_map_key_of_another_type_is_refused(rows: DictRows, map_key_type: Any, map_key: Any) -> None:
    cells = map_cells(rows, map_key_type)
    for use in (cells.get, cells.remove):
        with pytest.raises(EncodeError, match="map key of type") as caught:
            use(b"k", map_key)
        assert caught.value.hint
    assert not cells.is_dirty()


def test_an_entry_that_cannot_be_written_stops_the_span(rows: DictRows) -> None:
    cells = map_cells(rows)
    cells.put(b"k", "a", object())
    with pytest.raises(EncodeError, match='store "counts"'):
        freeze(cells, rows)


def test_a_map_that_became_empty_takes_no_room(rows: DictRows) -> None:
    cells = map_cells(rows)
    for number in range(50):
        cells.put(b"%d" % number, "open", 1)
        cells.freeze({}, {})
        cells.remove(b"%d" % number, "open")
        cells.freeze({}, {})
    assert cells._size == 0
    assert len(cells._cache) == 0
