"""local: shuffles between tasks of one worker, in memory and inside the same transaction.

A worker is one transaction, so a record for another task of the same worker needs no broker: both ends are committed
together. `task/emit.py` appends to a list instead of a batch, and the loop runs the list through the task that it
is for. What must not happen is that a record overtakes one that was written to the topic before it. So all shuffles
of a worker go one way at a time:

    TOPIC      by the topic: always right, whoever owns the task at the other end
    GATHERING  nothing new is read until the tasks have read what lies in their topics
    LOCAL      what is for a task of this worker is handed to it; the rest goes by the topic

The way back to TOPIC is open at any moment: what was handed over is in the span already. It is taken when tasks come
or go, and for a while after a span was taken back: a record that failed is then found at a place in its topic, and the
error policy does with it what it always does.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import islice

import msgspec
import structlog

from streamkit.errors import Retry
from streamkit.kafka.ports import Admin
from streamkit.model.ids import TopicPartition
from streamkit.model.records import Headers, LogRecord
from streamkit.progress.task_clock import TimerFailed
from streamkit.runtime.assign import Roster
from streamkit.runtime.commit import Committer
from streamkit.runtime.pauses import Pause, Pauses
from streamkit.task.chain import Paused, RecordFailed
from streamkit.task.emit import RECORD_OVERHEAD_BYTES, Lane
from streamkit.task.failures import Failures, Verdict
from streamkit.task.ingest import Intake
from streamkit.task.task import Life, Task

log = structlog.get_logger()

# Gathering stops all reading: it is not begun with more than this in the topics, and given up after this long.
BACKLOG_MAX = 500_000
GATHERING_S_MAX = 5.0
# How long to wait before the next try when the topics hold too much, or could not be asked, or did not become quiet.
AGAIN_S = 1.0
# Longer each time that they did not become quiet, up to this: an open transaction may last, and nothing is read meanwhile.
AGAIN_LAST_S = 300.0


class Way(Enum):
    """How the shuffles of a worker go."""

    TOPIC = "by topic"
    GATHERING = "gathering"
    LOCAL = "local"


class HandedRecord(msgspec.Struct, gc=False):
    """A record for a task of the same worker; keeps the promises of `LogRecord`, and has no place in any log."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    offset: int = -1


