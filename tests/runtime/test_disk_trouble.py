"""A store that fails says nothing about the records: they wait until it works again."""

import contextlib
from types import FunctionType

import pytest

from streamkit.errors import Misconfigured, Retry, StateCorrupt, StreamkitError
from streamkit.state.keys import RESERVED_PREFIX
from streamkit.state.memory import MemoryStore
from streamkit.testing import Harness
from streamkit.testing.virtual_disk import VirtualDisk
from tests.progress.alarms import ORDERS, RINGS, Order, ringing
from tests.runtime.pages import COUNTS, VIEWS, View, check_running_counts, counting


@pytest.mark.parametrize("error", [StateCorrupt("a block is damaged"), Retry("too many open files")])
def test_no_record_is_set_aside_because_a_store_cannot_be_read(
    error: StreamkitError, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_reading(monkeypatch, error, times=3)
    with Harness(counting(), partitions=1) as harness:
        for page in ("home", "cart", "home"):
            harness.send(VIEWS, View(page))
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"home": 2, "cart": 1}
        assert harness.dead_letters() == []


def test_no_timer_is_set_aside_because_a_store_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with Harness(ringing(), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10]), key="a")
        harness.run()
        harness.crash()
        harness.restart()
        harness.run()
        fail_reading(monkeypatch, StateCorrupt("a block is damaged"), times=1)
        harness.send(ORDERS, Order(100), key="a")
        harness.run()
        assert len(harness.read(RINGS)) == 1
        assert harness.dead_letters() == []


def fail_reading(monkeypatch: pytest.MonkeyPatch, error: StreamkitError, times: int) -> None:
    """The first reads for an operator fail."""
    read, left = MemoryStore.get, [times]

    def get(self: MemoryStore, key: bytes) -> bytes | None:
        if left[0] > 0 and not key.startswith(RESERVED_PREFIX):
            left[0] -= 1
            raise error
        return read(self, key)

    # Who raised an error is told by the module of its code, and a store's is one of ours.
    of_a_store = {**get.__globals__, "__name__": MemoryStore.__module__}
    posing = FunctionType(get.__code__, of_a_store, closure=get.__closure__)
    monkeypatch.setattr(MemoryStore, "get", posing)


def test_a_disk_that_hangs_ends_the_worker_for_a_person() -> None:
    """It would keep its tasks otherwise, and take no record."""
    with Harness(
        counting(), partitions=1, memory_bytes=4 * 1024 * 1024, state_apply_interval_s=0.1
    ) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        worker = harness.workers[0]
        assert worker.loop is not None
        disk = worker.loop._persistence._disk
        assert isinstance(disk, VirtualDisk)
        disk._delay_s = lambda: 10 * 24 * 3600.0
        for number in range(25):
            harness.send(VIEWS, *[View("p" * 2000 + f"{number}-{each}") for each in range(400)])
            with contextlib.suppress(Misconfigured):
                harness.advance(60.0)
        assert isinstance(worker.work.exception(), Misconfigured)
        assert "disk" in str(worker.work.exception())
        disk._jobs.clear()
