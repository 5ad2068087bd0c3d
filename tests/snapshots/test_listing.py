from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from streamkit.errors import Misconfigured, SnapshotDamaged
from streamkit.snapshots import layout
from streamkit.snapshots.folder import FolderSnapshots
from streamkit.snapshots.listing import (
    delete_savepoint,
    list_savepoints,
    list_unfinished,
    open_pipeline,
    show_savepoint,
    verify_savepoint,
)
from streamkit.snapshots.manifest import Manifest
from streamkit.snapshots.manifest_file import store_manifest
from streamkit.snapshots.memory import MemorySnapshots
from streamkit.snapshots.store import NotStored, SnapshotStore
from streamkit.state.memory import MemoryStores
from tests.snapshots.making import (
    PIPELINE,
    export_savepoint,
    export_stage,
    manifest_of,
    new_tasks,
    shelf_in,
    work_folder,
)

KEYS = [b"user-%d" % number for number in range(60)]


@pytest.fixture
def scratch() -> Iterator[Path]:
    with work_folder() as folder:
        yield folder


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SnapshotStore:
    return MemorySnapshots() if request.param == "memory" else FolderSnapshots(tmp_path / "root")


def take(store: SnapshotStore, scratch: Path, savepoint: str, at_ms: int = 0) -> Manifest:
    shelf = shelf_in(store, scratch, savepoint)
    stage = export_stage(shelf, new_tasks(MemoryStores(), KEYS, 2), file_bytes=3000)
    return store_manifest(store, shelf.folder, manifest_of({"totals": stage}, id=savepoint, at_ms=at_ms))


def ids(store: SnapshotStore) -> list[str]:
    return [each.id for each in list_savepoints(store, PIPELINE)]


def test_savepoints_are_listed_the_oldest_first(store: SnapshotStore, scratch: Path) -> None:
    assert ids(store) == []
    made = [take(store, scratch, *each) for each in (("b", 3), ("c", 1), ("a", 2))]
    assert ids(store) == ["c", "a", "b"]
    assert [each.manifest for each in list_savepoints(store, PIPELINE)] == [made[1], made[2], made[0]]
    assert show_savepoint(store, PIPELINE, "b") == made[0]
    assert list_savepoints(store, "other") == []


def test_one_that_was_not_finished_is_none(store: SnapshotStore, scratch: Path) -> None:
    take(store, scratch, "whole")
    shelf = shelf_in(store, scratch, "half")
    export_stage(shelf, new_tasks(MemoryStores(), KEYS, 2))
    assert ids(store) == ["whole"]
    assert list_unfinished(store, PIPELINE) == ["half"]
    for use in (show_savepoint, verify_savepoint):
        with pytest.raises(NotStored, match="there is no snapshot"):
            use(store, PIPELINE, "half")
    assert delete_savepoint(store, PIPELINE, "half") == 4
    assert list_unfinished(store, PIPELINE) == []


def test_one_that_cannot_be_read_is_listed_with_the_reason(store: SnapshotStore, scratch: Path) -> None:
    take(store, scratch, "a", 5)
    store.put(layout.manifest_file(layout.savepoint_folder(PIPELINE, "0")), b"{}")
    found = list_savepoints(store, PIPELINE)
    assert [(each.id, each.manifest is None) for each in found] == [("a", False), ("0", True)]
    assert "manifest of a snapshot is damaged" in found[1].problem


def test_a_sound_savepoint_is_verified(store: SnapshotStore, scratch: Path) -> None:
    manifest = take(store, scratch, "a")
    verified = verify_savepoint(store, PIPELINE, "a", scratch)
    files = manifest.files()
    assert verified.problems == []
    assert (verified.files, verified.rows) == (len(files), sum(file.rows for file in files))
    assert list(scratch.iterdir()) == []


