"""What the runtime asks of a log: readers, writers, a group, an admin.

Two implementations keep these promises: real Kafka (`kafka/log.py`) and the in-memory log
(`testing/memory/log.py`). One contract suite, `tests/contract/`, runs on both.

Everything here moves whole batches. No port has a call per record, except `Batch.append`, which is plain code.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from streamkit.kafka.shown_member import ShownMember
from streamkit.kafka.transaction_port import Transactions
from streamkit.model.commit import Batch, Commit, Guarantee, Member
from streamkit.model.ids import Position, TaskId, TopicPartition
from streamkit.model.records import FetchedBatch
from streamkit.model.topic_shape import TopicInfo, TopicSpec


class Reader(Protocol):
    """Fetches batches of the partitions it was pointed at.

    With `committed=True` (see `Log.reader`) it hands out only records of committed transactions, and never
    anything at or above an open one. Checks every CRC. Buffers a bounded number of bytes per partition; while a
    partition is paused nothing of it is handed out, and what is buffered stays buffered.
    """

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read this partition from here on; drops what was buffered of it. Also starts reading a new partition."""
        ...

    def forget(self, partition: TopicPartition) -> None:
        """Stop reading this partition and drop what was buffered of it."""
        ...

    def pause(self, partition: TopicPartition) -> None:
        """Hand out nothing of this partition until `resume`."""
        ...

    def resume(self, partition: TopicPartition) -> None:
        """Hand out this partition again."""
        ...

    async def poll(self, timeout_s: float, *, without: Container[TopicPartition] = ()) -> list[FetchedBatch]:
        """Everything that is buffered now, else what arrives first within the time-out; may be empty.

        Nothing of the partitions in `without` is handed out this time, as if they were paused.

        Raises:
            Misconfigured: a partition's position is outside the log (`OFFSET_OUT_OF_RANGE`), a topic is missing, or
                rights are missing. Never resets a position by itself.
            Retry: nothing else; passing faults are retried inside.
        """
        ...

    async def close(self) -> None:
        """Stop fetching and release connections."""
        ...


class Writer(Protocol):
    """One writer per worker: the only road by which records leave it.

    EXACTLY_ONCE: `commit` is one transaction of batches and positions, fenced by writer id and by the member's
    generation. AT_LEAST_ONCE: batches first, then changelogs, then positions, each when all before it is acknowledged.
    AT_MOST_ONCE: positions first, then everything else.
    """

    writer_id: str
    batch_bytes_max: int

    def batch(self, bytes_max: int | None = None) -> Batch:
        """A new, empty output batch that is full at `bytes_max` if that is less than `batch_bytes_max`."""
        ...

    @property
    def needs_renewal(self) -> bool:
        """Whether something of this id may have been left open, so that it must not begin another transaction.

        True after a connection that it used was lost, and when its epochs come to their end: look after the id
        (`runtime/retire.py`), then `open` another one. A commit that is tried all the same is refused as in doubt.
        """
        ...

    async def open(self, writer_id: str | None = None) -> None:
        """Take this writer id; without one, a new epoch of the id that we have.

        An earlier holder of the id can never commit again, and its transaction ends. When this returns, every record
        and position of the earlier holder is either committed or gone, and both readers and `Admin.end_offsets` agree.
        """
        ...

    async def commit(self, commit: Commit) -> dict[TopicPartition, int]:
        """Write it all; returns, per partition written to, the offset after the last record.

        Every acknowledgement has been checked when this returns. Cancellation counts as doubt.

        Raises:
            Fenced: we are not the owner any more (generation, member or epoch); nothing of it was committed.
            WriterDead: the outcome is not known; the writer refuses everything until `open`.
            DataRefused: the broker does not take some of this data (too large, no key, its timestamp); under
                EXACTLY_ONCE nothing of it was committed. The writer refuses everything until `open`.
        """
        ...

    async def close(self) -> None:
        """Release connections; an open transaction is left to its fencing or its time-out."""
        ...


class Assignment(msgspec.Struct, frozen=True):
    """What the group decided: our proof of membership, our tasks, and which writers are alive.

    `stranded` are tasks that no member can run, `plans` those of the members that came with tasks.
    """

    member: Member
    tasks: tuple[TaskId, ...]
    live_writers: frozenset[str]
    stranded: frozenset[TaskId] = frozenset()
    plans: frozenset[str] = frozenset()


