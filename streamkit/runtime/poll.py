"""poll: committed record batches, as bytes, for the tasks that are ready for them.

The first step of the walk. Whatever the reader has buffered becomes intakes (`runtime/ingest.py`), one per batch and
in order. While there are intakes left nothing more is taken from the reader; its bounded buffers then fill up and it
stops fetching: that is all the backpressure there is.
"""

from collections import deque

from streamkit.kafka.ports import Reader
from streamkit.runtime.assign import Roster
from streamkit.runtime.ingest import FetchedIntake
from streamkit.runtime.task import Life, Task

# A poll that brings less than this leaves the worker mostly waiting: it may as well wait for the next one.
CALM_BYTES = 64 * 1024


class Intakes:
    """The fetched batches that wait for their turn."""

    def __init__(self, reader: Reader, roster: Roster) -> None:
        self._reader = reader
        self._roster = roster
        self._waiting: deque[FetchedIntake] = deque()
        self._last_poll_bytes = 0

    @property
    def calm(self) -> bool:
        """True if everything is processed and the last poll brought little: there is time to wait for more."""
        return self.drained and self._last_poll_bytes < CALM_BYTES

    @property
    def drained(self) -> bool:
        """True if nothing that was fetched is left to process."""
        return self.current() is None

    async def poll(self, timeout_s: float) -> FetchedIntake | None:
        """The batch to work on: the one in hand until it is done, then the next; None if nothing came in time."""
        intake = self.current()
        if intake is None:
            fetched = await self._reader.poll(timeout_s)
            self._last_poll_bytes = sum(batch.size_bytes for batch in fetched)
            for batch in fetched:
                task = self._roster.owner_of.get(batch.partition)
                if task is None or task.life is not Life.RUNNING:
                    continue
                if task.is_read_to_its_end(batch.partition):
                    self._reader.forget(batch.partition)
                else:
                    self._waiting.append(FetchedIntake(task, batch))
            intake = self.current()
        return intake

    def current(self) -> FetchedIntake | None:
        """The first batch that is not done, without asking for more."""
        waiting = self._waiting
        while waiting and waiting[0].done:
            waiting.popleft()
        return waiting[0] if waiting else None

    def drop(self, tasks: set[Task] | None = None) -> None:
        """Forget what waits for these tasks, or for all."""
        keep = () if tasks is None else [intake for intake in self._waiting if intake.task not in tasks]
        self._waiting = deque(keep)
