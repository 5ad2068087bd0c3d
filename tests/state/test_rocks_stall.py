"""RocksDB that takes no writes for a while: nobody but the writer waits."""

import os
import threading
import time
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from streamkit.errors import Retry
from streamkit.state import rocks_store
from streamkit.state.rocks_store import RocksStore


def stalled_store(folder: Path) -> RocksStore:
    """A store with as many files as it may have before they are merged, which takes about half a second."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_level_zero_file_num_compaction_trigger(2)
    options.set_level_zero_slowdown_writes_trigger(2)
    options.set_level_zero_stop_writes_trigger(2)
    options.set_ratelimiter(20_000, 100_000, 10)
    store = RocksStore(Rdict(str(folder), options), folder)
    for number in range(2):
        store.apply({b"\x00\x00%d" % at: os.urandom(100) for at in range(100)}, number + 1)
        store.flush()
    return store


def test_a_stalled_write_holds_no_other_thread_and_ends_with_the_stall(tmp_path: Path) -> None:
    store = stalled_store(tmp_path)
    writing = threading.Thread(target=store.apply, args=({b"\x00\x00new": b"x"}, 9))
    started = time.monotonic()
    writing.start()
    time.sleep(0.02)
    turns = 0
    while writing.is_alive():
        assert store.get(b"\x00\x001") is not None
        turns += 1
        time.sleep(0.01)
    # With the GIL held by the stall there would be no turn but the first.
    assert turns > (time.monotonic() - started) / 0.1
    assert turns > 2
    assert (store.get(b"\x00\x00new"), store.changelog_offset) == (b"x", 9)
    store.close()


def test_a_stall_without_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocks_store, "STALL_S_MAX", 0.0)
    store = stalled_store(tmp_path)
    with pytest.raises(Retry, match="takes no writes"):
        store.apply({b"\x00\x00new": b"x"}, 9)
    assert store.changelog_offset == 2
    store.close()
