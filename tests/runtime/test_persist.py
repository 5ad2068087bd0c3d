"""Committed state on its way to disk: off the event loop, in order, bounded, and said when it fails."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamkit.config import Settings
from streamkit.errors import Retry, StateCorrupt
from streamkit.runtime import persist
from streamkit.runtime.disk import DiskThread
from streamkit.runtime.persist import Persistence, Storage
from streamkit.state.budget import MemoryBudget, keep_within
from streamkit.state.memory import MemoryStore, MemoryStores
from streamkit.state.rocks import RocksStores
from streamkit.state.spec import StoreSpec
from streamkit.state.task_state import TaskState
from streamkit.testing import Harness
from tests.runtime.pages import COUNTS, VIEWS, View, check_running_counts, counting

MIB = 1024 * 1024
TOTALS = StoreSpec("totals", "value", int)


class Bench:
    """One task's state and the persistence of its worker, on a disk thread."""

    def __init__(self, stores: Any = None, *, waiting_bytes_max: int = MIB, **settings: Any) -> None:
        self.stores = MemoryStores() if stores is None else stores
        chosen = Settings(**{"state_apply_interval_s": 0.0, "drain_timeout_s": 1.0, **settings})
        self.storage = Storage(self.stores, DiskThread(), MemoryBudget(waiting_bytes_max * 10))
        self.persistence = Persistence(self.storage, chosen)
        self.state = TaskState(self.stores.open("totals-0"), [TOTALS], apply_interval_s=0.0)

    def commit(self, **totals: int) -> None:
        cells = self.state.cells(TOTALS)
        for key, total in totals.items():
            cells.put(key.encode(), total)
        self.state.committed(self.state.freeze(), self.state.changelog_offset + 1)
        keep_within(0, self.state.caches())

    def follow(self) -> None:
        self.persistence._look_at = 0.0
        self.persistence.follow(lambda: [self.state])

    def total(self, key: str) -> int | None:
        found: int | None = self.state.cells(TOTALS).get(key.encode())
        return found


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, what: str = "apply") -> Iterator[threading.Event]:
    """A disk that stands still until the event is set."""
    go_on, real = threading.Event(), getattr(MemoryStore, what)

    def wait(self: MemoryStore, *args: Any) -> Any:
        go_on.wait()
        return real(self, *args)

    monkeypatch.setattr(MemoryStore, what, wait)
    try:
        yield go_on
    finally:
        go_on.set()


def test_a_slow_disk_does_not_hold_the_loop_and_what_it_has_not_written_yet_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        bench = Bench()
        with held(monkeypatch) as go_on:
            bench.commit(a=1, b=1)
            started = time.monotonic()
            bench.follow()
            bench.commit(a=2)
            bench.follow()
            assert time.monotonic() - started < 0.5
            await asyncio.sleep(0.05)
            assert (bench.total("a"), bench.total("b")) == (2, 1)
            assert bench.state.store.changelog_offset == 0
            go_on.set()
            await bench.persistence.settle()
        await asyncio.sleep(0)
        assert bench.state.store.changelog_offset == 1
        bench.follow()
        await bench.persistence.settle()
        assert bench.state.store.changelog_offset == 2

    asyncio.run(main())


def test_rows_that_wait_for_the_disk_are_bounded_and_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persist, "BEHIND_S", 0.0)

    async def main() -> None:
        bench = Bench(waiting_bytes_max=1000)
        with held(monkeypatch) as go_on, capture_logs() as logs:
            bench.commit(**{f"k{number}": number for number in range(10)})
            bench.follow()
            assert bench.persistence.is_full
            for _ in range(3):
                await bench.persistence.wait_for_room(0.01)
                bench.follow()
            go_on.set()
            await bench.persistence.wait_for_room(5.0)
            bench.follow()
            assert not bench.persistence.is_full
        assert [line["event"] for line in logs] == [
            "the disk is behind: no records are taken until it catches up",
            "the disk has caught up",
        ]

    asyncio.run(main())


def test_a_worker_whose_disk_is_always_behind_comes_to_its_end_all_the_same() -> None:
    with Harness(counting(), partitions=1, memory_bytes=0) as harness:
        for page in ("home", "cart", "home"):
            harness.send(VIEWS, View(page))
            harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"home": 2, "cart": 1}


def test_what_was_applied_is_flushed_after_the_interval_and_not_before() -> None:
    async def main() -> None:
        flushed = []
        bench = Bench(state_flush_interval_s=0.2)
        bench.state.store.flush = lambda: flushed.append(1)  # type: ignore[method-assign]
        bench.commit(a=1)
        bench.follow()
        await bench.persistence.settle()
        await asyncio.sleep(0)
        bench.follow()
        await bench.persistence.settle()
        assert flushed == []
        await asyncio.sleep(0.25)
        bench.follow()
        await bench.persistence.settle()
        assert flushed == [1]
        await asyncio.sleep(0.25)
        bench.follow()
        await bench.persistence.settle()
        assert flushed == [1]  # nothing new

    asyncio.run(main())


