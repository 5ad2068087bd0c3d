"""The transaction coordinator in memory: epochs, fencing and ends, as Kafka 4 with transaction version 2 does them.

The epoch rises at each end, so a late request of an ended transaction can never touch the next one. The answer to
an end is not a barrier: with `marker_delay_s`, markers appear on each partition in their own time, as they do in
Kafka. `init` and the writer's next transaction wait for them.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from streamkit.kafka.transaction_port import LastTransaction, Producer, TransactionState
from streamkit.model.commit import Member
from streamkit.model.ids import TopicPartition
from streamkit.testing.memory.batch import MemoryBatch
from streamkit.testing.memory.bell import Bell
from streamkit.testing.memory.groups import Groups
from streamkit.testing.memory.partition import Transaction, TransactionOutcome
from streamkit.testing.memory.refusal import ErrorCode, Refused
from streamkit.testing.memory.topics import Topics

# Whose marker it is: of a partition or of the group's positions; when it is due, and how it is written.
Marker = tuple[bool, float, Callable[[], None]]


class WriterRecord:
    """What the coordinator knows of one writer id; `ended` is the epoch and outcome of its last transaction.

    `markers` are those of the last transaction that are still to be written.
    """

    __slots__ = ("ended", "epoch", "markers", "producer_id", "timeout_s", "transaction")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = -1
        self.markers: list[Marker] = []
        self.timeout_s = math.inf
        self.transaction: Transaction | None = None
        self.ended: tuple[int, TransactionOutcome] | None = None

    @property
    def state(self) -> TransactionState:
        """What the coordinator tells of it."""
        if self.transaction is not None:
            return TransactionState.ONGOING
        if self.ended is None:
            return TransactionState.EMPTY
        is_commit = self.ended[1] is TransactionOutcome.COMMITTED
        if self.markers:
            return TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        return TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT


class Transactions:
    """Every writer id, and the one transaction that each may have open.

    `restarts` counts how often the coordinator was started anew: every connection to it is lost then.
    """

    __slots__ = (
        "_groups",
        "_moved",
        "_topics",
        "_writers",
        "clock_ms",
        "deadline",
        "marker_delay_s",
        "restarts",
    )

    def __init__(self, topics: Topics, groups: Groups, moved: Bell) -> None:
        self._topics = topics
        self._groups = groups
        self._moved = moved
        self._writers: dict[str, WriterRecord] = {}
        self.marker_delay_s: Callable[[], float] | None = None
        self.clock_ms: Callable[[], int] | None = None
        # Nothing times out before this; it may be earlier than needed, never later.
        self.deadline = math.inf
        self.restarts = 0

    def state(self, writer_id: str) -> WriterRecord | None:
        """What is known of a writer id, for tests and checkers."""
        return self._writers.get(writer_id)

    def open_count(self) -> int:
        """How many transactions are open, or not yet ended on every partition."""
        return sum(
            writer.transaction is not None or bool(writer.markers) for writer in self._writers.values()
        )

    def known(self, prefix: str) -> set[str]:
        """All writer ids that begin like this (ListTransactions)."""
        return {writer_id for writer_id in self._writers if writer_id.startswith(prefix)}

    def last(self, writer_id: str) -> LastTransaction | None:
        """What is known of a writer's last transaction (DescribeTransactions)."""
        writer = self._writers.get(writer_id)
        return (
            None
            if writer is None
            else LastTransaction(writer.state, Producer(writer.producer_id, writer.epoch))
        )

    def left_open(self, producer_id: int, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Where something of this producer is open (DescribeProducers); a partition that is gone holds nothing."""
        names = self.names_of(producer_id)
        found = []
        for each in partitions:
            with contextlib.suppress(Refused):
                if any(transaction.writer_id in names for transaction in self._topics.partition(each).open):
                    found.append(each)
        return found

    def names_of(self, producer_id: int) -> set[str]:
        """The writer ids of a producer."""
        return {name for name, writer in self._writers.items() if writer.producer_id == producer_id}

    def restart(self, forgets: Callable[[str, bool], bool] = lambda _writer_id, _is_position: False) -> int:
        """Start the coordinator anew: markers that were still to be written are written now, or forgotten for ever.

        `forgets` is asked for each, with its writer and whether it is one of the group's positions. Returns how many
        were forgotten.
        """
        self.restarts += 1
        forgotten = 0
        for writer_id, writer in self._writers.items():
            markers, writer.markers = writer.markers, []
            for is_position, _, write in markers:
                if forgets(writer_id, is_position):
                    forgotten += 1
                else:
                    write()
        self._moved.fire()
        return forgotten

    def add(
        self,
        writer_id: str,
        epoch: int,
        partitions: Iterable[TopicPartition],
        groups: Iterable[str],
        now: float,
    ) -> None:
        """Make partitions and groups part of the writer's transaction, which writes nothing to them."""
        targets = {each: self._topics.partition(each) for each in partitions}
        transaction = self._begin(writer_id, epoch, now)
        transaction.partitions |= targets
        transaction.groups |= dict.fromkeys(groups)

    def init(self, writer_id: str, timeout_s: float) -> int:
        """Give a new epoch (InitProducerId): an open transaction is aborted, every earlier epoch is refused."""
        writer = self._writers.setdefault(writer_id, WriterRecord(len(self._writers)))
        self._finish(writer, TransactionOutcome.ABORTED, now=0.0)
        self._mark(writer, math.inf)
        # After this an end of the old epoch is told "fenced", not how its transaction ended.
        writer.ended = None
        writer.epoch += 1
        writer.timeout_s = timeout_s
        return writer.epoch

    def produce(
        self, writer_id: str, epoch: int, partition: TopicPartition, batch: MemoryBatch, now: float
    ) -> int:
        """Write a batch inside the writer's transaction; returns the offset after it."""
        target = self._topics.partition(partition)
        transaction = self._begin(writer_id, epoch, now)
        # The partition joins before its data is judged: the end leaves a marker here even if the data is refused.
        transaction.partitions[partition] = target
        self._topics.topic(partition.topic).judge(partition, batch, self._wall_ms())
        end_offset = target.append(batch.drafts, batch.size_bytes, transaction)
        self._moved.fire()
        return end_offset

    def append(self, partition: TopicPartition, batch: MemoryBatch) -> int:
        """Write a batch without a transaction; returns the offset after it."""
        target = self._topics.partition(partition)
        self._topics.topic(partition.topic).judge(partition, batch, self._wall_ms())
        end_offset = target.append(batch.drafts, batch.size_bytes, None)
        self._moved.fire()
        return end_offset

    def add_positions(
        self, writer_id: str, epoch: int, member: Member, positions: Mapping[TopicPartition, int], now: float
    ) -> None:
        """Take positions into the writer's transaction; they count once it commits."""
        self._check(writer_id, epoch)
        self._groups.check(member)
        transaction = self._begin(writer_id, epoch, now)
        transaction.groups[member.group] = None
        self._groups.group(member.group).pend(transaction, positions)

    def end(
        self,
        writer_id: str,
        epoch: int,
        now: float,
        outcome: TransactionOutcome = TransactionOutcome.COMMITTED,
    ) -> int:
        """Commit or abort; returns the epoch of the next transaction.

        The same end again, with nothing begun since, is answered as the first time.
        """
        writer = self._writers.get(writer_id)
        if writer is None:
            raise Refused(ErrorCode.PRODUCER_FENCED, writer_id)
        if writer.epoch == epoch:
            if writer.transaction is not None:
                self._finish(writer, outcome, now)
                self._mark(writer, now)
            elif outcome is TransactionOutcome.COMMITTED:
                raise Refused(ErrorCode.INVALID_TXN_STATE, writer_id)
            else:  # which fences, and is the last thing that is known of this writer
                writer.ended = (writer.epoch, outcome)
                writer.epoch += 1
            return writer.epoch
        if writer.ended is None or writer.ended[0] != epoch or writer.transaction is not None:
            raise Refused(ErrorCode.PRODUCER_FENCED, writer_id)
        if writer.ended[1] is not outcome:
            raise Refused(ErrorCode.INVALID_TXN_STATE, writer_id)
        return writer.epoch

    def expire(self, now: float) -> None:
        """Abort the transactions whose time is over, and write the markers whose time has come."""
        if now < self.deadline:
            return
        self.deadline = math.inf
        for writer in self._writers.values():
            transaction = writer.transaction
            if transaction is not None:
                if transaction.deadline <= now:
                    self._finish(writer, TransactionOutcome.ABORTED, now)
                else:
                    self.deadline = min(self.deadline, transaction.deadline)
            if writer.markers:
                self._mark(writer, now)

    def _check(self, writer_id: str, epoch: int) -> WriterRecord:
        writer = self._writers.get(writer_id)
        if writer is None or writer.epoch != epoch:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, writer_id)
        return writer

    def _begin(self, writer_id: str, epoch: int, now: float) -> Transaction:
        """The open transaction; the first request of an epoch opens it, once the one before is over everywhere."""
        writer = self._check(writer_id, epoch)
        if writer.transaction is None:
            self._mark(writer, math.inf)
            writer.transaction = Transaction(writer_id, epoch, now + writer.timeout_s)
            self.deadline = min(self.deadline, writer.transaction.deadline)
        return writer.transaction

    def _finish(self, writer: WriterRecord, outcome: TransactionOutcome, now: float) -> None:
        """Decide the open transaction, if there is one; from here on only its markers are missing."""
        transaction = writer.transaction
        if transaction is None:
            return
        transaction.outcome = outcome
        ends: list[tuple[bool, Callable[[], None]]] = [
            (False, partial(partition.end, transaction)) for partition in transaction.partitions.values()
        ]
        ends.extend(
            (True, partial(self._groups.group(name).settle, transaction)) for name in transaction.groups
        )
        writer.markers = [(is_position, now + self._delay(), end) for is_position, end in ends]
        writer.transaction = None
        writer.ended = (transaction.epoch, outcome)
        writer.epoch += 1

    def _mark(self, writer: WriterRecord, now: float) -> None:
        """Write the markers that are due."""
        due = [marker for marker in writer.markers if marker[1] <= now]
        writer.markers = [marker for marker in writer.markers if marker[1] > now]
        for _, _, write in due:
            write()
        if due:
            self._moved.fire()
        for _, at, _ in writer.markers:
            self.deadline = min(self.deadline, at)

    def _wall_ms(self) -> int | None:
        return None if self.clock_ms is None else self.clock_ms()

    def _delay(self) -> float:
        return 0.0 if self.marker_delay_s is None else self.marker_delay_s()
