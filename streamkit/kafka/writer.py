"""The transactional writer: everything that one span caused becomes visible together, or not at all.

A writer that loses the broker it spoke to does not go on under its id: see `needs_renewal`.

`delivery.py` puts batches onto partitions, `coordinator.py` asks the group's and the writer's coordinators,
`error_codes.py` says what an answer means; here is the order of things, per guarantee and transaction version.

With transaction version 2 (Kafka 4) the broker raises the producer's epoch at the end of every transaction, so that
a request delayed in the network can not touch the next one. On older clusters we raise it ourselves, before each
transaction. Which one it is the cluster's finalized feature tells, never its API versions: a guess can wedge the id.
"""

import asyncio
from enum import Enum
from functools import partial

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streamkit.errors import Bug, CommitTooSlow, Fenced, Retry, StreamkitError, WriterDead
from streamkit.kafka.connection import Connection, NoAnswer, Purpose
from streamkit.kafka.coordinator import Backoffs, Coordinator
from streamkit.kafka.delivery import Delivery
from streamkit.kafka.error_codes import END, MEMBERSHIP, POSITIONS, PREPARE, Reaction, Table, error_for
from streamkit.kafka.links import Links
from streamkit.kafka.ports import WriterOptions
from streamkit.kafka.transaction_calls import (
    END_TXN_KEY,
    INIT_PRODUCER_ID_KEY,
    PRODUCE_KEY,
    TRANSACTION_VERSION_2,
    Abilities,
    Reply,
    add_offsets,
    add_partitions,
    api_versions,
    end_txn,
    heartbeat,
    init_producer_id,
    offset_commit,
    txn_offset_commit,
)
from streamkit.kafka.transaction_port import NOBODY, Producer
from streamkit.kafka.wire import Call, compact_string
from streamkit.model.commit import Batch, Commit, Guarantee, Member
from streamkit.model.ids import TopicPartition

# Under the broker's default message.max.bytes of 1,048,588 with room for the batch's own head.
BATCH_BYTES_MAX = 900_000
# A coordinator that died is replaced within about ten seconds, a loaded one answers within a few.
OPEN_DEADLINE_S = 60.0
# The broker must give up a Produce before the client does: an answer, even a bad one, is worth more than silence.
PRODUCE_TIMEOUT_SHARE = 0.8
# Epochs end at 32,767, and whoever comes after would not find the producer id again that they were of.
EPOCH_MAX = 30_000


class WriterState(Enum):
    """The life of a writer: any doubt leads to DEAD, and only a new epoch leads out of it.

    NEW -> READY <-> COMMITTING -> DEAD -> READY; `open` may be called whenever no commit is under way, and passes
    through DEAD so that a failed one leaves nothing usable behind. CLOSED from anywhere, for good.
    """

    NEW = "new"
    READY = "ready"
    COMMITTING = "committing"
    DEAD = "dead"
    CLOSED = "closed"


ALLOWED = {
    WriterState.NEW: {WriterState.DEAD, WriterState.CLOSED},
    WriterState.READY: {WriterState.COMMITTING, WriterState.DEAD, WriterState.CLOSED},
    WriterState.COMMITTING: {WriterState.READY, WriterState.DEAD, WriterState.CLOSED},
    WriterState.DEAD: {WriterState.READY, WriterState.DEAD, WriterState.CLOSED},
    WriterState.CLOSED: {WriterState.CLOSED},
}


