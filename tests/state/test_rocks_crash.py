"""A killed process leaves a prefix of what it applied, and the offset that belongs to exactly that prefix."""

import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamkit.state.memory import MemoryStores
from streamkit.state.rocks import RocksStores
from streamkit.state.store import StateStore, Writes

MIB = 1024 * 1024
KEYS = 2000
ROWS_PER_BATCH = 25
ROUNDS = 8

# Applies the batches of `batch()` one after the other, from where the store stands, until it is killed. Small write
# buffers, so that memtables reach the disk while it runs; some explicit flushes too.
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_rocks_crash import batch, MIB
from streamkit.state.rocks import RocksStores
store = RocksStores(Path(sys.argv[1]), 8 * MIB, 1 * MIB).open("totals-0")
offset = store.changelog_offset
print(offset, flush=True)
while True:
    offset += 1
    store.apply(batch(offset), offset)
    if offset % 700 == 0:
        store.flush()
    if offset % 100 == 0:
        print(offset, flush=True)
"""


def batch(offset: int) -> Writes:
    source = random.Random(offset)
    writes: dict[bytes, bytes | None] = {}
    for _ in range(ROWS_PER_BATCH):
        key = b"%06d" % source.randrange(KEYS)
        writes[key] = None if source.random() < 0.1 else source.randbytes(200)
    return writes


def content(store: StateStore) -> dict[bytes, bytes]:
    return dict(store.scan(b""))


def expected(offset: int) -> dict[bytes, bytes]:
    """The prefix of batches up to `offset`."""
    model: dict[bytes, bytes | None] = {}
    for each in range(1, offset + 1):
        model.update(batch(each))
    return {key: value for key, value in model.items() if value is not None}


def run_and_kill(folder: Path, after_s: float) -> tuple[int, int]:
    """The offset at which a child began, and one that it had certainly applied when it was killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), str(Path(__file__).parent)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        first = int(child.stdout.readline())
        # Not before it is at work, or slow machines would test nothing.
        applied = int(child.stdout.readline())
        select.select([], [], [], after_s)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        rest = child.stdout.read()
        child.stdout.close()
        child.wait()
    complete = [int(line) for line in rest.split(b"\n")[:-1]]
    return first, complete[-1] if complete else applied


def test_a_killed_process_leaves_exactly_the_prefix_at_its_offset(tmp_path: Path) -> None:
    source = random.Random(1)
    stored = 0
    advanced = 0
    for _ in range(ROUNDS):
        began, applied = run_and_kill(tmp_path, source.uniform(0, 0.4))
        assert began == stored  # a crash costs the tail, never what was found before it
        store = RocksStores(tmp_path, 8 * MIB, 1 * MIB).open("totals-0")
        assert store.changelog_offset <= applied + 100
        assert content(store) == expected(store.changelog_offset)
        advanced += store.changelog_offset > stored
        stored = store.changelog_offset
        store.close()
    assert advanced >= ROUNDS // 2
    assert [each.name for each in tmp_path.iterdir()] == ["totals-0"]


def test_what_was_flushed_survives_a_kill(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from streamkit.state.rocks import RocksStores
store = RocksStores(Path(sys.argv[1]), 2**23, 2**23).open("totals-0")
store.apply({b"a": b"1"}, 1)
store.flush()
store.apply({b"b": b"2"}, 2)
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    store = RocksStores(tmp_path, 8 * MIB, 8 * MIB).open("totals-0")
    assert (store.changelog_offset, content(store)) == (1, {b"a": b"1"})
    store.close()


@pytest.mark.parametrize("survived", range(4))
def test_a_crashed_memory_store_keeps_a_prefix_of_what_was_not_flushed(survived: int) -> None:
    stores = MemoryStores(survives=lambda _, unflushed: min(survived, unflushed))
    store = stores.open("totals-0")
    for offset in (1, 2):
        store.apply(batch(offset), offset)
    store.flush()
    for offset in (3, 4, 5):
        store.apply(batch(offset), offset)
    stores.crash()
    again = stores.open("totals-0")
    assert again.changelog_offset == 2 + survived
    assert content(again) == expected(2 + survived)


def test_a_crash_loses_nothing_that_was_closed() -> None:
    stores = MemoryStores(survives=lambda _name, _unflushed: 0)
    store = stores.open("totals-0")
    store.apply(batch(1), 1)
    store.close()
    stores.crash()
    assert content(stores.open("totals-0")) == expected(1)
