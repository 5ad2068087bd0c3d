"""The demo from its command line to its exit code, and its auditor against counts that are wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from services.page_views.demo_audit import audit
from streamkit.testing.broker import start_broker

ROOT = Path(__file__).resolve().parents[2]
GOOD_END = "exactly once: a worker was killed, and no view was lost or counted twice"


def demo(tmp_path: Path, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    """Start the demo with a temporary folder of its own."""
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "services.page_views.demo", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A runner that spreads tests over processes ignores Ctrl-C in them, and a child would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )


def views(*pages: str, user: str = "ann") -> list[bytes]:
    """Input as it lies in the topic."""
    return [json.dumps({"user": user, "page": page, "at": 0}).encode() for page in pages]


def counts(*pairs: tuple[str, int]) -> list[bytes]:
    """Output as it lies in the topic."""
    return [json.dumps({"page": page, "views": number}).encode() for page, number in pairs]


def test_the_auditor_is_content_with_running_counts() -> None:
    """Pages may be mixed, bots are not counted."""
    found = audit([*views("a", "b", "a"), *views("a", user="bot-1")], counts(("a", 1), ("a", 2), ("b", 1)))
    assert found.good
    assert (found.records_in, found.bots, found.records_out) == (4, 1, 3)


@pytest.mark.parametrize(
    ("output", "lost", "twice"),
    [
        ([("a", 1), ("a", 2)], 1, 0),  # the last one is missing
        ([("a", 1), ("a", 3)], 1, 0),  # one in between is missing
        ([("a", 1), ("a", 2), ("a", 2), ("a", 3)], 0, 1),  # one is repeated
        ([("a", 1), ("a", 2), ("a", 3), ("a", 4)], 0, 1),  # a view was counted twice
        ([("a", 1), ("a", 2), ("a", 3), ("b", 1)], 0, 1),  # a page that nobody opened
        ([("a", 2), ("a", 1), ("a", 3)], 0, 0),  # all there, in another order
        ([], 3, 0),
    ],
)
def test_the_auditor_finds_what_is_wrong(output: list[tuple[str, int]], lost: int, twice: int) -> None:
    """Three views of one page, counted wrongly."""
    found = audit(views("a", "a", "a"), counts(*output))
    assert not found.good
    assert (found.lost, found.twice) == (lost, twice)


def test_it_runs_in_memory_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Five seconds, one worker cut off, a good audit."""
    process = demo(tmp_path, "--memory", "--seconds", "5")
    said, _ = process.communicate(timeout=100)
    assert process.returncode == 0, said
    assert GOOD_END in said
    assert "in-memory log" in said
    assert "worker 2, life 1, is cut off" in said
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_it_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """An impatient audience."""
    process = demo(tmp_path, "--memory", "--seconds", "60")
    assert process.stdout is not None
    while "visitors come" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert process.wait(30) == 130
    assert time.monotonic() - began < 20
    process.stdout.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_two_demos_beside_each_other_on_one_kafka(tmp_path: Path) -> None:
    """Each with its own names, each with workers killed by SIGKILL; the broker is left as it was."""
    with start_broker() as broker:
        folders = [tmp_path / "first", tmp_path / "second"]
        for folder in folders:
            folder.mkdir()
        both = [demo(folder, "--seconds", "8", STREAMKIT_BROKERS=broker.bootstrap) for folder in folders]
        for process, folder in zip(both, folders, strict=True):
            said, _ = process.communicate(timeout=280)
            assert process.returncode == 0, said
            assert GOOD_END in said
            assert "is killed: kill -9" in said
            assert "is started again by its parent: pid" in said
            assert list(folder.iterdir()) == []
        left = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=20).topics
        assert [
            topic for topic in left if topic.startswith(("page-views-", "page-counts-", "page_views-"))
        ] == []
