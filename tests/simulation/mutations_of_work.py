"""Broken promises about records that take time, each as a patch."""

from contextvars import Context, copy_context
from typing import Any

from streamkit.progress.pace import Pace
from streamkit.runtime import turns
from streamkit.runtime.failed_commits import FailedCommits
from streamkit.runtime.stuck_records import StuckRecords
from streamkit.testing.memory import membership


def turns_bounded_by_count_alone(patch: Any) -> None:
    """Slow records are run as many at a time as quick ones."""

    def begin(self: Pace) -> None:
        self.size = 1_000_000

    patch(Pace, "__init__", begin)
    patch(Pace, "learn", lambda _self, _count, _took_ms: None)
    patch(turns, "TURN_MS", 1_000_000_000)


def heartbeats_wait_for_the_loop(patch: Any) -> None:
    """A step that holds the worker's event loop holds its heartbeats too."""

    def here(_process: str | None) -> Context:
        return copy_context()

    patch(membership, "in_process", here)


def never_singly(patch: Any) -> None:
    """Where a chunk took too long without anybody's fault, the same chunk is run again."""
    patch(StuckRecords, "slow_down", lambda _self, _task: None)


def never_narrower(patch: Any) -> None:
    """A commit that has outlasted its transaction is made again just as large."""
    patch(FailedCommits, "_look_at", lambda _self, _error: None)


def tried_for_ever(patch: Any) -> None:
    """A record that outlasts its limit is run again whenever somebody comes to it."""
    patch(StuckRecords, "condemn", lambda _self, _task: None)
