"""Two processes that open one state folder at the same moment: neither takes it for damaged."""

from pathlib import Path
from typing import Any

import pytest
from rocksdict import Rdict
from structlog.testing import capture_logs

from streamkit.state.rocks import RocksStores
from streamkit.state.store import StateStore

MIB = 1024 * 1024
ROWS = {b"%03d" % number: b"x" for number in range(100)}

# What RocksDB says to one of two processes that open a folder at the same moment (seen in a race of three).
RACE = (
    "IO error: No such file or directory: while unlink() file: /x/LOG.old.17951284: No such file or directory"
)


def open_store(folder: Path) -> StateStore:
    return RocksStores(folder, 8 * MIB, 8 * MIB).open("totals-0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a sound database."""
    store = open_store(tmp_path)
    store.apply(ROWS, 1)
    store.close()
    return tmp_path


@pytest.mark.parametrize("times", [1, 3])
def test_a_folder_that_another_process_opens_at_the_same_moment_is_opened_again(
    times: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced: list[None] = []

    def opened(*arguments: Any, **named: Any) -> Any:
        if len(raced) < times:
            raced.append(None)
            raise OSError(RACE)
        return Rdict(*arguments, **named)

    monkeypatch.setattr("streamkit.state.rocks.Rdict", opened)
    with capture_logs() as logs:
        store = open_store(folder)
    assert dict(store.scan(b"")) == ROWS
    store.close()
    assert logs == []


def test_a_folder_that_is_opened_elsewhere_again_and_again_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def opened(path: str, *arguments: Any, **named: Any) -> Any:
        if "~" not in path:
            raise OSError(RACE)
        return Rdict(path, *arguments, **named)

    monkeypatch.setattr("streamkit.state.rocks.Rdict", opened)
    with capture_logs() as logs:
        open_store(folder).close()
    assert [each["event"] for each in logs] == ["state folder is held by another process"]
    monkeypatch.undo()
    store = open_store(folder)
    assert dict(store.scan(b"")) == ROWS
    store.close()