def test_every_file_that_is_damaged_is_named(store: SnapshotStore, scratch: Path) -> None:
    files = take(store, scratch, "a").files()
    folder = layout.savepoint_folder(PIPELINE, "a")
    cut, gone, foreign, *_ = [f"{folder}/{file.path}" for file in files]
    store.put(cut, store.get(cut)[:-1])
    store.delete(gone)
    store.put(foreign, b"x" * files[2].bytes)
    problems = verify_savepoint(store, PIPELINE, "a", scratch).problems
    assert len(problems) == 3
    for name, words, problem in zip(
        (cut, gone, foreign), ("should have", "not there", "its digest is"), problems, strict=True
    ):
        assert name in problem
        assert words in problem
        assert "hint: start from another" in problem
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("change", ["rows", "rows_sha256", "groups", "role"])
def test_a_file_that_is_not_what_the_manifest_says_is_told(scratch: Path, change: str) -> None:
    """The file is as it was written, and still not the one that belongs there."""
    store = MemorySnapshots()
    shelf = shelf_in(store, scratch, "a")
    manifest = export_savepoint(shelf, new_tasks(MemoryStores(), KEYS, 1))
    store.delete(layout.manifest_file(shelf.folder))
    (stage,) = manifest.stages.values()
    (part,) = stage.parts
    values, timers = part.files
    wrong = {
        "rows": {"rows": values.rows + 1},
        "rows_sha256": {"rows_sha256": timers.rows_sha256},
        "groups": {"groups": values.groups._replace(last=values.groups.last - 1)},
        "role": {"role": timers.role},
    }[change]
    files = (msgspec.structs.replace(values, **wrong),)
    parts = (msgspec.structs.replace(part, files=files),)
    stages = {"totals": msgspec.structs.replace(stage, parts=parts)}
    store_manifest(store, shelf.folder, msgspec.structs.replace(manifest, stages=stages))
    (problem,) = verify_savepoint(store, PIPELINE, "a", scratch).problems
    assert "they are not the" in problem or "does not belong there" in problem


def test_every_changed_bit_of_a_file_is_found(scratch: Path) -> None:
    store = MemorySnapshots()
    manifest = take(store, scratch, "a")
    file = min(manifest.files(), key=lambda each: each.bytes)
    name = f"{layout.savepoint_folder(PIPELINE, 'a')}/{file.path}"
    right = store.contents[name]
    places = sorted({*range(0, len(right), 97), len(right) - 1})
    for at in places:
        changed = bytearray(right)
        changed[at] ^= 1 << at % 8
        store.contents[name] = bytes(changed)
        (problem,) = verify_savepoint(store, PIPELINE, "a", scratch).problems
        assert name in problem
    assert len(places) > 10


def test_a_deleted_savepoint_is_gone_with_all_its_files(store: SnapshotStore, scratch: Path) -> None:
    take(store, scratch, "a")
    kept = take(store, scratch, "ab")
    assert delete_savepoint(store, PIPELINE, "a") > 5
    assert delete_savepoint(store, PIPELINE, "a") == 0
    assert ids(store) == ["ab"]
    assert verify_savepoint(store, PIPELINE, "ab", scratch).problems == []
    assert len(store.list("")) == len(kept.files()) + 1


def test_a_deletion_that_was_cut_short_leaves_no_savepoint(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemorySnapshots()
    take(store, scratch, "a")
    real, calls = store.delete, []

    def once(name: str) -> None:
        if calls:
            raise OSError("killed")
        calls.append(name)
        real(name)

    monkeypatch.setattr(store, "delete", once)
    with pytest.raises(OSError, match="killed"):
        delete_savepoint(store, PIPELINE, "a")
    assert ids(store) == []
    assert list_unfinished(store, PIPELINE) == ["a"]


def test_a_savepoint_may_be_copied_as_a_folder(store: SnapshotStore, scratch: Path) -> None:
    take(store, scratch, "a")
    there = layout.savepoint_folder("other", "b")
    for entry in store.list(layout.savepoint_folder(PIPELINE, "a")):
        store.put(entry.name.replace(layout.savepoint_folder(PIPELINE, "a"), there), store.get(entry.name))
    assert verify_savepoint(store, "other", "b", scratch).problems == []


def test_a_store_says_how_it_is_laid_out_and_whose_it_is(store: SnapshotStore) -> None:
    open_pipeline(store, PIPELINE)
    open_pipeline(store, PIPELINE)
    name = layout.format_file(PIPELINE)
    assert store.get(name) == b'{"format":1,"pipeline":"shop"}'
    for content, words in (
        (b'{"format":2,"pipeline":"shop"}', "has format 2"),
        (b'{"format":1,"pipeline":"other"}', 'that of pipeline "other"'),
    ):
        store.put(name, content)
        with pytest.raises(Misconfigured, match=words):
            open_pipeline(store, PIPELINE)
    store.put(name, b"{")
    with pytest.raises(SnapshotDamaged, match="how it is laid out"):
        open_pipeline(store, PIPELINE)
