from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.errors import Bug, InvalidPipeline, Misconfigured, SnapshotDamaged
from streamkit.model.keys import kafka_partition, shuffle_partition
from streamkit.snapshots.manifest import Manifest, Role, StoreShare
from streamkit.snapshots.manifest_file import store_manifest
from streamkit.snapshots.memory import MemorySnapshots
from streamkit.snapshots.rows_file import Shelf
from streamkit.snapshots.seed import ChunkSize, Claim, Cursor, seed_chunks, takings
from streamkit.state.keys import store_id
from streamkit.state.memory import MemoryStores
from streamkit.state.rocks import RocksStores
from streamkit.state.row_groups import groups_of, place_of
from streamkit.state.store import StateStores
from tests.snapshots.making import (
    SPECS,
    STORES,
    export_savepoint,
    export_stage,
    manifest_of,
    new_tasks,
    rows_of,
    shelf_in,
    work_folder,
)

MIB = 1024 * 1024
KEYS = st.lists(st.binary(max_size=12), unique=True, max_size=30)


def claims(tasks: int, stage: str = "totals", stores: frozenset[str] = STORES) -> list[Claim]:
    return [Claim(store=store, origin=stage, tasks=tasks) for store in stores]


@pytest.fixture
def scratch() -> Iterator[Path]:
    with work_folder() as folder:
        yield folder


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
@settings(max_examples=25, deadline=None)
@given(
    keys=KEYS,
    old=st.integers(1, 8),
    new=st.integers(1, 8),
    file_bytes=st.sampled_from([300, 3000, MIB]),
    rows_max=st.integers(1, 50),
)
def test_new_tasks_take_exactly_what_the_old_ones_had_each_its_own_groups(
    kind: str, keys: list[bytes], old: int, new: int, file_bytes: int, rows_max: int
) -> None:
    with work_folder() as home:
        stores: StateStores = (
            MemoryStores() if kind == "memory" else RocksStores(home / "state", 8 * MIB, 8 * MIB)
        )
        tasks = new_tasks(stores, keys, old)
        shelf = shelf_in(MemorySnapshots(), home / "scratch")
        manifest = export_savepoint(shelf, tasks, file_bytes=file_bytes)
        seeded: dict[bytes, bytes] = {}
        for number in range(new):
            groups = groups_of(number, new)
            for chunk in seed_chunks(manifest, number, claims(new), shelf, at_most=ChunkSize(rows=rows_max)):
                assert len(chunk.rows) <= rows_max
                for key, value in chunk.rows.items():
                    place = place_of(key)
                    assert place is not None
                    assert groups.first <= place.group <= groups.last
                    assert key not in seeded
                    seeded[key] = value
        assert seeded == rows_of(tasks)
        assert list(shelf.scratch.iterdir()) == []
        for each in tasks:
            each.close()