class HandedBatch:
    """Takes the place of an output batch: keeps the promises of `Batch`, but what is appended stays here."""

    def __init__(self, bytes_max: int) -> None:
        self.records: list[LogRecord] = []
        self._room = bytes_max - RECORD_OVERHEAD_BYTES

    def append(
        self, index: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> object | None:
        """As `Batch.append`; refuses what the topic would refuse, so that the way makes no difference."""
        size = (len(key) if key else 0) + (len(value) if value else 0)
        if headers:
            size += sum(len(name) + len(content or b"") for name, content in headers)
        if size > self._room:
            return None
        self.records.append(HandedRecord(timestamp, key, value, headers))
        return index

    def size(self) -> int:
        """Nothing: none of it is for the writer."""
        return 0


class HandedIntake(Intake):
    """Records that were handed over, on their way into their task."""

    def __init__(self, task: Task, partition: TopicPartition, records: list[LogRecord]) -> None:
        super().__init__(task, partition)
        self._records = records

    def _run_records(self, limit: int, failures: Failures) -> Verdict | None:  # noqa: ARG002 - none is judged here
        records, self._records = self._records[:limit], self._records[limit:]
        self.slice_size = len(records)
        try:
            if self.task.careful is None:
                self._run(records)
            else:
                self._run_each(records)
        except RecordFailed as failed:
            log.info("a record that was handed over failed", task=str(self.task.id), step=failed.step)
            self.task.book.is_suspect = True  # it will come by its topic
            return Verdict.RUN_AGAIN
        except Paused as paused:
            at = next(index for index, record in enumerate(records) if record is paused.record)
            self._records = records[at:] + self._records
            self.is_paused = True
        self.done = not self._records
        return None

    def _run_each(self, records: list[LogRecord]) -> None:
        for index, record in enumerate(records):
            try:
                self._run_one(record)
            except TimerFailed:
                self._records = records[index:] + self._records
                raise


class Door(msgspec.Struct):
    """Where records for one task of this worker are handed over."""

    partition: TopicPartition
    task: Task
    batch: HandedBatch


class LocalShuffles:
    """Decides how the shuffles of a worker go, and holds what was handed over."""

    def __init__(
        self, lanes: Mapping[str, Lane], roster: Roster, committer: Committer, pauses: Pauses, admin: Admin
    ) -> None:
        """`lanes` are those of the shuffles, in the order of the plan; none if all is to go by the topics."""
        self._lanes = lanes
        self._roster = roster
        self._committer = committer
        self._pauses = pauses
        self._admin = admin
        self.way = Way.TOPIC
        self._doors: list[Door] = []
        self._waiting: deque[HandedIntake] = deque()
        # Where the topics ended, and for which tasks that is known.
        self._ends: dict[TopicPartition, int] = {}
        # Which of them still have to be read, and are not held back.
        self._behind: set[TopicPartition] | None = None
        self._version = -1
        self._asking: asyncio.Task[dict[TopicPartition, int]] | None = None
        self._not_before_s = 0.0
        self._again_s = AGAIN_S
        self._give_up_at_s = 0.0

    # -- what was handed over -------------------------------------------------------------------------------------

    def current(self, *, whole_chunks: bool = False) -> HandedIntake | None:
        """What is to be run next: that of the last stage first, so that little waits at any time.

        With `whole_chunks` only where as much lies as its task would run at a time: a few records cost a chunk as many do.
        """
        waiting = self._waiting
        while waiting and waiting[0].done:
            waiting.popleft()
        if not waiting:
            waiting.extend(islice(self._taken(whole_chunks=whole_chunks), 1))
        return waiting[0] if waiting else None

    def _taken(self, *, whole_chunks: bool = False) -> Iterator[HandedIntake]:
        """What lies at the doors, taken in."""
        for door in self._doors:
            if len(door.batch.records) >= (door.task.pace.size if whole_chunks else 1):
                records, door.batch.records = door.batch.records, []
                yield HandedIntake(door.task, door.partition, records)

    def drop(self) -> None:
        """Forget what was handed over: the span is dropped."""
        self._waiting.clear()
        for door in self._doors:
            door.batch.records = []

    # -- which way ------------------------------------------------------------------------------------------------

    def leave(self, until_s: float = 0.0) -> None:
        """Go by the topics from now on, at least until then; what was handed over stays in the span."""
        if self.way is Way.LOCAL:
            log.debug("records between stages of this worker now go through the shuffle topics")
            self._waiting.extend(self._taken())
            self._doors = []
            for lane in self._lanes.values():
                lane.close_doors()
        if self.way is Way.GATHERING:
            self._pauses.hold_only(frozenset(), Pause.GATHERING)
        self.way = Way.TOPIC
        self._not_before_s = max(self._not_before_s, until_s)
        self._version = -1
        self._stop_asking()

    @property
    def partitions(self) -> int:
        """How many partitions are handed over to."""
        return len(self._doors)

    @property
    def is_changing(self) -> bool:
        """Whether the next look may find a better way, and should come soon."""
        return self.way is Way.GATHERING

    def follow(self) -> None:
        """Go by the topics if tasks have come or gone: what they or their former owners wrote is read first."""
        if self.way is not Way.TOPIC and self._version != self._roster.version:
            self.leave()

    def begin(self, now_s: float) -> None:
        """Begin to gather, if it is time to; what was fetched already may still wait, if it does not take long.

        Under load there may never be a moment in which nothing does.
        """
        if self.way is Way.TOPIC and now_s >= self._not_before_s:
            self._gather(now_s)

    def choose(self, now_s: float) -> None:
        """Look whether the way can be a better one; called when nothing that was fetched or handed over waits."""
        match self.way:
            case Way.TOPIC:
                self.begin(now_s)
            case Way.GATHERING if now_s >= self._give_up_at_s:
                self._give_up(now_s)
            case Way.GATHERING if self._asking is not None:
                self._hear(now_s)
            case Way.GATHERING if self._hold_back() and self._is_quiet():
                self._open_doors()
            case _:
                pass

    def _give_up(self, now_s: float) -> None:
        """Go by the topics, which may not become quiet for long: a busy moment is nothing, a second one is told."""
        say = log.info if self._again_s == AGAIN_S else log.warning
        say(
            "shuffles did not become quiet: they go by their topics",
            waiting_for=[str(at) for at in self._ends if self._left(at)] or "their ends",
            again_s=self._again_s,
        )
        self.leave(now_s + self._again_s)
        self._again_s = min(2 * self._again_s, AGAIN_LAST_S)

    def _gather(self, now_s: float) -> None:
        """Read nothing, and ask where the topics end, once all tasks run: who wrote to them before was fenced by then."""
        shuffled = [at for at in self._roster.owner_of if at.topic in self._lanes]
        if not shuffled or any(task.life is not Life.RUNNING for task in self._roster.tasks.values()):
            return
        self.way = Way.GATHERING
        self._version = self._roster.version
        self._give_up_at_s = now_s + GATHERING_S_MAX
        self._ends, self._behind = {}, None
        self._hold_back()
        self._asking = asyncio.create_task(self._ask(shuffled), name="ends of shuffles")

    def _hear(self, now_s: float) -> None:
        """Take the answer, if there is one, and read what it says is left; unless that is too much."""
        assert self._asking is not None
        if self._asking.done():
            self._ends, self._asking = self._asking.result(), None
            if self._ends and sum(self._left(at) for at in self._ends) <= BACKLOG_MAX:
                self._hold_back()
            else:
                self.leave(now_s + AGAIN_S)

    async def _ask(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            return await self._admin.end_offsets(partitions, committed=False)
        except Retry as error:
            log.info("could not ask where the shuffles end", error=str(error))
            return {}

    def _left(self, partition: TopicPartition) -> int:
        """How far a task is from what is known to lie in its topic."""
        end = max(self._ends.get(partition, 0), self._committer.ends.get(partition, 0))
        return max(0, end - self._roster.owner_of[partition].positions[partition])

    def _hold_back(self) -> bool:
        """Read on only where something older waits; whether nothing does."""
        behind = {partition for partition in self._ends if self._left(partition)}
        if behind != self._behind:
            self._behind = behind
            self._pauses.hold_only(self._roster.owner_of.keys() - behind, Pause.GATHERING)
        return not behind

    def _is_quiet(self) -> bool:
        """Whether nothing is on its way to a topic."""
        return not self._committer.busy and not any(task.moved for task in self._roster.running())

    def _open_doors(self) -> None:
        self.leave()
        self.way = Way.LOCAL
        self._again_s = AGAIN_S
        self._version = self._roster.version
        for topic, lane in reversed(list(self._lanes.items())):
            for at, task in self._roster.owner_of.items():
                if at.topic == topic:
                    batch = HandedBatch(lane.record_bytes_max)
                    lane.open_door(at.partition, batch)
                    self._doors.append(Door(at, task, batch))
        log.debug(
            "records between stages of this worker now go through memory, not topics",
            partitions=len(self._doors),
        )

    def _stop_asking(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    async def stop(self) -> None:
        """End what is under way."""
        asking = self._asking
        self._stop_asking()
        if asking is not None:
            await asyncio.wait([asking])
