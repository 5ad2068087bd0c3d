"""Lists: one row per element, numbered without a gap, on both stores."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import EncodeError
from streamkit.model.keys import GroupPrefixes
from streamkit.state.cells import WHOLE_ROWS_MAX, Touched
from streamkit.state.keys import map_key_prefix, store_id
from streamkit.state.list_cells import ListCells
from streamkit.state.memory import MemoryStores
from streamkit.state.rocks import RocksStores
from streamkit.state.spec import StoreSpec
from streamkit.state.store import StateStores
from streamkit.state.task_state import TaskState
from tests.state.test_cells import DictRows

MIB = 1024 * 1024
EVENTS = StoreSpec("events", "list", int)
PREFIX = map_key_prefix(GroupPrefixes()[b"a"], store_id("events"), b"a")


def list_cells_over(rows: Any, value_type: Any = int) -> ListCells:
    return ListCells(StoreSpec("events", "list", value_type), store_id("events"), GroupPrefixes(), rows)


def freeze(cells: ListCells, rows: DictRows) -> dict[bytes, bytes | None]:
    """The rows of a span, which are committed with it."""
    frozen: dict[bytes, bytes | None] = {}
    touched: Touched = {}
    cells.freeze(frozen, touched)
    assert {prefix + each for prefix, numbers in touched.items() for each in numbers} == frozen.keys()
    rows.rows.update(frozen)
    return frozen


def number(at: int) -> bytes:
    return PREFIX + at.to_bytes(8, "big")


# Rows.


def test_an_element_is_a_row_under_its_number() -> None:
    rows = DictRows()
    cells = list_cells_over(rows)
    cells.extend(b"a", [7, 8])
    assert freeze(cells, rows) == {number(0): b"\x01\x07", number(1): b"\x01\x08"}
    cells.add(b"a", 9)
    assert freeze(cells, rows) == {number(2): b"\x01\x09"}
    assert freeze(cells, rows) == {}


def test_a_shorter_list_deletes_what_it_has_no_longer() -> None:
    rows = DictRows()
    cells = list_cells_over(rows)
    cells.extend(b"a", [7, 8, 9])
    freeze(cells, rows)
    cells.replace(b"a", [5])
    assert freeze(cells, rows) == {number(0): b"\x01\x05", number(1): None, number(2): None}
    cells.clear(b"a")
    cells.clear(b"b")
    assert freeze(cells, rows) == {number(0): None}


def test_what_was_added_and_removed_in_one_span_leaves_no_row() -> None:
    rows = DictRows()
    cells = list_cells_over(rows)
    cells.extend(b"a", [7, 8])
    cells.clear(b"a")
    assert freeze(cells, rows) == {}


class Numbered:
    """A long list that was never written: its rows are made up, and counted when they are read."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.asked = 0
        self.walked = 0

    def find(self, key: bytes) -> bytes | None:
        self.asked += 1
        return b"\x01\x07" if int.from_bytes(key[-8:], "big") < self.length else None

    def find_all(
        self, prefix: bytes, start: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        assert (start, end) == (b"", None)
        for at in range(self.length):
            self.walked += 1
            yield prefix + at.to_bytes(8, "big"), b"\x01\x07"


@pytest.mark.parametrize("length", [*range(34), 1_000, 1_023, 1_024, 1_025, 1_000_000])
def test_the_length_is_found_by_a_few_lookups_and_then_known(length: int) -> None:
    rows = Numbered(length)
    cells = list_cells_over(rows)
    assert cells.length(b"a") == length
    assert rows.asked <= 2 * length.bit_length() + 1
    asked = rows.asked
    cells.add(b"a", 1)
    assert cells.length(b"a") == length + 1
    frozen: dict[bytes, bytes | None] = {}
    cells.freeze(frozen, {})
    assert list(frozen) == [number(length)]
    assert (rows.asked, rows.walked) == (asked, 0)


def test_a_long_list_is_read_as_far_as_it_is_walked_and_not_kept() -> None:
    rows = Numbered(100 * WHOLE_ROWS_MAX)
    cells = list_cells_over(rows)
    cells.add(b"a", 8)
    assert list(islice(cells.elements(b"a"), 5)) == [7] * 5
    assert rows.walked <= WHOLE_ROWS_MAX + 2
    assert cells.size_bytes() < 10_000
    assert sum(cells.elements(b"a")) == 7 * rows.length + 8


@pytest.mark.parametrize("length", [3, WHOLE_ROWS_MAX + 10])
def test_a_list_ends_where_a_row_is_missing(length: int) -> None:
    rows = DictRows()
    whole = list_cells_over(rows)
    whole.extend(b"a", range(length + 5))
    freeze(whole, rows)
    del rows.rows[number(length)]  # as a worker without transactions may leave it
    cells = list_cells_over(rows)
    assert list(cells.elements(b"a")) == list(range(length))


def test_what_is_added_to_a_list_with_a_missing_row_comes_where_the_list_ended() -> None:
    rows = DictRows()
    rows.rows.update({number(at): b"\x01\x07" for at in (0, 1, 2, 7, 8, 9)})
    for is_walked_first in (True, False):
        cells = list_cells_over(rows)
        if is_walked_first:
            assert list(cells.elements(b"a")) == [7, 7, 7]
        assert cells.length(b"a") == 3
        cells.add(b"a", 1)
        frozen: dict[bytes, bytes | None] = {}
        cells.freeze(frozen, {})
        assert list(frozen) == [number(3)]


def test_a_short_list_is_read_once() -> None:
    rows = Numbered(WHOLE_ROWS_MAX)
    cells = list_cells_over(rows)
    assert list(cells.elements(b"a")) == [7] * WHOLE_ROWS_MAX
    cells.add(b"a", 8)
    assert list(cells.elements(b"a")) == [7] * WHOLE_ROWS_MAX + [8]
    assert (rows.walked, rows.asked) == (WHOLE_ROWS_MAX, 0)
    cells.freeze({}, {})  # and is a long one from now on
    assert cells.size_bytes() < 10_000


@pytest.mark.parametrize("length", [0, 3, 3 * WHOLE_ROWS_MAX])
@pytest.mark.parametrize("is_cached", [False, True])
def test_a_walk_shows_what_was_there_when_it_began(length: int, *, is_cached: bool) -> None:
    rows = DictRows()
    cells = list_cells_over(rows)
    cells.extend(b"a", range(length))
    freeze(cells, rows)
    if is_cached:
        list(cells.elements(b"a"))
    else:
        cells.evict()
    cells.add(b"a", length)
    walk = cells.elements(b"a")
    first = next(walk)
    cells.add(b"a", -1)
    cells.clear(b"a")
    cells.add(b"a", -2)
    assert [first, *walk] == list(range(length + 1))
    assert list(cells.elements(b"a")) == [-2]


def test_a_list_can_be_made_from_itself() -> None:
    cells = list_cells_over(DictRows())
    cells.extend(b"a", [1, 2])
    cells.extend(b"a", cells.elements(b"a"))
    assert list(cells.elements(b"a")) == [1, 2, 1, 2]
    cells.replace(b"a", (each + 1 for each in cells.elements(b"a") if each > 1))
    assert list(cells.elements(b"a")) == [3, 3]


def test_a_replacement_that_raises_changes_nothing() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise KeyError

    cells = list_cells_over(DictRows())
    cells.add(b"a", 7)
    with pytest.raises(KeyError):
        cells.replace(b"a", failing())
    assert list(cells.elements(b"a")) == [7]


def test_none_is_an_element_like_others() -> None:
    rows = DictRows()
    cells = list_cells_over(rows, int | None)
    cells.extend(b"a", [None, 1, None])
    freeze(cells, rows)
    cells.forget()
    assert (cells.length(b"a"), list(cells.elements(b"a"))) == (3, [None, 1, None])


@pytest.mark.parametrize("wrong", ["seven", 1 << 70, None])
def test_an_element_that_cannot_be_stored_stops_the_span(wrong: Any) -> None:
    cells = list_cells_over(DictRows())
    cells.extend(b"a", [1, wrong])
    with pytest.raises(EncodeError, match='a value of store "events"') as caught:
        cells.freeze({}, {})
    assert caught.value.where == "key b'a'"


# On both stores.


@pytest.fixture(params=["memory", "rocksdb"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> StateStores:
    if request.param == "memory":
        return MemoryStores()
    return RocksStores(tmp_path, 8 * MIB, 8 * MIB)


def commit(state: TaskState) -> dict[bytes, bytes | None]:
    rows = state.freeze()
    state.committed(rows, state.changelog_offset + 1)
    return rows


def test_a_list_survives_a_restart_and_goes_on(stores: StateStores) -> None:
    state = TaskState(stores.open("t-0"), [EVENTS])
    for each in range(3 * WHOLE_ROWS_MAX):
        state.cells(EVENTS).add(b"a", each)
        if each % 500 == 0:
            commit(state)
    commit(state)
    state.close()
    again = TaskState(stores.open("t-0"), [EVENTS])
    events = again.cells(EVENTS)
    events.add(b"a", -1)
    assert len(commit(again)) == 1
    assert list(events.elements(b"a")) == [*range(3 * WHOLE_ROWS_MAX), -1]
    assert (events.length(b""), events.length(b"aa")) == (0, 0)
    events.clear(b"a")
    commit(again)
    again.close()
    empty = TaskState(stores.open("t-0"), [EVENTS])
    assert list(empty.cells(EVENTS).elements(b"a")) == []
    assert list(empty.committed_rows.scan(b"")) == []
    empty.close()


def test_a_list_is_restored_from_its_changelog(stores: StateStores) -> None:
    state = TaskState(stores.open("t-0"), [EVENTS])
    changelog = []
    for each in range(20):
        state.cells(EVENTS).add(b"a", each)
        if each == 9:
            state.cells(EVENTS).replace(b"a", [-1])
        changelog.append(commit(state))
    state.close()
    other = TaskState(stores.open("t-1"), [EVENTS])
    for offset, rows in enumerate(changelog, 1):
        other.restore(rows, offset)
    assert list(other.cells(EVENTS).elements(b"a")) == [-1, *range(10, 20)]
    other.close()


def test_the_list_of_one_key_is_not_that_of_another(stores: StateStores) -> None:
    """Keys that begin with each other, and one that is the beginning of a row of another."""
    state = TaskState(stores.open("t-0"), [EVENTS])
    keys = [b"", b"a", b"ab", b"\x01a", b"a" + bytes(8)]
    for turn in range(3):
        for at, key in enumerate(keys):
            state.cells(EVENTS).add(key, 10 * turn + at)
        commit(state)
        state.cells(EVENTS).evict()
        state.write_pending()
    assert [list(state.cells(EVENTS).elements(key)) for key in keys] == [
        [at, 10 + at, 20 + at] for at in range(len(keys))
    ]
    state.close()