class KafkaWriter:
    """The `Writer` port on a real cluster; shares the connection, which its owner closes.

    `transaction_version` overrides what the cluster says. It exists for tests: only a lower one is safe.
    """

    def __init__(
        self,
        connection: Connection,
        options: WriterOptions,
        *,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        transaction_version: int | None = None,
    ) -> None:
        self.writer_id = options.writer_id
        self.batch_bytes_max = batch_bytes_max
        self.state = WriterState.NEW
        self._connection = connection
        self._options = options
        self._transactional = options.guarantee is Guarantee.EXACTLY_ONCE
        self._given_version = transaction_version
        self._transaction_version = 0
        self._abilities = Abilities({}, 0)
        self._packed_id = compact_string(options.writer_id)
        self._epoch_used = False
        self._links = Links(connection)
        self._is_stale = False
        transactional_id = options.writer_id if self._transactional else None
        timeout_ms = int(options.request_timeout_s * 1000 * PRODUCE_TIMEOUT_SHARE)
        self._delivery = Delivery(connection, transactional_id, timeout_ms)
        self._coordinator = self._new_coordinator()
        self._groups: dict[str, Coordinator] = {}

    def batch(self, bytes_max: int | None = None) -> Batch:
        """A new, empty output batch; the first record always fits, the broker judges its size."""
        builder: Batch = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=int(self._transactional),
            producer_id=NOBODY.producer_id,
            producer_epoch=NOBODY.producer_epoch,
            base_sequence=-1,
            batch_size=min(bytes_max or self.batch_bytes_max, self.batch_bytes_max),
        )
        return builder

    @property
    def needs_renewal(self) -> bool:
        """Whether something of this id may have been left open; see the port."""
        return self._is_stale or not self._links.is_whole or self._held.producer_epoch > EPOCH_MAX

    async def open(self, writer_id: str | None = None) -> None:
        """Take this id, or a new epoch of the one that we have; see the port.

        Raises:
            Retry: no epoch was to be had within the deadline.
            Misconfigured: the broker does not let us.
            Bug: a commit is under way, or the writer is closed.
        """
        if self.state is WriterState.COMMITTING:
            raise Bug("a writer was opened while its commit is under way", where=self.writer_id)
        self._move(WriterState.DEAD)
        if writer_id is not None:
            self._rename(writer_id)
        self._links.forget()
        self._is_stale = False
        try:
            async with asyncio.timeout(OPEN_DEADLINE_S):
                self._abilities = await self._ask_abilities()
                self._choose_versions()
                await self._take_epoch(NOBODY)
        except TimeoutError:
            raise Retry(
                "the broker gave no new epoch in time",
                where=self.writer_id,
                detail=self._coordinator.trouble or f"waited {OPEN_DEADLINE_S:g} s",
            ) from None
        self._move(WriterState.READY)

    async def commit(self, commit: Commit) -> dict[TopicPartition, int]:
        """Write it all; see the port. Cancellation leaves the writer dead.

        Raises:
            Misconfigured: rights are missing; beside what the port says.
            Bug: a commit is under way, the writer was never opened or is closed, or a generation is missing.
        """
        self._check_usable(commit)
        if not commit.all_batches and not commit.positions:
            return {}
        if self.needs_renewal:
            self._move(WriterState.DEAD)
            raise WriterDead("a broker was lost: another writer id is needed", where=self.writer_id)
        self._move(WriterState.COMMITTING)
        waits = (self._coordinator, self._group(commit.member), self._delivery)
        for wait in waits:
            wait.trouble = ""
        try:
            async with asyncio.timeout(self._options.transaction_timeout_s):
                ends = await self._write(commit)
        except TimeoutError:
            self._die()
            trouble = "; ".join(wait.trouble for wait in waits if wait.trouble)
            kind = WriterDead if trouble else CommitTooSlow
            raise kind(
                "the commit did not end in time, its outcome is not known",
                where=self.writer_id,
                detail=trouble or f"it has {len(commit.all_batches)} batches, and no request has failed",
            ) from None
        except BaseException:
            self._die()
            raise
        if self.state is not WriterState.CLOSED:
            self._move(WriterState.READY)
        return ends

    async def close(self) -> None:
        """Never write again; an open transaction is left to its fencing or its time-out."""
        self._move(WriterState.CLOSED)

    def _rename(self, writer_id: str) -> None:
        self.writer_id = writer_id
        self._packed_id = compact_string(writer_id)
        if self._transactional:
            self._delivery.rename(writer_id)
            self._coordinator = self._new_coordinator()

    def _new_coordinator(self) -> Coordinator:
        name = f'writer "{self.writer_id}"'
        return Coordinator(self._connection, self._find_coordinator, Purpose.TRANSACTION, name)

    def _move(self, state: WriterState) -> None:
        if state not in ALLOWED[self.state]:
            raise Bug(f"a writer can not go from {self.state.value} to {state.value}", where=self.writer_id)
        self.state = state

    def _die(self) -> None:
        if self.state is not WriterState.CLOSED:  # closed while a commit was under way: closed it stays
            self._move(WriterState.DEAD)

    def _check_usable(self, commit: Commit) -> None:
        if self.state is WriterState.DEAD:
            raise WriterDead("an earlier commit is in doubt: open a new epoch first", where=self.writer_id)
        if self.state is not WriterState.READY:
            raise Bug(f"a commit was asked of a writer that is {self.state.value}", where=self.writer_id)
        if commit.positions and (commit.member.generation < 0 or not commit.member.member_id):
            # The broker takes positions without a generation from anybody: no fencing at all.
            raise Bug("positions were given without a membership", where=self.writer_id)

    async def _write(self, commit: Commit) -> dict[TopicPartition, int]:
        """The order of things, by guarantee."""
        await self._delivery.watch([out.partition for out in commit.all_batches])
        if self._transactional:
            return await self._transaction(commit)
        if self._options.guarantee is Guarantee.AT_LEAST_ONCE:
            ends = await self._delivery.send(commit.batches)
            await self._prove_membership(commit.member)
            ends |= await self._delivery.send(commit.changelogs)
            await self._commit_positions(commit)
            return ends
        await self._commit_positions(commit)
        return await self._delivery.send(commit.all_batches)

    async def _transaction(self, commit: Commit) -> dict[TopicPartition, int]:
        """Add, write and set positions, end: one transaction."""
        if self._transaction_version < TRANSACTION_VERSION_2:
            if self._epoch_used:
                await self._take_epoch(self._held)
            self._epoch_used = True
        if self._adds_explicitly():
            await self._add(commit)
        positioning = asyncio.ensure_future(self._position(commit))
        try:
            ends = await self._delivery.send(commit.all_batches)
        except StreamkitError as error:
            if isinstance(fenced := await _drop(positioning), Fenced):
                raise fenced from error  # says more than what became of the batches
            raise
        except BaseException:
            await _drop(positioning)
            raise
        await positioning
        await self._end()
        leaders = {self._delivery.leaders.get(out.partition) for out in commit.all_batches}
        self._links.remember(
            [
                (self._coordinator.known, Purpose.TRANSACTION),
                (self._group(commit.member).known, Purpose.GROUP),
                *((leader, Purpose.PRODUCE) for leader in leaders),
            ]
        )
        return ends

    @property
    def _outlives_moves(self) -> bool:
        """Whether no transaction of this id has ended yet, so that nothing of it can have been forgotten."""
        return self._links.is_empty

    @property
    def _held(self) -> Producer:
        return self._delivery.sequences.identity

    def _adds_explicitly(self) -> bool:
        """Whether partitions are added by a request of their own.

        Version 2 adds them as they are written; but with several brokers these adds meet each other at the
        coordinator, and the loser waits 20 ms inside the broker: one round trip more is cheaper.
        """
        return self._transaction_version < TRANSACTION_VERSION_2 or len(self._connection.nodes()) > 1

    async def _add(self, commit: Commit) -> None:
        partitions = {out.partition for out in commit.all_batches}
        if partitions:
            call = add_partitions(self._packed_id, self._held, partitions)
            await self._settle(self._coordinator, call, PREPARE, "AddPartitionsToTxn")
        if commit.positions:
            call = add_offsets(self._packed_id, self._held, commit.member.group)
            await self._settle(self._coordinator, call, PREPARE, "AddOffsetsToTxn")

    async def _settle(self, who: Coordinator, call: Call[Reply], table: Table, doing: str) -> Producer:
        return await who.settle(call, table, doing, outlives_moves=self._outlives_moves)

    async def _position(self, commit: Commit) -> None:
        """Set the positions, which proves our membership; without positions, prove it by a heartbeat."""
        member = commit.member
        group = self._group(member)
        if commit.positions:
            version = 5 if self._transaction_version >= TRANSACTION_VERSION_2 else 3
            call = txn_offset_commit(version, self._packed_id, self._held, member, commit.positions)
            await self._settle(group, call, POSITIONS, "TxnOffsetCommit")
        else:
            await self._prove_membership(member)

    async def _prove_membership(self, member: Member) -> None:
        """Be refused here if somebody else has our tasks by now."""
        if member.generation >= 0:
            await self._group(member).settle(heartbeat(member), MEMBERSHIP, "Heartbeat")

    async def _commit_positions(self, commit: Commit) -> None:
        if commit.positions:
            call = offset_commit(commit.member.group, commit.member, commit.positions)
            await self._group(commit.member).settle(call, POSITIONS, "OffsetCommit")

    async def _end(self) -> None:
        """Commit the transaction, once. Under version 2 a lost answer may be asked for again: it is decisive."""
        second = self._transaction_version >= TRANSACTION_VERSION_2
        version = 5 if second else self._abilities.best(END_TXN_KEY, 3, 4)
        call = end_txn(version, self._packed_id, self._held)
        lost = False
        pauses = Backoffs()
        while True:
            judged = await self._coordinator.ask(call, END, "EndTxn")
            match judged.verdict:
                case Reaction.DONE:
                    if second:
                        self._delivery.sequences.begin(judged.identity)
                    return
                case Reaction.AGAIN:
                    pass
                case Reaction.MOVED | Reaction.DOUBT if second:
                    lost = self._is_stale = True  # it may have written the end before it was lost or moved
                case Reaction.DOUBT:
                    raise WriterDead(
                        "the end of the transaction got no answer, its outcome is not known",
                        where=self.writer_id,
                        detail=self._coordinator.trouble,
                    )
                case Reaction.FENCED if lost:
                    # The first one may have committed before we were fenced.
                    raise error_for(
                        Reaction.DEAD, judged.code, doing="EndTxn, asked again,", where=self.writer_id
                    )
                case _:
                    raise error_for(judged.verdict, judged.code, doing="EndTxn", where=self.writer_id)
            await pauses.wait(judged.verdict)

    async def _take_epoch(self, held: Producer) -> None:
        version = self._abilities.best(INIT_PRODUCER_ID_KEY, 3, 5)
        timeout_ms = int(self._options.transaction_timeout_s * 1000)
        writer_id = self.writer_id if self._transactional else None
        call = init_producer_id(version, writer_id, timeout_ms, held)
        identity = await self._settle(self._coordinator, call, PREPARE, "InitProducerId")
        self._delivery.sequences.begin(identity)
        self._epoch_used = False

    async def _ask_abilities(self) -> Abilities:
        pauses = Backoffs()
        while True:
            try:
                return await self._connection.send(
                    self._connection.any_node(), api_versions(), Purpose.TRANSACTION
                )
            except NoAnswer as error:
                self._coordinator.trouble = f"ApiVersions got no answer: {type(error).__name__} {error}"
                await pauses.wait(Reaction.MOVED)

    def _choose_versions(self) -> None:
        finalized = self._abilities.transaction_version
        given = self._given_version
        self._transaction_version = finalized if given is None else given
        second = self._transactional and self._transaction_version >= TRANSACTION_VERSION_2
        self._delivery.version = 12 if second else self._abilities.best(PRODUCE_KEY, 9, 11)

    async def _find_coordinator(self) -> int:
        if not self._transactional:
            return self._connection.any_node()  # any broker hands out identities that fence nobody
        return await self._connection.coordinator(Purpose.TRANSACTION, self.writer_id)

    def _group(self, member: Member) -> Coordinator:
        group = self._groups.get(member.group)
        if group is None:
            find = partial(self._connection.coordinator, Purpose.GROUP, member.group)
            group = Coordinator(self._connection, find, Purpose.GROUP, f'group "{member.group}"')
            self._groups[member.group] = group
        return group


async def _drop(positioning: "asyncio.Future[None]") -> BaseException | None:
    """End it and look at its outcome: nothing of a failed commit may still run when a new epoch begins."""
    positioning.cancel()
    await asyncio.wait([positioning])
    return None if positioning.cancelled() else positioning.exception()
