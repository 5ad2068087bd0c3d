from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from streamkit.errors import Bug, SnapshotDamaged, StateCorrupt
from streamkit.model.ids import TaskId
from streamkit.model.keys import GroupPrefixes
from streamkit.snapshots.export import WRITERS_MAX, export_rows
from streamkit.snapshots.manifest import Role, RowsFile
from streamkit.snapshots.memory import MemorySnapshots
from streamkit.snapshots.rows_file import Shelf, digest_of, fetch
from streamkit.state.keys import StateKeys, store_id
from streamkit.state.memory import MemoryStores
from streamkit.state.rocks import RocksStores
from streamkit.state.row_groups import EVERY_GROUP, GroupRange, place_of
from streamkit.state.store import StateStore
from tests.snapshots.making import SPECS, STORES, export_stage, new_tasks, rows_of, shelf_in, work_folder

MIB = 1024 * 1024
TASK = TaskId("totals", 0)
KEYS = [b"user-%d" % number for number in range(300)]


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    with work_folder() as folder:
        yield shelf_in(MemorySnapshots(), folder)


def store_with(rows: dict[bytes, bytes | None]) -> StateStore:
    store = MemoryStores().open("t-0")
    store.apply(rows, 1)
    return store


def export(shelf: Shelf, store: StateStore, file_bytes: int = MIB) -> tuple[RowsFile, ...]:
    return export_rows(store, dict.fromkeys(STORES, EVERY_GROUP), TASK, shelf, file_bytes=file_bytes)


def test_equal_rows_make_equal_files_whichever_store_they_are_in(shelf: Shelf, tmp_path: Path) -> None:
    memory = new_tasks(MemoryStores(), KEYS, 3)
    rocks = new_tasks(RocksStores(tmp_path / "state", 8 * MIB, 8 * MIB), list(reversed(KEYS)), 3)
    files = []
    for tasks in (memory, rocks):
        parts = export_stage(shelf, tasks, file_bytes=2000).parts
        files.append(
            [(file.role, file.groups, file.rows, file.rows_sha256) for part in parts for file in part.files]
        )
    assert files[0] == files[1]
    assert len(files[0]) > 20
    for each in rocks:
        each.close()


def test_every_file_has_the_rows_of_its_groups_in_the_order_of_the_store(shelf: Shelf) -> None:
    (task,) = new_tasks(MemoryStores(), KEYS, 1)
    found: dict[bytes, bytes] = {}
    for file in export(shelf, task, 2000):
        rows = list(fetch(shelf, file).rows(EVERY_GROUP))
        places = [place for key, _ in rows if (place := place_of(key)) is not None]
        assert [key for key, _ in rows] == sorted(key for key, _ in rows)
        assert (min(places).group, max(place.group for place in places)) == file.groups
        assert {place.is_timer for place in places} == {file.role is Role.TIMERS}
        assert (len(rows), digest_of(rows)) == (file.rows, file.rows_sha256)
        found |= rows
    assert found == rows_of([task])


@pytest.mark.parametrize("role", Role)
def test_files_end_where_a_group_ends(shelf: Shelf, role: Role) -> None:
    (task,) = new_tasks(MemoryStores(), KEYS, 1)
    files = [file for file in export(shelf, task, 2000) if file.role is role]
    assert len(files) > 5
    assert all(earlier.groups.last < later.groups.first for earlier, later in pairwise(files))


def value_rows(count: int, key: bytes) -> dict[bytes, bytes | None]:
    keys = StateKeys(GroupPrefixes(), store_id(SPECS["map"].name))
    return {keys[key] + b"%08d" % number: b"x" * 92 for number in range(count)}


def test_a_group_that_is_too_large_for_a_file_has_several(shelf: Shelf) -> None:
    rows = value_rows(1000, b"hot") | value_rows(1, b"cold") | value_rows(1, b"warm")
    files = export(shelf, store_with(rows), 10_000)
    assert all(file.rows <= 200 for file in files)
    hot = [file.groups for file in files if file.groups.first == file.groups.last]
    assert len(hot) >= 4
    taken = [row for file in files for row in fetch(shelf, file).rows(EVERY_GROUP)]
    assert taken == sorted((key, value or b"") for key, value in rows.items())


def test_timers_of_a_group_that_is_too_large_for_a_file_have_several(shelf: Shelf) -> None:
    timers = {
        b"\xfe" + store_id(SPECS["event_timers"].name) + time.to_bytes(8, "big") + b"\x00\x07\x01k": b"\x01"
        for time in range(1000)
    }
    files = export(shelf, store_with(dict(timers)), 1000)
    assert {file.groups for file in files} == {GroupRange(7, 7)}
    assert len(files) > 5
    assert {key for file in files for key, _ in fetch(shelf, file).rows(EVERY_GROUP)} == timers.keys()


