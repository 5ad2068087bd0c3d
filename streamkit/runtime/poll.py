"""poll: committed record batches, as bytes, for the tasks that are ready for them.

The first step in the worker. Whatever the reader has buffered becomes intakes (`task/ingest.py`), one per batch and
in order. Partitions take turns: one whose records are slow goes to the back of the queue after about 100 ms. While a
partition has an intake left nothing more of it is taken from the reader; its bounded buffers then fill up and it stops
fetching: that is all the backpressure there is.
"""

from collections import OrderedDict, deque

from streamkit.kafka.ports import Reader
from streamkit.model.ids import TopicPartition
from streamkit.progress.pace import TURN_MS
from streamkit.runtime.assign import Roster
from streamkit.task.engine import Engine
from streamkit.task.ingest import FetchedIntake
from streamkit.task.task import Life, Task

# A poll that brings less than this leaves the worker mostly waiting: it may as well wait for the next one.
CALM_BYTES = 64 * 1024


class Intakes:
    """The fetched batches that wait for their turn."""

    def __init__(self, reader: Reader, roster: Roster, engine: Engine) -> None:
        self._reader = reader
        self._engine = engine
        self._roster = roster
        # By partition, the one whose turn it is first.
        self._waiting: OrderedDict[TopicPartition, deque[FetchedIntake]] = OrderedDict()
        self._last_poll_bytes = 0
        # What the turn of the first partition has taken so far, and all turns since the reader was asked last.
        self._turn_ms = 0
        self._since_poll_ms = 0

    @property
    def calm(self) -> bool:
        """True if everything is processed and the last poll brought little: there is time to wait for more."""
        return self.drained and self._last_poll_bytes < CALM_BYTES

    @property
    def drained(self) -> bool:
        """True if nothing that was fetched is left to process."""
        return self.current() is None

    @property
    def are_quick(self) -> bool:
        """Whether what waits will soon be done, as far as one can tell from what came before it."""
        return all(queue[0].task.pace.is_quick for queue in self._waiting.values())

    async def turn(self) -> FetchedIntake | None:
        """The batch whose turn it is; None if nothing waits.

        While slow ones wait, the partitions that are done are asked for more: they must not stand still meanwhile.
        """
        if self._since_poll_ms >= TURN_MS and len(self._waiting) < len(self._roster.owner_of):
            await self._take(0.0)
        return self.current()

    async def poll(self, timeout_s: float) -> FetchedIntake | None:
        """The batch to work on, when none waits; None if nothing came in time."""
        await self._take(timeout_s)
        return self.current()

    async def _take(self, timeout_s: float) -> None:
        """Take what the reader has of partitions of which nothing waits."""
        self._since_poll_ms = 0
        fetched = await self._reader.poll(timeout_s, without=self._waiting)
        self._last_poll_bytes = sum(batch.size_bytes for batch in fetched)
        for batch in fetched:
            task = self._roster.owner_of.get(batch.partition)
            if task is None or task.life is not Life.RUNNING:
                continue
            if task.is_read_to_its_end(batch.partition):
                self._reader.forget(batch.partition)
            else:
                intake = self._engine.intake(task, batch)
                self._waiting.setdefault(batch.partition, deque()).append(intake)

    def charge(self, took_ms: int) -> None:
        """The current batch has been worked on for so long; after a whole turn the next partition follows."""
        self._turn_ms += took_ms
        self._since_poll_ms += took_ms
        if self._turn_ms >= TURN_MS:
            self._turn_ms = 0
            self._waiting.move_to_end(next(iter(self._waiting)))

    def current(self) -> FetchedIntake | None:
        """The first batch that is not done, without asking for more."""
        waiting = self._waiting
        while waiting:
            partition, queue = next(iter(waiting.items()))
            if not queue[0].done:
                return queue[0]
            queue.popleft()
            if not queue:
                del waiting[partition]
                self._turn_ms = 0
        return None

    def drop(self, tasks: set[Task] | None = None) -> None:
        """Forget what waits for these tasks, or for all."""
        for partition, queue in list(self._waiting.items()):
            if tasks is None or queue[0].task in tasks:
                del self._waiting[partition]