class Membership(Protocol):
    """Our place in the worker group of one pipeline.

    While joined, heartbeats run beside the caller, and go on while code holds its event loop.

    The assignor hands out tasks (stage x partition), sticky: a task stays where it is unless balance demands a
    move; nobody is given a task that it does not know or has declined; every member learns which writer ids are in the
    group.
    """

    @property
    def rejoin_needed(self) -> bool:
        """True as soon as the group wants a new round, or threw us out; the caller then commits and joins again."""
        ...

    @property
    def lost(self) -> bool:
        """True if we are not a member any more: everything in hand is void."""
        ...

    async def join(self, owned: Sequence[TaskId], declined: Sequence[TaskId] = ()) -> Assignment:
        """Take part in the next round, naming the tasks we hold and those we cannot run; waits for the decision.

        Raises:
            Misconfigured: the group is that of another pipeline.
        """
        ...

    async def wait_rejoin(self) -> None:
        """Return when `rejoin_needed` becomes true."""
        ...

    async def leave(self) -> None:
        """Leave the group at once, so that others need not wait for the session time-out."""
        ...

    def abandon(self) -> None:
        """Leave the group while the event loop is held: may be called from any thread. We are lost from then on."""
        ...


class StageTasks(msgspec.Struct, frozen=True):
    """What the assignor must know of a stage: its name and its number of tasks."""

    stage: str
    partitions: int


class Admin(Protocol):
    """Questions and changes that concern the log as a whole."""

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Number of partitions of each topic that exists; a missing topic is left out."""
        ...

    async def list_topics(self) -> list[str]:
        """Names of all topics, sorted, without Kafka's own."""
        ...

    async def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Partitions, replication and configuration of each topic that exists."""
        ...

    async def create(self, topics: Sequence[TopicSpec]) -> None:
        """Create topics and wait until they can be written to; one that exists already is left as it is."""
        ...

    async def configure(self, topic: str, config: Mapping[str, str]) -> None:
        """Set configuration entries of an existing topic; entries not named keep their value."""
        ...

    async def add_partitions(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions of a topic."""
        ...

    async def delete(self, topics: Iterable[str]) -> None:
        """Delete topics; one that does not exist is fine."""
        ...

    async def start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is still there."""
        ...

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, int]:
        """The offset after the last record; with `committed`, the first offset of the oldest open transaction."""
        ...

    async def offsets_for_time(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """First offset whose timestamp is at or after this time; the end offset where there is none."""
        ...

    async def positions(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float
    ) -> dict[TopicPartition, Position]:
        """The group's committed positions, stable: waits while a transaction holds one pending.

        A partition without a position is left out.

        Raises:
            Retry: a position was still pending at the time-out.
        """
        ...

    async def reset_positions(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Set positions of a group without members.

        Raises:
            Misconfigured: the group has members.
        """
        ...

    async def members(self, group: str) -> list[ShownMember]:
        """Member ids of a group, with what each is known for; empty if there is no such group."""
        ...

    async def fence(self, writer_id: str) -> None:
        """End whatever transaction this writer has open and make sure that it can never commit again."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class WriterOptions(msgspec.Struct, frozen=True):
    """How a writer behaves."""

    writer_id: str
    guarantee: Guarantee
    transaction_timeout_s: float = 30.0
    request_timeout_s: float = 10.0


class MemberOptions(msgspec.Struct, frozen=True):
    """How a member behaves.

    `topics` are those whose positions the group commits: named, the broker keeps the positions as long as the group
    lives. `remembered` is a member id of a process that is surely dead: it is made to leave. `on_member_id` hears our
    own as soon as the broker has given it to us, before the round is over.
    """

    group: str
    writer_id: str
    stages: tuple[StageTasks, ...]
    session_timeout_s: float = 10.0
    rebalance_timeout_s: float = 30.0
    remembered: str | None = None
    topics: tuple[str, ...] = ()
    on_member_id: Callable[[str], None] | None = None
    # The fingerprint of the plan that we run.
    plan: str = ""


class Log(Protocol):
    """A connection to one cluster, from which everything else is made."""

    async def connect(self) -> None:
        """Find the cluster.

        Raises:
            BrokerUnreachable: nobody answers.
            Misconfigured: it answers but refuses us (TLS, SASL).
        """
        ...

    def reader(self, *, committed: bool) -> Reader:
        """A new reader without partitions."""
        ...

    def writer(self, options: WriterOptions) -> Writer:
        """A new writer; call `open` before the first commit."""
        ...

    def membership(self, options: MemberOptions) -> Membership:
        """A new membership, not joined yet."""
        ...

    def admin(self) -> Admin:
        """The admin; shares the log's connections."""
        ...

    def transactions(self) -> Transactions:
        """What may be done about the transactions of writers that write no more."""
        ...

    async def close(self) -> None:
        """Close everything that was made from this log."""
        ...
