"""The parent of several workers: it restarts, it forwards, and nobody outlives it."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streamkit.config import Settings
from streamkit.errors import BrokerUnreachable, Bug, InvalidPipeline
from streamkit.runtime.processes import (
    EXIT_KILLED,
    EXIT_PERSON_MUST_ACT,
    EXIT_TRY_AGAIN,
    Processes,
    exit_code,
    how_it_ended,
)
from streamkit.runtime.stop_signals import SAME_WISH_S

FAST = Settings(restart_delay_first_s=0.01, restart_delay_last_s=0.05, drain_timeout_s=5)

WAITS = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
number = os.environ["STREAMKIT_WORKER_NUMBER"]
def on_term(*_):
    (folder / f"drained-{number}").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, on_term)
(folder / f"pid-{number}-{os.getpid()}").touch()
while True:
    time.sleep(0.05)
"""


def command(code: str, folder: Path) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code), str(folder)]


def names(folder: Path, pattern: str) -> list[str]:
    return sorted(each.name for each in folder.glob(pattern))


async def until(folder: Path, pattern: str, count: int) -> list[str]:
    while len(found := names(folder, pattern)) < count:  # noqa: ASYNC110 - the news comes from another process
        await asyncio.sleep(0.02)
    return found


async def test_stop_lets_every_worker_drain(tmp_path: Path) -> None:
    processes = Processes(command(WAITS, tmp_path), 2, FAST)
    running = asyncio.create_task(processes.run())
    await until(tmp_path, "pid-*", 2)
    processes.stop()
    assert await running == 0
    assert names(tmp_path, "drained-*") == ["drained-0", "drained-1"]


async def test_a_signal_to_the_parent_is_one_signal_to_each_worker(tmp_path: Path) -> None:
    running = asyncio.create_task(Processes(command(WAITS, tmp_path), 2, FAST).run())
    await until(tmp_path, "pid-*", 2)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert len(names(tmp_path, "drained-*")) == 2


async def test_a_second_signal_kills(tmp_path: Path) -> None:
    deaf = WAITS.replace("sys.exit(0)", "pass")
    running = asyncio.create_task(Processes(command(deaf, tmp_path), 1, FAST).run())
    await until(tmp_path, "pid-*", 1)
    os.kill(os.getpid(), signal.SIGINT)
    await until(tmp_path, "drained-*", 1)
    await asyncio.sleep(SAME_WISH_S)
    os.kill(os.getpid(), signal.SIGINT)
    assert await running == EXIT_KILLED


async def test_a_wish_that_arrives_twice_is_one_wish(tmp_path: Path) -> None:
    running = asyncio.create_task(Processes(command(WAITS, tmp_path), 2, FAST).run())
    await until(tmp_path, "pid-*", 2)
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)  # as from a wrapper that tells its child what the terminal told both
    assert await running == 0
    assert len(names(tmp_path, "drained-*")) == 2


async def test_a_worker_that_hangs_is_killed_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamkit.runtime.processes.CLOSING_S", 0.1)
    deaf = WAITS.replace("sys.exit(0)", "pass")
    processes = Processes(command(deaf, tmp_path), 1, Settings(drain_timeout_s=0.1))
    running = asyncio.create_task(processes.run())
    await until(tmp_path, "pid-*", 1)
    processes.stop()
    assert await running == 1


async def test_a_worker_that_died_is_started_again(tmp_path: Path) -> None:
    processes = Processes(command(WAITS, tmp_path), 1, FAST)
    running = asyncio.create_task(processes.run())
    (first,) = await until(tmp_path, "pid-*", 1)
    with capture_logs() as logs:
        os.kill(int(first.rsplit("-", 1)[1]), signal.SIGKILL)
        await until(tmp_path, "pid-*", 2)
    processes.stop()
    assert await running == 0
    assert [each["pid"] for each in logs if each["event"].startswith("worker died")] == [
        int(first.rsplit("-", 1)[1])
    ]


async def test_a_worker_that_needs_a_person_ends_all(tmp_path: Path) -> None:
    code = WAITS.replace(
        "while True:",
        f"while True:\n    if number == '0' and len(list(folder.glob('pid-*'))) == 2: sys.exit({EXIT_PERSON_MUST_ACT})",
    )
    assert await Processes(command(code, tmp_path), 2, FAST).run() == 1
    assert (tmp_path / "drained-1").exists()


async def test_workers_that_are_done_are_not_started_again(tmp_path: Path) -> None:
    assert await Processes(command("", tmp_path), 2, FAST).run() == 0


def test_exit_codes_tell_who_must_act() -> None:
    assert exit_code(InvalidPipeline("x")) == exit_code(Bug("x")) == EXIT_PERSON_MUST_ACT
    assert exit_code(BrokerUnreachable("x")) == exit_code(ValueError()) == EXIT_TRY_AGAIN
    assert how_it_ended(-9) == "SIGKILL"
    assert how_it_ended(3) == "exit code 3"


def test_a_worker_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    child = textwrap.dedent("""
        import pathlib, sys, time
        from streamkit.runtime.processes import end_with_parent
        end_with_parent(1)
        pathlib.Path(sys.argv[1], "ready").touch()
        time.sleep(60)
    """)
    parent = textwrap.dedent("""
        import asyncio, sys
        from streamkit.config import Settings
        from streamkit.runtime.processes import Processes
        asyncio.run(Processes(sys.argv[1:], 1, Settings()).run())
    """)
    started = subprocess.Popen([sys.executable, "-c", parent, sys.executable, "-c", child, str(tmp_path)])
    deadline = time.monotonic() + 60
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (worker,) = (
        int(each) for each in Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
    )
    started.kill()
    started.wait()
    while Path(f"/proc/{worker}").exists() and "Z" not in Path(f"/proc/{worker}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
