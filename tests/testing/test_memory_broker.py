"""The broker in memory answers as the real one was measured to, and judges whatever reaches it, however late."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from streamkit.errors import BrokerUnreachable, Bug, Fenced, Retry, WriterDead
from streamkit.kafka.assignor import Claim
from streamkit.kafka.ports import MemberOptions, StageTasks, WriterOptions
from streamkit.model.commit import Commit, Guarantee, Member, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_shape import TopicSpec
from streamkit.testing.memory import Fate, MemoryBroker, MemoryLog, Network, NoReply
from streamkit.testing.memory.batch import MemoryBatch
from streamkit.testing.memory.groups import Phase
from streamkit.testing.memory.partition import TransactionOutcome
from streamkit.testing.memory.refusal import ErrorCode, Refused
from streamkit.testing.memory.writer import MemoryWriter
from streamkit.testing.virtual_time import run

P = TopicPartition("t", 0)
Q = TopicPartition("t", 1)
STAGES = (StageTasks("s", 4),)


def batch(*values: bytes) -> MemoryBatch:
    made = MemoryBatch()
    for index, value in enumerate(values):
        made.append(index, index, value, value, [])
    return made


@pytest.fixture
def broker() -> MemoryBroker:
    made = MemoryBroker()
    made.topics.create(TopicSpec("t", 2))
    return made


def refusal(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(Refused) as caught:
        act()
    return caught.value.code


def visible(
    broker: MemoryBroker, partition: TopicPartition = P, *, committed: bool = True
) -> list[bytes | None]:
    read = broker.topics.partition(partition).read(0, 1 << 30, committed=committed)
    return [] if read is None else [record.value for record in read.records]


def join(broker: MemoryBroker, member_id: str | None = None, writer_id: str = "w", now: float = 0.0) -> str:
    options = MemberOptions("g", writer_id, STAGES, session_timeout_s=10, rebalance_timeout_s=30)
    return broker.groups.group("g").join(member_id, options, Claim(writer_id, -1, ()), now)


# Transactions: the table of measured answers.


def test_the_epoch_rises_at_each_end(broker: MemoryBroker) -> None:
    tx = broker.transactions
    assert tx.init("w", 60) == 0
    tx.produce("w", 0, P, batch(b"a"), 0)
    assert tx.end("w", 0, 0) == 1
    tx.produce("w", 1, P, batch(b"b"), 0)
    assert tx.end("w", 1, 0, TransactionOutcome.ABORTED) == 2
    assert visible(broker) == [b"a"]
    assert visible(broker, committed=False) == [b"a", b"b"]
    assert broker.topics.partition(P).end_offset == 4


def test_fencing_an_open_transaction_raises_the_epoch_by_two_an_idle_one_by_one(broker: MemoryBroker) -> None:
    tx = broker.transactions
    tx.init("w", 60)
    tx.produce("w", 0, P, batch(b"a"), 0)
    assert tx.init("w", 60) == 2
    assert tx.init("w", 60) == 3
    assert visible(broker) == []


def test_the_same_end_again_is_answered_as_the_first_time(broker: MemoryBroker) -> None:
    tx = broker.transactions
    tx.init("w", 60)
    tx.produce("w", 0, P, batch(b"a"), 0)
    assert (tx.end("w", 0, 0), tx.end("w", 0, 0)) == (1, 1)
    assert refusal(lambda: tx.end("w", 0, 0, TransactionOutcome.ABORTED)) is ErrorCode.INVALID_TXN_STATE


def test_a_late_end_can_not_touch_the_next_transaction(broker: MemoryBroker) -> None:
    tx = broker.transactions
    tx.init("w", 60)
    tx.produce("w", 0, P, batch(b"a"), 0)
    tx.end("w", 0, 0)
    tx.produce("w", 1, P, batch(b"half"), 0)
    assert refusal(lambda: tx.end("w", 0, 0)) is ErrorCode.PRODUCER_FENCED
    assert visible(broker) == [b"a"]


def test_a_late_produce_of_an_ended_transaction_is_refused(broker: MemoryBroker) -> None:
    tx = broker.transactions
    tx.init("w", 60)
    tx.produce("w", 0, P, batch(b"a"), 0)
    tx.end("w", 0, 0)
    assert refusal(lambda: tx.produce("w", 0, P, batch(b"late"), 0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_nothing_can_be_committed_before_something_was_written(broker: MemoryBroker) -> None:
    tx = broker.transactions
    tx.init("w", 60)
    assert refusal(lambda: tx.end("w", 0, 0)) is ErrorCode.INVALID_TXN_STATE
    assert tx.end("w", 0, 0, TransactionOutcome.ABORTED) == 1


def test_a_zombie_is_refused_everything(broker: MemoryBroker) -> None:
    tx, member = broker.transactions, Member("g", join(broker), 1)
    tx.init("w", 60)
    tx.init("w", 60)
    assert refusal(lambda: tx.produce("w", 0, P, batch(b"a"), 0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(lambda: tx.add_positions("w", 0, member, {P: 1}, 0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(lambda: tx.end("w", 0, 0)) is ErrorCode.PRODUCER_FENCED
    assert tx.open_count() == 0


def test_a_transaction_that_lasts_too_long_is_aborted(broker: MemoryBroker) -> None:
    tx = broker.transactions
    tx.init("w", 5)
    tx.produce("w", 0, P, batch(b"a"), now=1)
    broker.tick(5.9)
    assert broker.topics.partition(P).stable_offset == 0
    assert broker.deadline == 6
    broker.tick(6)
    assert broker.topics.partition(P).stable_offset == 2
    assert refusal(lambda: tx.produce("w", 0, P, batch(b"b"), 6)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(lambda: tx.end("w", 0, 6)) is ErrorCode.INVALID_TXN_STATE


def test_a_refused_batch_leaves_the_others_in_the_transaction_and_a_marker_in_its_own_place(
    broker: MemoryBroker,
) -> None:
    broker.topics.topic("t").configure({"max.message.bytes": "100"})
    tx = broker.transactions
    tx.init("w", 60)
    tx.produce("w", 0, P, batch(b"a"), 0)
    assert refusal(lambda: tx.produce("w", 0, Q, batch(b"x" * 200), 0)) is ErrorCode.MESSAGE_TOO_LARGE
    tx.init("w", 60)
    assert [broker.topics.partition(each).end_offset for each in (P, Q)] == [2, 1]


def test_with_delay_markers_appear_one_by_one_and_the_next_epoch_is_a_barrier() -> None:
    delays = iter([1.0, 2.0, 3.0] * 2)
    broker = MemoryBroker(marker_delay_s=lambda: next(delays))
    broker.topics.create(TopicSpec("t", 2))
    tx, group = broker.transactions, broker.groups.group("g")
    member = Member("g", join(broker), 1)
    tx.init("w", 60)
    for each in (P, Q):
        tx.produce("w", 0, each, batch(b"a"), 0)
    tx.add_positions("w", 0, member, {P: 1}, 0)
    tx.end("w", 0, 0)
    assert (visible(broker, P), visible(broker, Q), group.is_pending(P)) == ([], [], True)
    broker.tick(1.0)
    assert (visible(broker, P), visible(broker, Q), group.is_pending(P)) == ([b"a"], [], True)
    tx.init("w", 60)
    assert (visible(broker, P), visible(broker, Q), group.positions) == ([b"a"], [b"a"], {P: 1})
    assert tx.open_count() == 0


# Partitions.


def test_what_is_written_without_a_transaction_waits_behind_an_open_one(broker: MemoryBroker) -> None:
    tx = broker.transactions
    tx.init("w", 60)
    tx.append(P, batch(b"a"))
    tx.produce("w", 0, P, batch(b"b"), 0)
    tx.append(P, batch(b"c"))
    assert visible(broker) == [b"a"]
    tx.end("w", 0, 0)
    assert visible(broker) == [b"a", b"b", b"c"]


def test_retention_moves_the_start_but_never_over_an_open_transaction(broker: MemoryBroker) -> None:
    tx, stored = broker.transactions, broker.topics.partition(P)
    tx.init("w", 60)
    tx.append(P, batch(b"a", b"b"))
    tx.produce("w", 0, P, batch(b"c"), 0)
    stored.delete_before(99)
    assert (stored.start_offset, stored.end_offset) == (2, 3)


def test_compaction_keeps_the_last_of_each_key_and_every_offset(broker: MemoryBroker) -> None:
    tx, stored = broker.transactions, broker.topics.partition(P)
    tx.init("w", 60)
    tx.produce("w", 0, P, batch(b"a", b"b"), 0)
    tx.end("w", 0, 0)
    tx.append(P, batch(b"a"))
    tx.produce("w", 1, P, batch(b"b"), 0)
    stored.compact()
    read = stored.read(0, 1 << 30, committed=True)
    assert read is not None
    assert ([(r.offset, r.key) for r in read.records], read.next_offset) == ([(1, b"b"), (3, b"a")], 4)


def test_compaction_drops_tombstones_that_are_old_enough(broker: MemoryBroker) -> None:
    tx, stored = broker.transactions, broker.topics.partition(P)
    for key, at_ms, value in ((b"a", 1, b"x"), (b"a", 2, None), (b"b", 2, b"y"), (b"c", 3, None)):
        made = MemoryBatch()
        made.append(0, at_ms, key, value, [])
        tx.append(P, made)
    assert stored.compact() == 0
    assert [record.key for each in stored.batches for record in each.records] == [b"a", b"b", b"c"]
    assert stored.compact(tombstones_before_ms=3) == 1
    assert [record.key for each in stored.batches for record in each.records] == [b"b", b"c"]


def test_a_batch_counts_its_records(broker: MemoryBroker) -> None:
    made = batch(b"a")
    with pytest.raises(Bug):
        made.append(0, 0, None, b"again", [])
    with pytest.raises(TypeError):
        made.append(1, 0, None, b"b", ())


# Groups.


def test_a_round_puts_out_who_does_not_come_in_time(broker: MemoryBroker) -> None:
    group = broker.groups.group("g")
    first = join(broker)
    join(broker, writer_id="v", now=1)
    assert group.phase is Phase.JOINING
    for now in (5, 14, 23):  # it lives, but does not come
        broker.tick(now)
        beat = partial(group.heartbeat, Member("g", first, 1), now)
        assert refusal(beat) is ErrorCode.REBALANCE_IN_PROGRESS
    broker.tick(31)
    assert (group.phase, group.generation, list(group.members)) == (Phase.STABLE, 2, ["v-2"])
    assert refusal(lambda: group.heartbeat(Member("g", first, 1), 31)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_ends_without_heartbeats(broker: MemoryBroker) -> None:
    group = broker.groups.group("g")
    member = Member("g", join(broker), 1)
    broker.tick(9)
    group.heartbeat(member, 9)
    broker.tick(18.9)
    assert group.members
    broker.tick(19)
    assert (group.members, group.phase) == ({}, Phase.EMPTY)
    assert refusal(lambda: broker.groups.check(member)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_positions_of_another_generation_are_refused_and_begin_no_transaction(broker: MemoryBroker) -> None:
    member_id, tx = join(broker), broker.transactions
    tx.init("w", 60)
    for stale, code in (
        (Member("g", member_id, 2), ErrorCode.ILLEGAL_GENERATION),
        (Member("g", "x", 1), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert refusal(partial(tx.add_positions, "w", 0, stale, {P: 1}, 0)) is code
    assert tx.open_count() == 0


# Clients on a bad road.


class Losing(Network):
    """Loses the n-th request of one kind, or its answer."""

    def __init__(self, what: str, fate: Fate) -> None:
        super().__init__()
        self.what, self.how = what, fate

    async def call(self, what: str, apply, timeout_s: float):  # type: ignore[no-untyped-def]
        if what != self.what:
            return await super().call(what, apply, timeout_s)
        if self.how is Fate.REPLY_LOST:
            await super().call(what, apply, timeout_s)
        await asyncio.sleep(timeout_s)
        raise NoReply(what)


async def start(network: Network, broker: MemoryBroker) -> tuple[MemoryLog, MemoryWriter, Member]:
    log = MemoryLog(broker, network)
    member = (await log.membership(MemberOptions("g", "w", STAGES)).join(())).member
    writer = log.writer(WriterOptions("w", Guarantee.EXACTLY_ONCE, transaction_timeout_s=20.0))
    await writer.open()
    return log, writer, member


def commit(member: Member) -> Commit:
    return Commit([OutBatch(each, batch(b"a"), 1) for each in (P, Q)], {P: 1}, member)


@pytest.mark.parametrize("what", ["writer.produce", "writer.positions", "writer.end"])
@pytest.mark.parametrize("fate", [Fate.REQUEST_LOST, Fate.REPLY_LOST])
def test_silence_in_any_step_of_a_commit_is_doubt(broker: MemoryBroker, what: str, fate: Fate) -> None:
    async def main() -> None:
        _, writer, member = await start(Losing(what, fate), broker)
        with pytest.raises(WriterDead):
            await writer.commit(commit(member))
        with pytest.raises(WriterDead):
            await writer.commit(commit(member))
        await writer.open()

    run(main(), 0)
    landed = what == "writer.end" and fate is Fate.REPLY_LOST
    assert visible(broker, P) == visible(broker, Q) == ([b"a"] if landed else [])
    assert broker.groups.group("g").positions == ({P: 1} if landed else {})


@pytest.mark.parametrize("step", range(5))
def test_a_killed_writer_leaves_its_transaction_open_until_it_is_fenced(
    broker: MemoryBroker, step: int
) -> None:
    async def main() -> None:
        log, writer, member = await start(Network(), broker)
        committing = asyncio.ensure_future(writer.commit(commit(member)))
        for _ in range(step):
            await asyncio.sleep(0)
        log.kill()
        await asyncio.sleep(5)
        seen = (visible(broker, P), visible(broker, Q), broker.groups.group("g").positions)
        assert seen in (([], [], {}), ([b"a"], [b"a"], {P: 1}))
        committing.cancel()
        await asyncio.wait([committing])
        await MemoryLog(broker).admin().fence("w")
        assert broker.transactions.open_count() == 0
        assert (visible(broker, P), visible(broker, Q), broker.groups.group("g").positions) == seen

    for seed in range(10):
        broker.__init__()  # type: ignore[misc]
        broker.topics.create(TopicSpec("t", 2))
        run(main(), seed)


def test_a_killed_writers_transaction_times_out_although_nobody_asks(broker: MemoryBroker) -> None:
    async def main() -> None:
        network = Losing("writer.end", Fate.REQUEST_LOST)
        log, writer, member = await start(network, broker)
        with pytest.raises(WriterDead):
            await writer.commit(commit(member))
        log.kill()
        reader = MemoryLog(broker).reader(committed=True)
        reader.seek(P, 0)
        (fetched,) = await reader.poll(100.0)
        assert (list(fetched.records), fetched.next_offset) == ([], 2)
        assert asyncio.get_running_loop().time() == pytest.approx(20.0, abs=0.1)

    run(main(), 0)


def test_a_frozen_writer_wakes_up_as_a_zombie(broker: MemoryBroker) -> None:
    async def main() -> None:
        log, writer, member = await start(Network(), broker)
        log.network.freeze()
        committing = asyncio.ensure_future(writer.commit(commit(member)))
        await asyncio.sleep(30)
        heir = MemoryLog(broker)
        mine = (await heir.membership(MemberOptions("g", "v", STAGES)).join(())).member
        log.network.thaw()
        with pytest.raises(Fenced):
            await committing
        other = heir.writer(WriterOptions("v", Guarantee.EXACTLY_ONCE))
        await other.open()
        await heir.admin().fence("w")
        assert await other.commit(commit(mine)) == {P: 3, Q: 3}

    run(main(), 0)
    assert visible(broker, P) == visible(broker, Q) == [b"a"]


def test_a_client_behind_a_cut_learns_that_it_is_lost(broker: MemoryBroker) -> None:
    async def main() -> None:
        log = MemoryLog(broker)
        membership = log.membership(MemberOptions("g", "w", STAGES))
        await membership.join(())
        log.network.cut()
        with pytest.raises(BrokerUnreachable):
            await log.connect()
        with pytest.raises(Retry):
            await log.admin().list_topics()
        await membership.wait_rejoin()
        assert membership.lost
        log.network.heal()
        assert (await membership.join(())).tasks

    run(main(), 0)
