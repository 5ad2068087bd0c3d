"""Writing to the in-memory log, step by step as the real writer does, so that anything can go wrong in between."""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from streamkit.errors import Bug, DataRefused, Fenced, StreamkitError, WriterDead
from streamkit.kafka.ports import WriterOptions
from streamkit.model.commit import Batch, Commit, Guarantee, Member, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.testing.memory.batch import BATCH_BYTES_MAX, MemoryBatch
from streamkit.testing.memory.client import Client, unanswered
from streamkit.testing.memory.network import NoReply
from streamkit.testing.memory.refusal import ErrorCode, Refused

FENCING = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
}


class WriterState(Enum):
    """NEW -> READY <-> COMMITTING -> DEAD -> READY by `open`; CLOSED from anywhere."""

    NEW = "new"
    READY = "ready"
    COMMITTING = "committing"
    DEAD = "dead"
    CLOSED = "closed"


class Maker(NamedTuple):
    """Under which id and epoch a request was made."""

    writer_id: str
    epoch: int


class MemoryWriter:
    """The `Writer` port in memory.

    It never sends anything twice: a request without an answer makes the writer DEAD. The real writer asks again where
    an answer is decisive, and may go on, so code that survives this one survives that one.
    """

    def __init__(
        self, client: Client, options: WriterOptions, *, batch_bytes_max: int = BATCH_BYTES_MAX
    ) -> None:
        self.writer_id = options.writer_id
        self.batch_bytes_max = batch_bytes_max
        self.state = WriterState.NEW
        self._client = client
        self._options = options
        self._epoch = -1
        # Of the coordinator, as it was when this id was taken.
        self._restarts = 0

    @property
    def needs_renewal(self) -> bool:
        """Whether the broker was lost since this id was taken; see the port."""
        return self._is_transactional and self._restarts != self._client.broker.transactions.restarts

    @property
    def _is_transactional(self) -> bool:
        return self._options.guarantee is Guarantee.EXACTLY_ONCE

    def batch(self, bytes_max: int | None = None) -> Batch:
        """A new, empty output batch."""
        return MemoryBatch(min(bytes_max or self.batch_bytes_max, self.batch_bytes_max))

    async def open(self, writer_id: str | None = None) -> None:
        """Take a new id, or a new epoch of the one that we have; see the port.

        Raises:
            Retry: the broker did not answer in time.
        """
        if self.state in (WriterState.COMMITTING, WriterState.CLOSED):
            raise Bug(f"open was asked of a writer that is {self.state.value}", where=self.writer_id)
        self.state = WriterState.DEAD
        self.writer_id = writer_id or self.writer_id
        self._restarts = self._client.broker.transactions.restarts
        # Without transactions any epoch does: nothing is checked against it.
        if self._is_transactional:
            transactions = self._client.broker.transactions
            timeout_s = self._options.transaction_timeout_s
            try:
                init = partial(transactions.init, self.writer_id, timeout_s)
                self._epoch = await self._ask("writer.open", init)
            except NoReply as error:
                raise unanswered(error) from None
        self.state = WriterState.READY

    async def commit(self, commit: Commit) -> dict[TopicPartition, int]:
        """Write it all or nothing; see the port."""
        self._check_usable(commit)
        if not commit.all_batches and not commit.positions:
            return {}
        self.state = WriterState.COMMITTING
        try:
            ends = await self._write(commit)
        except BaseException:
            self._move_on(WriterState.DEAD)
            raise
        self._move_on(WriterState.READY)
        return ends

    async def close(self) -> None:
        """Never write again; an open transaction is left to its fencing or its time-out."""
        self.state = WriterState.CLOSED

    def _move_on(self, state: WriterState) -> None:
        if self.state is WriterState.COMMITTING:  # closed meanwhile: closed it stays
            self.state = state

    def _check_usable(self, commit: Commit) -> None:
        if self.state is WriterState.DEAD:
            raise WriterDead("an earlier commit is in doubt: open a new epoch first", where=self.writer_id)
        if self.state is not WriterState.READY:
            raise Bug(f"a commit was asked of a writer that is {self.state.value}", where=self.writer_id)
        if commit.positions and (commit.member.generation < 0 or not commit.member.member_id):
            raise Bug("positions were given without a membership", where=self.writer_id)

    async def _write(self, commit: Commit) -> dict[TopicPartition, int]:
        """The order of things, by guarantee."""
        ends: dict[TopicPartition, int] = {}
        # Captured once: a request that arrives late must carry the id and the epoch it was made under.
        maker = Maker(self.writer_id, self._epoch)
        produces = self._produces(commit.batches, maker, ends)
        changelogs = self._produces(commit.changelogs, maker, ends)
        match self._options.guarantee:
            case Guarantee.EXACTLY_ONCE:
                # The end only if every single one was acknowledged.
                await self._together([*produces, *changelogs, partial(self._add_positions, commit, maker)])
                await self._together([partial(self._end, maker)])
            case Guarantee.AT_LEAST_ONCE:
                await self._together(produces)
                await self._together([partial(self._prove_membership, commit.member)])
                await self._together(changelogs)
                await self._together([partial(self._store_positions, commit)])
            case Guarantee.AT_MOST_ONCE:
                await self._together([partial(self._store_positions, commit)])
                await self._together([*produces, *changelogs])
        return ends

    async def _together(self, steps: Sequence[Callable[[], Awaitable[None]]]) -> None:
        outcomes = await self._client.network.together(steps)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failures:
            raise self._judge(failures)

    def _judge(self, failures: Sequence[BaseException]) -> BaseException:
        """The error that says most: fenced before refused before doubt."""
        refusals = [failure for failure in failures if isinstance(failure, Refused)]
        for refused in refusals:
            if refused.code in FENCING:
                return Fenced(f"the broker answered {refused.code.name}", where=refused.where)
        if refusals:
            return _judge_refusal(refusals[0])
        if isinstance(failures[0], NoReply):
            return WriterDead(
                "the commit's outcome is not known", where=self.writer_id, detail=str(failures[0])
            )
        return failures[0]

    def _produces(
        self, batches: Sequence[OutBatch], maker: Maker, ends: dict[TopicPartition, int]
    ) -> list[Callable[[], Awaitable[None]]]:
        """One step per partition, because each partition takes its batches one after the other."""
        by_partition: dict[TopicPartition, list[OutBatch]] = {}
        for out in batches:
            by_partition.setdefault(out.partition, []).append(out)
        return [partial(self._produce, parts, maker, ends) for parts in by_partition.values()]

    async def _produce(
        self, batches: Sequence[OutBatch], maker: Maker, ends: dict[TopicPartition, int]
    ) -> None:
        for out in batches:
            ends[out.partition] = await self._ask("writer.produce", partial(self._append, out, maker))

    def _append(self, out: OutBatch, maker: Maker) -> int:
        """At the broker: one batch."""
        batch = out.batch
        if not isinstance(batch, MemoryBatch) or len(batch.drafts) != out.count or out.count < 1:
            raise Bug(f"a batch for {out.partition} does not hold the {out.count} records it says")
        broker = self._client.broker
        if not self._is_transactional:
            return broker.transactions.append(out.partition, batch)
        return broker.transactions.produce(*maker, out.partition, batch, broker.now)

    async def _add_positions(self, commit: Commit, maker: Maker) -> None:
        """Set the positions, which proves our membership; without positions, prove it by asking."""
        broker = self._client.broker
        member = commit.member

        def apply() -> None:
            if commit.positions:
                broker.transactions.add_positions(*maker, member, commit.positions, broker.now)
            else:
                broker.groups.check(member)

        if commit.positions or member.generation >= 0:
            await self._ask("writer.positions", apply)

    async def _prove_membership(self, member: Member) -> None:
        """Be refused here if somebody else has our tasks by now."""
        if member.generation >= 0:
            groups = self._client.broker.groups
            await self._ask("writer.member", lambda: groups.check(member))

    async def _store_positions(self, commit: Commit) -> None:
        groups = self._client.broker.groups
        if commit.positions:
            await self._ask("writer.positions", lambda: groups.store(commit.member, commit.positions))

    async def _end(self, maker: Maker) -> None:
        broker = self._client.broker
        self._epoch = await self._ask("writer.end", lambda: broker.transactions.end(*maker, broker.now))

    async def _ask(self, what: str, apply: Callable[[], int | None]) -> int:
        restarts = self._restarts

        def arrive() -> int | None:
            # What was on its way to a broker that is started anew never arrives.
            if self._is_transactional and restarts != self._client.broker.transactions.restarts:
                raise NoReply("the connection was lost")
            return apply()

        answer = await self._client.ask(what, arrive, self._options.request_timeout_s)
        return -1 if answer is None else answer


def _judge_refusal(refused: Refused) -> StreamkitError:
    match refused.code:
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.INVALID_RECORD | ErrorCode.INVALID_TIMESTAMP:
            records = "".join(f"; record {number} of the batch" for number in refused.records)
            assert isinstance(refused.at, TopicPartition)
            return DataRefused(
                "the broker refused the data",
                topic=refused.at.topic,
                where=refused.where,
                detail=f"{refused.code.name}{records}",
            )
        case ErrorCode.INVALID_TXN_STATE:
            return WriterDead("the transaction is over already", where=refused.where)
        case _:
            # Above all a missing topic: the real writer looks for it until its time is over, then it is dead.
            return WriterDead(f"the broker answered {refused.code.name}", where=refused.where)
