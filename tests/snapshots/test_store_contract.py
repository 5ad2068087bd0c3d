"""What every SnapshotStore promises, checked on each of them."""

import threading
from pathlib import Path

import pytest

from streamkit.errors import Misconfigured
from streamkit.snapshots.folder import FolderSnapshots
from streamkit.snapshots.memory import MemorySnapshots
from streamkit.snapshots.store import AlreadyStored, Entry, NotStored, SnapshotStore, is_name

NO_NAMES = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../b",
    "a/..",
    ".hidden",
    "a/.incoming",
    "a\\b",
    "a b",
    "größe",
    "a\0b",
    "a\n",
    "a%2e",
    "~root",
    "C:a",
    "x" * 251,
]


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SnapshotStore:
    return MemorySnapshots() if request.param == "memory" else FolderSnapshots(tmp_path / "deep" / "root")


def test_a_new_store_is_empty(store: SnapshotStore) -> None:
    assert store.list("") == []
    assert store.list("a/b") == []
    store.delete("a/b")
    with pytest.raises(NotStored, match='has no "a/b"'):
        store.get("a/b")


@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 1000])
@pytest.mark.parametrize("name", ["a", "a/b/c", "0-1.values.sst", "=2E=2E/x", "x" * 250])
def test_what_was_put_is_read_back(store: SnapshotStore, name: str, content: bytes) -> None:
    store.put(name, b"old")
    store.put(name, content)
    assert store.get(name) == content
    assert store.list("") == [Entry(name, len(content))]


def test_create_refuses_to_replace(store: SnapshotStore) -> None:
    store.create("a/manifest", b"first")
    for _ in range(2):
        with pytest.raises(AlreadyStored, match='has a "a/manifest" already'):
            store.create("a/manifest", b"second")
    assert store.get("a/manifest") == b"first"
    assert store.list("") == [Entry("a/manifest", 5)]
    store.delete("a/manifest")
    store.create("a/manifest", b"third")
    assert store.get("a/manifest") == b"third"


def test_create_does_not_replace_what_was_put(store: SnapshotStore) -> None:
    store.put("a", b"put")
    with pytest.raises(AlreadyStored):
        store.create("a", b"created")
    assert store.get("a") == b"put"


def test_of_many_who_create_at_once_one_succeeds(store: SnapshotStore) -> None:
    won: list[bytes] = []

    def create(content: bytes) -> None:
        try:
            store.create("a/b", content)
        except AlreadyStored:
            return
        won.append(content)

    threads = [threading.Thread(target=create, args=(b"%d" % number * 1000,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [store.get("a/b")] == won


def test_a_list_has_all_below_a_folder_and_nothing_else(store: SnapshotStore) -> None:
    names = ["a/b/c", "a/b/d/e", "a/bc", "a-b/c", "ab", "b"]
    for name in reversed(names):
        store.put(name, name.encode())
    assert store.list("") == sorted(Entry(name, len(name)) for name in names)
    assert store.list("a/b") == [Entry("a/b/c", 5), Entry("a/b/d/e", 7)]
    assert [entry.name for entry in store.list("a")] == ["a/b/c", "a/b/d/e", "a/bc"]
    assert store.list("zz") == []


def test_what_was_deleted_is_gone_and_the_rest_stays(store: SnapshotStore) -> None:
    store.put("a/b/c", b"1")
    store.put("a/d", b"2")
    store.delete("a/b/c")
    store.delete("a/b/c")
    assert store.list("") == [Entry("a/d", 1)]
    store.put("a/b/c", b"3")
    assert store.get("a/b/c") == b"3"


def test_a_folder_is_no_content(store: SnapshotStore) -> None:
    store.put("a/b", b"1")
    with pytest.raises(NotStored):
        store.get("a")
    with pytest.raises(NotStored):
        store.get("a/b/c")


@pytest.mark.parametrize("name", NO_NAMES, ids=repr)
def test_no_name_leads_out_of_the_store(store: SnapshotStore, name: str) -> None:
    assert not is_name(name)
    uses = [lambda: store.put(name, b""), lambda: store.create(name, b""), lambda: store.get(name)]
    uses += [lambda: store.delete(name)] + ([lambda: store.list(name)] if name else [])
    for use in uses:
        with pytest.raises(Misconfigured, match="takes no name like"):
            use()
    assert store.list("") == []
