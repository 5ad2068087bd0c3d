"""Whatever happens to a state folder, the answer is a sound prefix or an empty store: never wrong bytes, never a loop."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streamkit.errors import Bug, Misconfigured, Retry, StateCorrupt, is_of_the_record
from streamkit.state.rocks import DAMAGED_KEPT, RocksStores
from streamkit.state.rocks_store import DAMAGED_MARK, RocksStore
from streamkit.state.store import StateStore

MIB = 1024 * 1024
NAME = "totals-0"
# Fewer files than start a compaction: one that meets damage makes RocksDB wait for a second, each time.
FLUSHES = 3
# 200 and 60 were tried; these take a third of it and still hit every kind of file.
FLIPS = 60
TRUNCATIONS = 20


def value(key: int, offset: int) -> bytes:
    return random.Random(key * 1000 + offset).randbytes(60)


def prefix_at(offset: int) -> dict[bytes, bytes]:
    return {
        b"%06d" % key: value(key, each)
        for each in range(1, offset + 1)
        for key in range(each * 100, each * 100 + 300)
    }


def open_store(folder: Path) -> StateStore:
    return RocksStores(folder, 8 * MIB, 8 * MIB).open(NAME)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database of several files."""
    folder = tmp_path_factory.mktemp("sound")
    store = open_store(folder)
    for offset in range(1, FLUSHES + 1):
        store.apply(
            {b"%06d" % key: value(key, offset) for key in range(offset * 100, offset * 100 + 300)}, offset
        )
        store.flush()
    store.close()
    return folder


def read_all(store: StateStore) -> tuple[int, dict[bytes, bytes]]:
    found = dict(store.scan(b""))
    for key in prefix_at(FLUSHES):
        assert store.get(key) == found.get(key)
    return store.changelog_offset, found


def outcome(folder: Path) -> str:
    """Open what is there, read it all, and check that it is a prefix or that the next open is fresh."""
    store = open_store(folder)
    try:
        offset, found = read_all(store)
    except StateCorrupt:
        store.close()
        store = open_store(folder)
        assert read_all(store) == (0, {})
        result = "found while reading"
    else:
        assert found == prefix_at(offset)
        result = "prefix" if offset else "found at open"
    store.apply({b"new": b"1"}, 9)
    store.close()
    again = open_store(folder)
    assert (again.get(b"new"), again.changelog_offset) == (b"1", 9)
    again.close()
    return result


def damage(sound: Path, folder: Path, change: Callable[[Path, random.Random], None], seed: int) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    source = random.Random(seed)
    files = sorted(path for path in (folder / NAME).iterdir() if path.stat().st_size)
    sizes = [path.stat().st_size for path in files]
    # Half of the time by size, else the small and important ones would hardly be hit.
    change(source.choices(files, sizes)[0] if seed % 2 else source.choice(files), source)
    return outcome(folder)


