import os
import stat
import time
from pathlib import Path

import pytest

from streamkit.errors import Misconfigured, Retry
from streamkit.snapshots.folder import INCOMING, INCOMING_S_MAX, FolderSnapshots


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


def test_only_the_owner_may_read(root: Path) -> None:
    before = os.umask(0)
    try:
        FolderSnapshots(root).put("a/b/c", b"1")
        FolderSnapshots(root).create("a/b/d", b"1")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def test_everything_is_durable_before_it_has_its_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle: int) -> None:
        calls.append(("fsync", str(Path(f"/proc/self/fd/{handle}").readlink()).removeprefix(str(root))))
        fsync(handle)

    def noted_replace(old: Path, new: Path) -> None:
        calls.append(("replace", str(new).removeprefix(str(root))))
        replace(old, new)

    store = FolderSnapshots(root)
    store.put("a/b", b"1")
    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    store.put("a/b", b"2")
    (what, temporary), *rest = calls
    assert what == "fsync"
    assert temporary.startswith(f"/{INCOMING}/")
    assert rest == [("replace", "/a/b"), ("fsync", "/a")]


def test_nothing_is_left_of_what_could_not_be_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderSnapshots(root)
    store.put("a", b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Retry, match="cannot be used"):
        store.put("a", b"new")
    monkeypatch.undo()
    assert store.get("a") == b"old"
    assert list((root / INCOMING).iterdir()) == []


def test_what_a_crash_left_without_a_name_is_swept(root: Path) -> None:
    store = FolderSnapshots(root)
    store.put("a", b"1")
    old, young = root / INCOMING / "old", root / INCOMING / "young"
    for each in (old, young):
        each.write_bytes(b"half")
    then = time.time() - INCOMING_S_MAX - 60
    os.utime(old, (then, then))
    store.put("b", b"2")
    assert [each.name for each in (root / INCOMING).iterdir()] == ["young"]
    assert [entry.name for entry in store.list("")] == ["a", "b"]


def test_folders_go_with_their_last_content(root: Path) -> None:
    store = FolderSnapshots(root)
    store.put("a/b/c", b"1")
    store.put("a/d", b"1")
    store.delete("a/b/c")
    assert not (root / "a" / "b").exists()
    store.delete("a/d")
    assert root.is_dir()
    assert not (root / "a").exists()


def test_a_folder_that_is_a_file_is_for_a_person(root: Path) -> None:
    root.write_bytes(b"")
    with pytest.raises(Misconfigured, match="cannot be used") as caught:
        FolderSnapshots(root).put("a", b"1")
    assert str(root) in caught.value.where