@settings(max_examples=25, deadline=None)
@given(keys=KEYS, new=st.integers(1, 4), rows_max=st.integers(1, 20), file_bytes=st.sampled_from([300, MIB]))
def test_whoever_goes_on_at_any_cursor_takes_the_same(
    keys: list[bytes], new: int, rows_max: int, file_bytes: int
) -> None:
    with work_folder() as folder:
        tasks = new_tasks(MemoryStores(), keys, 3)
        shelf = shelf_in(MemorySnapshots(), folder)
        manifest = export_savepoint(shelf, tasks, file_bytes=file_bytes)
        mine = claims(new)
        chunks = list(seed_chunks(manifest, 0, mine, shelf, at_most=ChunkSize(rows=rows_max)))
        assert [chunk.cursor is None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        for at, chunk in enumerate(chunks[:-1]):
            assert chunk.cursor is not None
            cursor = Cursor.decode(chunk.cursor.encode())
            again = list(seed_chunks(manifest, 0, mine, shelf, cursor, at_most=ChunkSize(rows=rows_max)))
            assert again == chunks[at + 1 :]


def test_a_chunk_is_bounded_by_its_bytes_too(scratch: Path) -> None:
    shelf = shelf_in(MemorySnapshots(), scratch)
    manifest = export_savepoint(shelf, new_tasks(MemoryStores(), [b"%d" % each for each in range(50)], 1))
    sizes = [
        [len(key) + len(value) for key, value in chunk.rows.items()]
        for chunk in seed_chunks(manifest, 0, claims(1), shelf, at_most=ChunkSize(bytes=300))
    ]
    assert len(sizes) > 10
    assert all(sum(each[:-1]) < 300 for each in sizes)


def test_a_task_without_state_gets_one_empty_chunk(scratch: Path) -> None:
    shelf = shelf_in(MemorySnapshots(), scratch)
    manifest = export_savepoint(shelf, new_tasks(MemoryStores(), [], 2))
    assert list(seed_chunks(manifest, 0, claims(1), shelf)) == [({}, None)]
    assert list(seed_chunks(manifest, 0, [], shelf)) == [({}, None)]


def test_a_task_takes_only_the_stores_that_its_stage_has(scratch: Path) -> None:
    shelf = shelf_in(MemorySnapshots(), scratch)
    tasks = new_tasks(MemoryStores(), [b"ann", b"bob", b"carl"], 2)
    manifest = export_savepoint(shelf, tasks)
    taken = []
    for name in STORES:
        mine = claims(1, stores=frozenset([name]))
        taken.append({key for chunk in seed_chunks(manifest, 0, mine, shelf) for key in chunk.rows})
    assert sum(map(len, taken)) == len(set().union(*taken)) == len(rows_of(tasks))


def test_state_that_lies_by_source_goes_to_the_same_partition(scratch: Path) -> None:
    shelf = shelf_in(MemorySnapshots(), scratch)
    tasks = new_tasks(MemoryStores(), [b"%d" % each for each in range(30)], 3, kafka_partition)
    stage = export_stage(shelf, tasks, placement="source")
    manifest = store_manifest(shelf.store, shelf.folder, manifest_of({"totals": stage}))
    for number, task in enumerate(tasks):
        (chunk,) = seed_chunks(manifest, number, claims(3), shelf)
        assert chunk.rows == rows_of([task])
    assert list(seed_chunks(manifest, 3, claims(3), shelf)) == [({}, None)]
    with pytest.raises(Bug, match="lies by the 3 partitions"):
        takings(manifest, 0, claims(4))


def test_each_store_of_a_stage_goes_by_its_own_count(scratch: Path) -> None:
    """A stage may have state behind shuffles of different counts, and of a topic."""
    shelf = shelf_in(MemorySnapshots(), scratch)
    keys = [b"%d" % each for each in range(60)]
    few, many, source = (SPECS[kind].name for kind in ("value", "map", "event_timers"))
    shares = {
        few: StoreShare(placement="groups", tasks=2),
        many: StoreShare(placement="groups", tasks=3),
        source: StoreShare(placement="source", tasks=3),
    }
    tasks = [MemoryStores().open("t-0") for _ in range(3)]
    for name, count, owner in (
        (few, 2, shuffle_partition),
        (many, 3, shuffle_partition),
        (source, 3, kafka_partition),
    ):
        for task, whole in zip(tasks, new_tasks(MemoryStores(), keys, count, owner), strict=False):
            task.apply({key: value for key, value in rows_of([whole]).items() if store_of(key) == name}, 1)
    stage = export_stage(shelf, tasks, shares=shares, file_bytes=1000)
    manifest = store_manifest(shelf.store, shelf.folder, manifest_of({"totals": stage}))
    counts = {few: 4, many: 1, source: 3}
    mine = [Claim(store=store, origin="totals", tasks=count) for store, count in counts.items()]
    seeded: dict[bytes, bytes] = {}
    for number in range(5):
        (chunk,) = seed_chunks(manifest, number, mine, shelf)
        for key in chunk.rows:
            place = place_of(key)
            assert place is not None
            if store_of(key) == source:
                assert key in rows_of([tasks[number]])
            else:
                assert place.group * counts[store_of(key)] // 1024 == number
        assert not seeded.keys() & chunk.rows.keys()
        seeded |= chunk.rows
    assert seeded == rows_of(tasks)


def store_of(key: bytes) -> str:
    place = place_of(key)
    assert place is not None
    return next(name for name in STORES if store_id(name) == place.store)


def test_a_store_may_come_from_another_stage(scratch: Path) -> None:
    shelf = shelf_in(MemorySnapshots(), scratch)
    one, other = (
        new_tasks(MemoryStores(), [b"%s%d" % (word, each) for each in range(30)], 2) for word in (b"a", b"b")
    )
    stages = {"totals": export_stage(shelf, one), "audit": export_stage(shelf, other, stage="audit")}
    manifest = store_manifest(shelf.store, shelf.folder, manifest_of(stages))
    values = frozenset([SPECS["value"].name])
    mine = claims(1, "totals", STORES - values) + claims(1, "audit", values)
    (chunk,) = seed_chunks(manifest, 0, mine, shelf)
    assert len(chunk.rows) == len(rows_of(one)) - 30 + 30
    assert takings(manifest, 0, mine) == takings(manifest, 0, mine[::-1])


def test_claims_that_make_no_sense_are_bugs(scratch: Path) -> None:
    shelf = shelf_in(MemorySnapshots(), scratch)
    manifest = export_savepoint(shelf, new_tasks(MemoryStores(), [b"ann"], 1))
    with pytest.raises(InvalidPipeline, match="two stores"):
        takings(manifest, 0, claims(1) * 2)
    for wrong in (claims(1, "audit"), claims(1, stores=frozenset(["other"]))):
        with pytest.raises(Bug, match="does not have"):
            takings(manifest, 0, wrong)


def test_a_cursor_of_something_else_is_refused(scratch: Path) -> None:
    shelf = shelf_in(MemorySnapshots(), scratch)
    manifest = export_savepoint(shelf, new_tasks(MemoryStores(), [b"ann", b"bob"], 1))
    cursor = next(seed_chunks(manifest, 0, claims(1), shelf, at_most=ChunkSize(rows=1))).cursor
    assert cursor is not None
    for wrong in (
        msgspec.structs.replace(cursor, digest="0" * 64),
        msgspec.structs.replace(cursor, path="parts/totals/0/x"),
    ):
        with pytest.raises(Misconfigured, match="seeded in part from another"):
            list(seed_chunks(manifest, 0, claims(1), shelf, wrong))
    for task, tasks in ((1, 1), (0, 2)):
        with pytest.raises(Misconfigured, match="seeded in part from another"):
            list(seed_chunks(manifest, task, claims(tasks), shelf, cursor))
    for data in (b"", b"\xff", b"\x93\x01\x02\x03"):
        with pytest.raises(Misconfigured, match="how far its task was seeded"):
            Cursor.decode(data)


def without(manifest: Manifest, shelf: Shelf, role: Role) -> str:
    path = next(file.path for file in reversed(manifest.files()) if file.role is role)
    shelf.store.delete(f"{shelf.folder}/{path}")
    return path


@pytest.mark.parametrize("role", Role)
def test_what_is_missing_is_found_before_the_first_row(scratch: Path, role: Role) -> None:
    shelf = shelf_in(MemorySnapshots(), scratch)
    manifest = export_savepoint(
        shelf, new_tasks(MemoryStores(), [b"%d" % each for each in range(50)], 2), file_bytes=100
    )
    path = without(manifest, shelf, role)
    with pytest.raises(SnapshotDamaged, match="it is not there") as caught:
        next(seed_chunks(manifest, 0, claims(1), shelf, at_most=ChunkSize(rows=1)))
    assert caught.value.where.endswith(path)