def flip(path: Path, source: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[source.randrange(len(data))] ^= 1 << source.randrange(8)
    path.write_bytes(data)


def truncate(path: Path, source: random.Random) -> None:
    os.truncate(path, source.randrange(path.stat().st_size))


@pytest.mark.parametrize(("change", "rounds"), [(flip, FLIPS), (truncate, TRUNCATIONS)])
def test_random_damage_gives_a_prefix_or_a_fresh_store(
    sound: Path, tmp_path: Path, change: Callable[[Path, random.Random], None], rounds: int
) -> None:
    outcomes = {damage(sound, tmp_path / "state", change, seed) for seed in range(rounds)}
    assert outcomes == {"prefix", "found at open"} | ({"found while reading"} if change is flip else set())


def test_a_damaged_block_never_ends_a_scan_early(sound: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    shutil.copytree(sound, folder)
    for table in (folder / NAME).glob("*.sst"):
        data = bytearray(table.read_bytes())
        data[100] ^= 1
        table.write_bytes(data)
    store = open_store(folder)
    with pytest.raises(StateCorrupt, match="damaged"):
        list(store.scan(b""))
    assert (folder / NAME / DAMAGED_MARK).exists()
    store.close()
    with capture_logs() as logs:
        fresh = open_store(folder)
    assert [each["log_level"] for each in logs] == ["warning"]
    assert fresh.changelog_offset == 0
    fresh.close()


def lose_current(folder: Path) -> None:
    (folder / "CURRENT").unlink()


def lose_manifest(folder: Path) -> None:
    for path in folder.glob("MANIFEST-*"):
        path.unlink()


def lose_a_table(folder: Path) -> None:
    min(folder.glob("*.sst")).unlink()


def empty_the_manifest(folder: Path) -> None:
    for path in folder.glob("MANIFEST-*"):
        os.truncate(path, 0)


def put_foreign_files(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")


def put_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("mine")


def put_a_foreign_database(folder: Path) -> None:
    from rocksdict import Options, Rdict

    shutil.rmtree(folder)
    other = Rdict(str(folder), Options(raw_mode=True))
    other[b"theirs"] = b"1"
    other.close()


def put_a_database_with_column_families(folder: Path) -> None:
    from rocksdict import Options, Rdict

    shutil.rmtree(folder)
    other = Rdict(str(folder), Options(raw_mode=True))
    other.create_column_family("theirs", Options(raw_mode=True)).close()
    other.close()


@pytest.mark.parametrize(
    "change",
    [
        lose_current,
        lose_manifest,
        lose_a_table,
        empty_the_manifest,
        put_foreign_files,
        put_a_file,
        put_a_foreign_database,
        put_a_database_with_column_families,
    ],
)
def test_what_is_no_sound_database_is_set_aside(
    sound: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    folder = tmp_path / "state"
    shutil.copytree(sound, folder)
    change(folder / NAME)
    with capture_logs() as logs:
        outcome(folder)
    assert sorted(path.name for path in folder.iterdir()) == [NAME, f"{NAME}.damaged-1"]
    assert [each["event"] for each in logs] == ["state is damaged: set aside"]


def test_foreign_files_beside_a_sound_database_do_no_harm(sound: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    shutil.copytree(sound, folder)
    (folder / NAME / "notes.txt").write_text("mine")
    store = open_store(folder)
    assert read_all(store) == (FLUSHES, prefix_at(FLUSHES))
    store.close()


def test_a_crash_in_the_first_moments_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    for name in ("LOCK", "LOG", "IDENTITY", "MANIFEST-000001", "rocksdict-config.json"):
        (tmp_path / NAME / name).touch()
    with capture_logs() as logs:
        open_store(tmp_path).close()
    assert logs == []


def test_only_the_last_damaged_folders_are_kept(tmp_path: Path) -> None:
    for _ in range(5):
        store = open_store(tmp_path)
        store.apply({b"a": b"1"}, 1)
        store.close()
        lose_current(tmp_path / NAME)
    open_store(tmp_path).close()
    kept = sorted(path.name for path in tmp_path.iterdir() if path.name != NAME)
    assert kept == [f"{NAME}.damaged-{number}" for number in range(6 - DAMAGED_KEPT, 6)]


def test_a_folder_that_is_removed_while_in_use_is_not_waited_for(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.apply({b"%d" % number: b"x" * 100 for number in range(1000)}, 1)
    while (tmp_path / NAME).exists():  # RocksDB removes files of its own meanwhile
        shutil.rmtree(tmp_path / NAME, ignore_errors=True)
    with pytest.raises(StateCorrupt):
        store.flush()
    store.close()
    assert outcome(tmp_path) == "found at open"


HOLDER = """
import sys
from pathlib import Path
from streamkit.state.rocks import RocksStores
store = RocksStores(Path(sys.argv[1]), 2**23, 2**23).open("totals-0")
store.apply({b"a": b"1"}, 5)
print("held", flush=True)
sys.stdin.read()
store.close()
"""


def test_a_folder_held_by_another_process_is_left_alone(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with capture_logs() as logs:
            guest = open_store(tmp_path)
        assert isinstance(guest, RocksStore)
        assert (guest.changelog_offset, guest.folder.name) == (0, f"{NAME}~1")
        assert [each["event"] for each in logs] == ["state folder is held by another process"]
        third = open_store(tmp_path)
        assert isinstance(third, RocksStore)
        assert third.folder.name == f"{NAME}~2"
        guest.apply({b"a": b"2"}, 6)
        guest.close()
        RocksStores(tmp_path, 8 * MIB, 8 * MIB).discard(NAME)
        assert {path.name for path in tmp_path.iterdir()} == {NAME, f"{NAME}~2"}
    store = open_store(tmp_path)
    assert (store.changelog_offset, store.get(b"a")) == (5, b"1")
    assert {path.name for path in tmp_path.iterdir()} == {NAME, f"{NAME}~2"}  # the third still holds its own
    store.close()
    third.close()
    open_store(tmp_path).close()
    assert {path.name for path in tmp_path.iterdir()} == {NAME}


def test_a_sibling_is_found_again_while_the_folder_is_held(tmp_path: Path) -> None:
    holder = open_store(tmp_path)
    guest = open_store(tmp_path)
    guest.apply({b"a": b"1"}, 1)
    guest.close()
    again = open_store(tmp_path)
    assert again.changelog_offset == 1
    again.close()
    holder.close()


def test_close_releases_the_lock_under_a_scan(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.apply({b"%04d" % number: b"x" for number in range(1000)}, 1)
    begun, untouched = store.scan(b""), store.scan(b"")
    next(begun)
    bound = store.get
    store.close()
    again = open_store(tmp_path)
    assert isinstance(again, RocksStore)
    assert again.folder.name == NAME
    for scan in (begun, untouched):
        with pytest.raises(Bug, match="closed"):
            list(scan)
    with pytest.raises(Bug, match="closed"):
        bound(b"0000")
    again.close()


def test_stores_are_closed_before_their_budget(tmp_path: Path) -> None:
    stores = RocksStores(tmp_path, 8 * MIB, 8 * MIB)
    store = stores.open(NAME)
    with pytest.raises(Bug, match=r"before one of them"):
        stores.close()
    store.close()
    stores.close()


def test_only_the_owner_may_look_into_the_folders(tmp_path: Path) -> None:
    (tmp_path / "state" / NAME).mkdir(parents=True, mode=0o755)
    store = open_store(tmp_path / "new" / "state")
    other = open_store(tmp_path / "state")
    modes = [
        path.stat().st_mode & 0o777
        for path in (tmp_path / "new/state", tmp_path / "new/state" / NAME, tmp_path / "state" / NAME)
    ]
    assert modes == [0o700] * 3
    store.close()
    other.close()


def test_a_folder_that_cannot_be_made_is_for_a_person_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Misconfigured) as caught:
        open_store(tmp_path / "file" / "state")
    assert "state_dir" in caught.value.hint


def test_a_folder_that_is_read_only_is_for_a_person_to_change(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    user = os.geteuid()
    if user == 0:  # who may write anywhere
        os.seteuid(65534)
    try:
        with pytest.raises(Misconfigured, match="permission denied"):
            open_store(tmp_path)
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("IO error: No space left on device: While appending to file: x.sst", Retry),
        ("IO error: While open a file for lock: LOCK: Permission denied", Misconfigured),
        ("IO error: While open a file for random read: x.sst: Too many open files", Retry),
        ("Corruption: block checksum mismatch", StateCorrupt),
    ],
)
def test_a_sick_host_is_no_damage(tmp_path: Path, text: str, kind: type[Exception]) -> None:
    store = open_store(tmp_path)
    assert isinstance(store, RocksStore)

    def fail(_: bytes) -> bytes:
        raise Exception(text)  # noqa: TRY002 - as rocksdict does

    store._get = fail
    with pytest.raises(kind) as raised:
        store.get(b"a")
    assert not is_of_the_record(raised.value)
    store.close()
    assert (tmp_path / NAME / DAMAGED_MARK).exists() == (kind is StateCorrupt)
