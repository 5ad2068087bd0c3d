"""Walks over maps: lazy, by ranges and prefixes, and untouched by what happens meanwhile."""

from collections.abc import Iterator

import pytest

from streamkit.errors import EncodeError, UserCodeError
from streamkit.state.cells import WHOLE_ROWS_MAX
from streamkit.state.map_cells import MapCells
from tests.state.test_cells import DictRows, freeze, map_cells


@pytest.fixture
def rows() -> DictRows:
    return DictRows()


class CountedRows(DictRows):
    """Counts the rows that were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def find_all(
        self, prefix: bytes, start: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        for row in super().find_all(prefix, start, end):
            self.read += 1
            yield row


@pytest.fixture
def large() -> tuple[MapCells, CountedRows]:
    """A map of 10,000 committed entries, nothing of it cached."""
    rows = CountedRows()
    cells = map_cells(rows, int)
    for number in range(10_000):
        cells.put(b"k", number, number)
    freeze(cells, rows)
    cells.evict()
    return cells, rows


def test_a_large_map_is_read_as_far_as_it_is_walked_and_not_kept(large: tuple[MapCells, CountedRows]) -> None:
    cells, rows = large
    walk = cells.items(b"k")
    assert [next(walk) for _ in range(3)] == [(0, 0), (1, 1), (2, 2)]
    assert rows.read <= WHOLE_ROWS_MAX + 2
    assert list(walk)[-1] == (9_999, 9_999)
    assert cells._size <= WHOLE_ROWS_MAX


def test_a_range_is_read_from_its_start_to_its_end(large: tuple[MapCells, CountedRows]) -> None:
    cells, rows = large
    cells.put(b"k", 5_001, None)
    cells.put(b"k", 5_002, 0)
    walk = list(cells.items(b"k", cells.key_range(5_000, 5_004, None)))
    assert walk == [(5_000, 5_000), (5_002, 0), (5_003, 5_003)]
    assert rows.read == 4


def test_a_walk_shows_what_was_there_when_it_began(large: tuple[MapCells, CountedRows]) -> None:
    cells, _ = large
    cells.put(b"k", -1, 7)
    walk = cells.items(b"k")
    cells.put(b"k", -1, 8)
    cells.put(b"k", 9_999, None)
    cells.put(b"k", 10_000, 1)
    seen = list(walk)
    assert (seen[0], seen[-1], len(seen)) == ((-1, 7), (9_999, 9_999), 10_001)
    assert cells.get(b"k", 9_999) is None
    assert list(cells.items(b"k"))[-1] == (10_000, 1)


def test_a_walk_that_ends_after_its_span_leaves_no_old_value_behind(
    large: tuple[MapCells, CountedRows],
) -> None:
    cells, rows = large
    walk = cells.items(b"k")
    next(walk)
    cells.remove(b"k", 500)
    cells.remove(b"k", 5_000)
    freeze(cells, rows)
    assert len(list(walk)) == 9_999
    assert (cells.get(b"k", 500), cells.get(b"k", 5_000)) == (None, None)
    assert len(list(cells.items(b"k"))) == 9_998


@pytest.mark.parametrize(
    ("start", "end", "prefix", "found"),
    [
        ("b", None, None, ["b", "ba", "bb", "c"]),
        (None, "ba", None, ["a", "b"]),
        ("ba", "bb", None, ["ba"]),
        (None, None, "b", ["b", "ba", "bb"]),
        ("ba", "c", "b", ["ba", "bb"]),
        (None, None, "", ["a", "b", "ba", "bb", "c"]),
        ("c", "a", None, []),
        (None, None, "\U0010ffff", []),
    ],
)
def test_ranges_and_prefixes_of_text(
    rows: DictRows, start: str | None, end: str | None, prefix: str | None, found: list[str]
) -> None:
    cells = map_cells(rows)
    for number, map_key in enumerate(["ba", "c", "a", "bb", "b"]):
        cells.put(b"k", map_key, number)
        if number == 2:
            freeze(cells, rows)
            cells.evict()
    within = cells.key_range(start, end, prefix)
    assert [map_key for map_key, _ in cells.items(b"k", within)] == found


def test_a_prefix_of_bytes_that_nothing_follows(rows: DictRows) -> None:
    cells = map_cells(rows, bytes)
    for map_key in (b"\xff\xff", b"\xfe", b"\xff"):
        cells.put(b"k", map_key, 1)
    found = [map_key for map_key, _ in cells.items(b"k", cells.key_range(None, None, b"\xff"))]
    assert found == [b"\xff", b"\xff\xff"]


def test_keys_without_an_order_have_no_ranges(rows: DictRows) -> None:
    with pytest.raises(UserCodeError, match="cannot be walked by a range"):
        map_cells(rows, tuple[int, int]).key_range((1, 2), None, None)
    with pytest.raises(UserCodeError, match="cannot be walked by a prefix"):
        map_cells(rows, int).key_range(None, None, 1)
    with pytest.raises(EncodeError):
        map_cells(rows, int).key_range("a", None, None)


def test_a_walk_over_a_map_that_is_not_there_takes_no_room(rows: DictRows) -> None:
    cells = map_cells(rows)
    assert list(cells.items(b"k", cells.key_range("a", None, None))) == []
    assert cells._size == 0
