"""What every StateStore promises, checked on each of them."""

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamkit.errors import Bug
from streamkit.state.keys import COMMIT_KEY
from streamkit.state.memory import MemoryStores
from streamkit.state.rocks import RocksStores
from streamkit.state.store import StateStore, StateStores

MIB = 1024 * 1024


@pytest.fixture(params=["memory", "rocksdb"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> StateStores:
    if request.param == "memory":
        return MemoryStores()
    return RocksStores(tmp_path, 8 * MIB, 8 * MIB)


@pytest.fixture
def store(stores: StateStores) -> Iterator[StateStore]:
    store = stores.open("totals-0")
    yield store
    store.close()


def test_a_new_store_is_empty(store: StateStore) -> None:
    assert store.changelog_offset == 0
    assert store.get(b"a") is None
    assert list(store.scan(b"")) == []


def test_what_was_applied_is_read_back(store: StateStore) -> None:
    store.apply({b"b": b"2", b"a": b"1", b"c": b""}, 7)
    assert store.changelog_offset == 7
    assert [store.get(key) for key in (b"a", b"b", b"c", b"d")] == [b"1", b"2", b"", None]


def test_none_deletes(store: StateStore) -> None:
    store.apply({b"a": b"1", b"b": b"2"}, 1)
    store.apply({b"a": None, b"never": None}, 2)
    assert list(store.scan(b"")) == [(b"b", b"2")]
    store.apply({b"a": b"3"}, 3)
    assert list(store.scan(b"")) == [(b"a", b"3"), (b"b", b"2")]


def test_an_offset_moves_without_writes(store: StateStore) -> None:
    store.apply({}, 9)
    assert store.changelog_offset == 9
    assert list(store.scan(b"")) == []


def test_writes_may_be_changed_after_apply(store: StateStore) -> None:
    writes: dict[bytes, bytes | None] = {b"a": b"1"}
    store.apply(writes, 1)
    writes.clear()
    writes[b"b"] = b"2"
    assert list(store.scan(b"")) == [(b"a", b"1")]


@pytest.mark.parametrize("prefix", [b"", b"a", b"a\xff", b"\xff", b"\xff\xff", b"b", b"a\x00"])
def test_a_scan_gives_what_begins_with_the_prefix_in_key_order(store: StateStore, prefix: bytes) -> None:
    keys = [
        b"a",
        b"a\x00",
        b"a\xff",
        b"a\xff\xff",
        b"b",
        b"\xff",
        b"\xff\xfe",
        b"\xff\xff",
        COMMIT_KEY,
        b"aa",
    ]
    store.apply({key: b"v" + key for key in keys}, 1)
    expected = [(key, b"v" + key) for key in sorted(keys) if key.startswith(prefix)]
    assert list(store.scan(prefix)) == expected


@pytest.mark.parametrize("prefix", [b"", b"a", b"ab", b"\xfe\xbfr", b"\x00\x01cd", b"k" * 40])
def test_a_scan_of_a_long_prefix_gives_all_of_it_and_nothing_behind_it(
    store: StateStore, prefix: bytes
) -> None:
    inside = [prefix + b"\x80\x00" + bytes([number]) for number in range(20)]
    store.apply(dict.fromkeys([*inside, b"zzz"], b"v"), 1)
    scans = [store.scan(prefix + b"\x80") for _ in range(3)]
    bytes(100)  # what the first scan asked for must not be lost by the second
    assert [[key for key, _ in scan] for scan in scans] == [inside] * 3


@pytest.mark.parametrize(
    "start", [b"", b"a", b"ab", b"ab\x00", b"ab\x80", b"ab\xff", b"ac", b"b", b"\xff\xff"]
)
@pytest.mark.parametrize("prefix", [b"", b"a", b"ab", b"ab\xff", b"zz"])
def test_a_scan_begins_at_its_start_and_ends_with_its_prefix(
    store: StateStore, prefix: bytes, start: bytes
) -> None:
    keys = [
        b"a",
        b"ab",
        b"ab\x00",
        b"ab\x7f",
        b"ab\x80",
        b"ab\x80\x00",
        b"ab\xff",
        b"ab\xff\xff",
        b"ac",
        b"b",
    ]
    store.apply({key: b"v" + key for key in keys}, 1)
    store.apply({b"ab\x7f": None}, 2)
    keys.remove(b"ab\x7f")
    expected = [(key, b"v" + key) for key in keys if key.startswith(prefix) and key >= start]
    assert list(store.scan(prefix, start)) == expected


def test_a_scan_is_a_snapshot_of_the_moment_of_the_call(store: StateStore) -> None:
    store.apply({b"%05d" % number: b"old" for number in range(1000)}, 1)
    scan = store.scan(b"")
    store.apply({b"%05d" % number: None for number in range(500)}, 2)
    store.apply({b"%05d" % number: b"new" for number in range(500, 2000)}, 3)
    assert list(scan) == [(b"%05d" % number, b"old") for number in range(1000)]


def test_a_long_scan_misses_nothing(store: StateStore) -> None:
    for count in (255, 256, 257, 1024):
        store.apply({b"%05d" % number: b"x" for number in range(count)}, count)
        assert [key for key, _ in store.scan(b"")] == [b"%05d" % number for number in range(count)]


def test_a_store_equals_a_dict(stores: StateStores) -> None:
    source = random.Random(7)
    model: dict[bytes, bytes] = {}
    store = stores.open("model-0")
    for offset in range(1, 200):
        writes = {
            source.randbytes(source.randrange(3)): source.choice([None, source.randbytes(4)])
            for _ in range(source.randrange(8))
        }
        store.apply(writes, offset)
        model.update({key: value for key, value in writes.items() if value is not None})
        model = {key: value for key, value in model.items() if writes.get(key, b"") is not None}
        if source.random() < 0.1:
            store.close()
            store = stores.open("model-0")
        prefix = source.randbytes(source.randrange(2))
        expected = sorted((key, value) for key, value in model.items() if key.startswith(prefix))
        assert list(store.scan(prefix)) == expected
        assert store.changelog_offset == offset
    store.close()


def test_what_was_applied_survives_a_close(stores: StateStores) -> None:
    store = stores.open("totals-0")
    store.apply({b"a": b"1"}, 5)
    store.close()
    again = stores.open("totals-0")
    assert (again.changelog_offset, again.get(b"a")) == (5, b"1")
    again.close()


def test_stores_do_not_see_each_other(stores: StateStores) -> None:
    one, other = stores.open("totals-0"), stores.open("totals-1")
    one.apply({b"a": b"1"}, 1)
    assert other.get(b"a") is None
    one.close()
    other.close()
    stores.close()


def use_get(store: StateStore) -> object:
    return store.get(b"a")


def use_scan(store: StateStore) -> object:
    return list(store.scan(b""))


def use_apply(store: StateStore) -> object:
    store.apply({}, 1)
    return None


def use_offset(store: StateStore) -> object:
    return store.changelog_offset


@pytest.mark.parametrize("use", [use_get, use_scan, use_apply, use_offset])
def test_a_closed_store_raises_on_use(stores: StateStores, use: Callable[[StateStore], object]) -> None:
    store = stores.open("totals-0")
    store.apply({b"a": b"1"}, 1)
    store.close()
    store.close()
    with pytest.raises(Bug, match="closed"):
        use(store)


def test_a_store_that_somebody_holds_is_left_alone(stores: StateStores) -> None:
    holder = stores.open("totals-0")
    holder.apply({b"a": b"1"}, 1)
    guest = stores.open("totals-0")
    assert (guest.changelog_offset, guest.get(b"a")) == (0, None)
    guest.apply({b"a": b"2"}, 2)
    assert holder.get(b"a") == b"1"
    guest.close()
    holder.close()
    again = stores.open("totals-0")
    assert again.get(b"a") == b"1"
    again.close()


def test_discard_makes_the_next_open_begin_empty(stores: StateStores) -> None:
    stores.discard("totals-0")
    store = stores.open("totals-0")
    store.apply({b"a": b"1"}, 1)
    store.close()
    stores.discard("totals-0")
    again = stores.open("totals-0")
    assert (again.changelog_offset, again.get(b"a")) == (0, None)
    again.close()


def test_discard_leaves_alone_what_is_held(stores: StateStores) -> None:
    store = stores.open("totals-0")
    store.apply({b"a": b"1"}, 1)
    stores.discard("totals-0")
    assert store.get(b"a") == b"1"
    store.apply({b"b": b"2"}, 2)
    store.close()
    again = stores.open("totals-0")
    assert (again.changelog_offset, again.get(b"b")) == (2, b"2")
    again.close()


def test_flush_may_run_in_another_thread(store: StateStore) -> None:
    failures: list[BaseException] = []

    def flush() -> None:
        try:
            for _ in range(20):
                store.flush()
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    thread = threading.Thread(target=flush)
    thread.start()
    for offset in range(1, 200):
        store.apply({b"%d" % (offset % 50): b"x" * 100}, offset)
        assert store.get(b"%d" % (offset % 50)) is not None
    thread.join()
    assert failures == []


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a~1", "a.damaged-1", "größe-0", "-"])
def test_any_name_is_a_store_of_its_own(stores: StateStores, name: str) -> None:
    plain, odd = stores.open("a"), stores.open(name)
    odd.apply({b"k": name.encode()}, 1)
    assert plain.get(b"k") is None
    odd.close()
    plain.close()
    stores.discard("a")
    again = stores.open(name)
    assert again.get(b"k") == name.encode()
    again.close()
