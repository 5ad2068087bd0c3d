"""The watch beside a node: what it does at each order, and what becomes of the folder."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from streamkit.testing.broker import watch

LIMIT_S = 20.0
PATIENT = "import sys, time; print('ready', file=sys.stderr, flush=True); time.sleep(60)"
# Ends at SIGTERM only after it has written down that it was asked.
ORDERLY = """
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path(sys.argv[1]).write_text("asked")
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("ready", file=sys.stderr, flush=True)
time.sleep(60)
"""


def start(discard: str, *command: str) -> "subprocess.Popen[bytes]":
    """A watch whose command is ready: its first words are on standard error."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", watch.__file__, discard, sys.executable, "-c", *command],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr
    assert process.stderr.readline() == b"ready\n"
    return process


def end(process: "subprocess.Popen[bytes]", orders: bytes) -> int:
    """Send these orders, then the end of the pipe; returns the command's process id."""
    assert process.stdout
    pid = int(process.stdout.readline())
    assert psutil.pid_exists(pid)
    assert process.stdin
    process.stdin.write(orders)
    process.stdin.close()
    assert process.wait(LIMIT_S) == 0
    process.stdout.close()
    assert process.stderr
    process.stderr.close()
    return pid


@pytest.mark.parametrize(
    ("told", "orders", "stays"), [(True, b"", False), (False, b"", True), (True, b"q", True)]
)
def test_only_the_end_of_the_owner_discards_and_only_a_folder_that_was_told(
    tmp_path: Path, told: bool, orders: bytes, stays: bool
) -> None:
    folder = tmp_path / "cluster" / "node"
    folder.mkdir(parents=True)
    (folder / "file").touch()
    process = start(str(folder) if told else "", PATIENT)
    assert not psutil.pid_exists(end(process, orders))
    assert (folder / "file").exists() == stays
    assert (tmp_path / "cluster").exists() == stays


def test_a_command_that_is_asked_to_end_does_so_in_its_own_time(tmp_path: Path) -> None:
    process = start("", ORDERLY, str(tmp_path / "said"))
    assert process.stdout
    pid = int(process.stdout.readline())
    assert process.stdin
    process.stdin.write(watch.TERMINATE)
    assert process.stdout.read() == b""  # the end of the stream is the end of the command
    assert (tmp_path / "said").read_text() == "asked"
    assert not psutil.pid_exists(pid)
    process.stdin.close()
    process.stdout.close()
    assert process.stderr
    process.stderr.close()
    assert process.wait(LIMIT_S) == 0