def test_timers_may_need_more_files_than_are_written_at_once(shelf: Shelf) -> None:
    (task,) = new_tasks(MemoryStores(), KEYS, 1)
    files = [file for file in export(shelf, task, 1) if file.role is Role.TIMERS]
    assert len(files) > WRITERS_MAX
    assert sum(file.rows for file in files) == 2 * len(KEYS)
    assert all(earlier.groups.last <= later.groups.first for earlier, later in pairwise(files))


def test_stores_that_the_stage_has_no_more_are_left_behind(shelf: Shelf) -> None:
    (task,) = new_tasks(MemoryStores(), KEYS, 1)
    kept = frozenset([SPECS["value"].name, SPECS["event_timers"].name])
    files = export_rows(task, dict.fromkeys(kept, EVERY_GROUP), TASK, shelf)
    assert [(file.role, file.rows) for file in files] == [(Role.VALUES, 300), (Role.TIMERS, 300)]
    assert export_rows(task, {}, TASK, shelf) == ()


@pytest.mark.parametrize("kind", ["value", "event_timers"])
@pytest.mark.parametrize("shift", [-1, 1])
def test_a_row_of_another_tasks_group_is_a_bug(shelf: Shelf, kind: str, shift: int) -> None:
    (task,) = new_tasks(MemoryStores(), [b"ann"], 1)
    (file, *_) = export(shelf, task)
    group = file.groups.first + shift
    with pytest.raises(Bug, match=f"totals/0 has state of group {file.groups.first}"):
        export_rows(task, {SPECS[kind].name: GroupRange(group, group)}, TASK, shelf)


def test_timers_are_never_taken_for_values(shelf: Shelf) -> None:
    """Where a value has its store, a timer has the end of its own store's id and the beginning of its time."""
    timers = SPECS["event_timers"].name
    looks_like = store_id(timers)[1:] + b"\x80"
    values = next(name for number in range(10**7) if store_id(name := f"s{number}") == looks_like)
    (task,) = new_tasks(MemoryStores(), [b"ann, who has a long name"], 1)
    files = export_rows(task, dict.fromkeys([timers, values], EVERY_GROUP), TASK, shelf)
    assert [(file.role, file.rows) for file in files] == [(Role.TIMERS, 1)]


@pytest.mark.parametrize("kinds", [("value", "window"), ("event_timers", "processing_timers")])
@pytest.mark.parametrize("wrong", [0, 1])
def test_every_store_is_asked_whether_the_group_is_its_tasks(
    shelf: Shelf, kinds: tuple[str, str], wrong: int
) -> None:
    (task,) = new_tasks(MemoryStores(), [b"ann"], 1)
    owned = {SPECS[kind].name: EVERY_GROUP for kind in kinds}
    assert sum(file.rows for file in export_rows(task, owned, TASK, shelf)) >= 2
    owned[SPECS[kinds[wrong]].name] = GroupRange(0, 0)
    with pytest.raises(Bug, match="totals/0 has state of group"):
        export_rows(task, owned, TASK, shelf)


def odd_value(store: bytes) -> bytes:
    return b"\x04\x00" + store + b"key"


def odd_timer(store: bytes) -> bytes:
    return b"\xfe" + store + bytes(8) + b"\x04\x00\x01k"


@pytest.mark.parametrize("odd", [odd_value, odd_timer])
def test_a_row_that_no_kind_of_state_writes_is_told(shelf: Shelf, odd: Callable[[bytes], bytes]) -> None:
    kind = "value" if odd is odd_value else "event_timers"
    with pytest.raises(StateCorrupt, match="no kind of state writes"):
        export(shelf, store_with({odd(store_id(SPECS[kind].name)): b"x"}))


def test_values_are_never_taken_for_timers(shelf: Shelf) -> None:
    """Not even those that have a group where timers have theirs."""
    (task,) = new_tasks(MemoryStores(), [bytes(30)], 1)
    (file, *_) = export(shelf, task)
    wrong = msgspec.structs.replace(file, role=Role.TIMERS, groups=EVERY_GROUP)
    with pytest.raises(SnapshotDamaged, match="timers") as caught:
        fetch(shelf, wrong)
    assert "does not belong there" in caught.value.detail


def test_an_export_leaves_nothing_in_its_folder(shelf: Shelf) -> None:
    export(shelf, new_tasks(MemoryStores(), KEYS, 1)[0], 2000)
    assert list(shelf.scratch.iterdir()) == []


def test_two_exports_of_one_task_do_not_touch_each_others_files(shelf: Shelf) -> None:
    """A former owner that is slow may still write its part after the next one has told of its own."""
    (task,) = new_tasks(MemoryStores(), KEYS, 1)
    first = export(shelf, task)
    second = export(shelf, task)
    for file in (*first, *second):
        fetch(shelf, file).discard()
    assert [each.rows_sha256 for each in first] == [each.rows_sha256 for each in second]
