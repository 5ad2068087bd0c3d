"""turns: whose records are run, and for how long, before the event loop does anything else.

A turn is over after `slice_records` records or after about 100 ms, whatever comes first: quick records are bounded by
their number, slow ones by the clock. What was handed over within the worker goes first (`runtime/local.py`), then the
partitions take turns (`runtime/poll.py`).
"""

from collections.abc import Callable

from streamkit.progress.pace import CHUNK_MS, TURN_MS, Pace
from streamkit.runtime.local import HandedIntake, LocalShuffles
from streamkit.runtime.poll import Intakes
from streamkit.runtime.refusals import Refusals
from streamkit.task.failures import Verdict
from streamkit.task.ingest import Intake
from streamkit.task.task import Task


class Turns:
    """Runs what is in hand, one turn at a time."""

    def __init__(
        self,
        local: LocalShuffles,
        intakes: Intakes,
        refusals: Refusals,
        slice_records: int,
        elapsed_ms: Callable[[], int],
    ) -> None:
        self._local = local
        self._intakes = intakes
        self._failures = refusals.failures
        self._refusals = refusals
        self._slice_records = slice_records
        self._elapsed_ms = elapsed_ms
        # The last chunk that was read from a topic, and what it has taken so far with all that it handed over.
        self._read_pace = Pace()
        self._read_count = 0
        self._read_ms = 0

    def waiting(self) -> Intake | None:
        """What is in hand already: first what was handed over, once it is a chunk, then what was fetched."""
        local = self._local
        return local.current(whole_chunks=True) or self._intakes.current() or local.current()

    async def next(self) -> Intake | None:
        """As `waiting`; while slow records wait, partitions that have none are asked for more."""
        local = self._local
        return local.current(whole_chunks=True) or await self._intakes.turn() or local.current()

    def run(self, intake: Intake | None) -> tuple[Task, Verdict] | None:
        """One turn, from this intake on; returns a task in which a record failed, and what to do about it."""
        return self._run(intake, self.waiting, self._refusals.room(self._slice_records))

    def run_handed(self) -> tuple[Task, Verdict] | None:
        """One turn of what was handed over; see `run`."""
        return self._run(self._local.current(), self._local.current, self._slice_records)

    def _run(
        self, intake: Intake | None, following: Callable[[], Intake | None], left: int
    ) -> tuple[Task, Verdict] | None:
        now_ms = self._elapsed_ms()
        ends_ms = now_ms + TURN_MS
        while intake is not None and left > 0 and now_ms < ends_ms:
            began_ms = now_ms
            verdict = intake.run_slice(left, self._failures)
            if verdict is not None:
                return intake.task, verdict
            now_ms = self._elapsed_ms()
            self._account(intake, now_ms - began_ms)
            self._refusals.took(intake)
            if intake.is_paused:
                break
            left -= intake.slice_size
            intake = following()
        return None

    def _account(self, intake: Intake, took_ms: int) -> None:
        """Learn from what a chunk took; one that was read takes as long as all that it hands over, too."""
        if not intake.is_paused:
            intake.task.pace.learn(intake.slice_size, took_ms)
        if isinstance(intake, HandedIntake):
            self._read_ms += took_ms
            if self._read_ms > CHUNK_MS:
                self._read_pace.learn(self._read_count, self._read_ms)
        else:
            self._read_pace, self._read_count, self._read_ms = intake.task.pace, intake.slice_size, took_ms
            self._intakes.charge(took_ms)