@pytest.mark.parametrize("error", [StateCorrupt("a block is damaged"), Retry("the disk is full")])
@pytest.mark.parametrize("what", ["apply", "flush"])
def test_a_write_that_fails_is_told_to_the_worker_and_its_rows_stay_readable(
    error: Exception, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    async def main() -> None:
        bench = Bench(state_flush_interval_s=0.0)
        monkeypatch.setattr(MemoryStore, what, fail)
        bench.commit(a=1)
        with pytest.raises(type(error)):
            await follow_often(bench)
        assert bench.total("a") == 1

    asyncio.run(main())


async def follow_often(bench: Bench) -> None:
    for _ in range(5):
        bench.follow()
        await bench.persistence.settle()
        await asyncio.sleep(0)


@pytest.mark.parametrize("what", ["apply", "flush"])
def test_a_disk_that_fails_for_a_while_costs_no_record(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = getattr(MemoryStore, what), [3]

    def fail_at_first(self: MemoryStore, *args: Any) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise Retry("the disk is full")
        real(self, *args)

    settings = {"state_apply_interval_s": 0.0, "state_flush_interval_s": 0.01}
    with Harness(counting(), partitions=1, **settings) as harness:
        monkeypatch.setattr(MemoryStore, what, fail_at_first)
        for page in ("home", "cart", "home", "home"):
            harness.send(VIEWS, View(page))
            harness.run()
            harness.advance(0.5)
        harness.run()
        assert left[0] < 0
        assert check_running_counts(harness.read(COUNTS)) == {"home": 3, "cart": 1}
        assert harness.dead_letters() == []


def test_a_task_that_is_closed_leaves_all_that_is_committed_behind_what_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        bench = Bench()
        with held(monkeypatch) as go_on:
            bench.commit(a=1, b=1)
            bench.follow()
            bench.commit(a=2)
            bench.persistence.close(bench.state)
            opening = asyncio.create_task(bench.persistence.open("totals-0", beside=False))
            await asyncio.sleep(0.01)
            go_on.set()
            store = await opening  # opened again behind the close, though nobody waited for it
        assert store.changelog_offset == 2
        assert len(list(store.scan(b""))) == 2

    asyncio.run(main())


def test_a_store_that_nobody_waits_for_any_more_is_closed_again() -> None:
    async def main() -> None:
        bench = Bench()
        opening = asyncio.create_task(bench.persistence.open("other-0"))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        await bench.persistence.settle()
        assert not bench.stores._holders["other-0"].is_open

    asyncio.run(main())


def test_a_disk_that_hangs_holds_nobody_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(drain_timeout_s=0.1)
        with held(monkeypatch), capture_logs() as logs:
            bench.commit(a=1)
            bench.follow()
            started = time.monotonic()
            bench.persistence.close(bench.state)
            for _ in range(20):  # as many tasks: only the first one waits
                await bench.persistence.settle()
            await bench.persistence.end()
            assert time.monotonic() - started < 1.0
            assert [line["event"] for line in logs] == ["the disk does not answer: state is left as it is"]

    asyncio.run(main())


def test_rocksdb_is_read_here_while_another_thread_writes_it(tmp_path: Path) -> None:
    async def main() -> None:
        bench = Bench(RocksStores(tmp_path, 8 * MIB, 8 * MIB), state_flush_interval_s=0.0)
        for number in range(50):
            bench.commit(**{f"k{key}": number for key in range(100)})
            bench.follow()
            await asyncio.sleep(0.001)
            assert [bench.total(f"k{key}") for key in (0, 99)] == [number, number]
        bench.persistence.close(bench.state)
        store = await bench.persistence.open("totals-0")
        assert store.changelog_offset == 50
        bench.persistence.do(store.close)
        await bench.persistence.end()

    asyncio.run(main())


# Commits a hundred times a second until it is killed, and says when.
CHILD = """
import asyncio, sys, time
from pathlib import Path
from tests.runtime.test_persist import Bench, MIB
from streamkit.state.rocks import RocksStores

async def main():
    stores = RocksStores(Path(sys.argv[1]), 8 * MIB, 8 * MIB)
    bench = Bench(stores, state_flush_interval_s=float(sys.argv[2]))
    while True:
        bench.commit(**{f"k{key}": bench.state.changelog_offset for key in range(20)})
        print(time.monotonic(), bench.state.changelog_offset, flush=True)
        bench.persistence.follow(lambda: [bench.state])
        await asyncio.sleep(0.01)

asyncio.run(main())
"""
# What a laden machine may be late by.
LATE_S = 2.0


def test_a_killed_process_leaves_no_more_of_its_changelog_than_the_flush_interval(tmp_path: Path) -> None:
    interval_s = 0.3
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), str(interval_s)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    committed: list[tuple[float, int]] = []
    try:
        while not committed or committed[-1][0] < committed[0][0] + interval_s + LATE_S + 1.0:
            at_s, offset = child.stdout.readline().split()
            committed.append((float(at_s), int(offset)))
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.stdout.close()
        child.wait()
    store = RocksStores(tmp_path, 8 * MIB, 8 * MIB).open("totals-0")
    killed_at = committed[-1][0]
    on_disk = max(offset for at_s, offset in committed if at_s < killed_at - interval_s - LATE_S)
    assert store.changelog_offset >= on_disk > 0
    assert len(list(store.scan(b""))) == 20
    store.close()
