"""What a writer promises: everything that one span caused becomes visible together, by its owner, or not at all."""

import asyncio

import pytest

from streamkit.errors import Bug, DataRefused, Fenced, WriterDead
from streamkit.kafka.ports import WriterOptions
from streamkit.model.commit import Commit, Guarantee, Member, OutBatch
from streamkit.model.ids import TopicPartition
from tests.contract.harness import Cluster, contract, out, read_all, write


@contract
async def test_a_commit_tells_the_offset_after_its_last_record(cluster: Cluster) -> None:
    topic = await cluster.topic(2)
    left, right = TopicPartition(topic, 0), TopicPartition(topic, 1)
    writer, member = await cluster.writer(), await cluster.member()
    first = await write(writer, member, out(writer, left, b"a", b"b"), out(writer, right, b"c"))
    assert first == {left: 2, right: 1}
    # Each commit left a marker behind its records.
    assert await write(writer, member, out(writer, left, b"d")) == {left: 4}


@contract
async def test_a_commit_makes_records_and_positions_visible_together(cluster: Cluster) -> None:
    topic = await cluster.topic(3)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    writer, member = await cluster.writer(), await cluster.member()
    batches = [out(writer, each, b"%d" % each.partition) for each in partitions]
    await write(writer, member, *batches, positions={partitions[0]: 7, partitions[1]: 9})
    admin = await cluster.admin()
    assert await admin.positions(member.group, partitions, timeout_s=10) == {
        partitions[0]: 7,
        partitions[1]: 9,
    }
    await admin.fence(writer.writer_id)  # a barrier: the answer to a commit is none
    assert await read_all(cluster, *partitions) == [b"0", b"1", b"2"]


@contract
async def test_batches_of_one_partition_are_written_in_the_order_given(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer = await cluster.writer()
    batches = [out(writer, partition, b"%d" % number, b"%d'" % number) for number in range(5)]
    assert await write(writer, await cluster.member(), *batches) == {partition: 10}
    await writer.open()
    assert await read_all(cluster, partition) == [b"%d%s" % (n, s) for n in range(5) for s in (b"", b"'")]


@contract
async def test_one_commit_follows_another(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer, member = await cluster.writer(), await cluster.member()
    for number in range(30):
        ends = await write(
            writer, member, out(writer, partition, b"%d" % number), positions={partition: number}
        )
        assert ends == {partition: 2 * number + 1}
    await writer.open()
    assert await read_all(cluster, partition) == [b"%d" % number for number in range(30)]


@contract
async def test_an_empty_commit_writes_nothing(cluster: Cluster) -> None:
    writer = await cluster.writer()
    assert await writer.commit(Commit([], {}, await cluster.member())) == {}


@contract
async def test_a_commit_may_hold_positions_alone_or_batches_alone(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer, member = await cluster.writer(), await cluster.member()
    assert await write(writer, member, positions={partition: 5}) == {}
    assert await write(writer, member, out(writer, partition, b"a")) == {partition: 1}
    found = await (await cluster.admin()).positions(member.group, [partition], timeout_s=10)
    assert found == {partition: 5}


@contract
async def test_a_newer_holder_of_the_writer_id_fences_the_older(cluster: Cluster) -> None:
    partition = await cluster.partition()
    member = await cluster.member()
    older = await cluster.writer()
    await write(older, member, out(older, partition, b"mine"), positions={partition: 1})
    newer = await cluster.writer(older.writer_id)
    with pytest.raises(Fenced):
        await write(older, member, out(older, partition, b"late"), positions={partition: 2})
    await write(newer, member, out(newer, partition, b"new"), positions={partition: 3})
    with pytest.raises(WriterDead):
        await write(older, member, out(older, partition, b"later"))
    await newer.open()
    assert await read_all(cluster, partition) == [b"mine", b"new"]
    admin = await cluster.admin()
    assert await admin.positions(member.group, [partition], timeout_s=10) == {partition: 3}


@contract
@pytest.mark.parametrize(("other_id", "generations"), [(None, -1), (None, 1), ("somebody", 0)])
async def test_a_proof_of_membership_that_does_not_hold_is_fenced(
    cluster: Cluster, other_id: str | None, generations: int
) -> None:
    partition = await cluster.partition()
    writer, membership = await cluster.writer(), await cluster.membership(cluster.name("group"))
    await membership.join(())
    member = (await membership.join(())).member
    stale = Member(member.group, other_id or member.member_id, member.generation + generations)
    with pytest.raises(Fenced):
        await write(writer, stale, out(writer, partition, b"a"), positions={partition: 1})
    with pytest.raises(WriterDead):
        await write(writer, member, out(writer, partition, b"b"))
    await writer.open()
    await write(writer, member, out(writer, partition, b"c"))
    await writer.open()
    assert await read_all(cluster, partition) == [b"c"]
    admin = await cluster.admin()
    assert await admin.positions(member.group, [partition], timeout_s=10) == {}


@contract
async def test_batches_without_positions_are_fenced_by_membership_too(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer, member = await cluster.writer(), await cluster.member()
    stale = Member(member.group, "somebody", member.generation)
    with pytest.raises(Fenced):
        await write(writer, stale, out(writer, partition, b"a"))


@contract
async def test_positions_without_a_membership_are_a_bug(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer = await cluster.writer()
    with pytest.raises(Bug):
        await write(writer, Member("group", "", -1), positions={partition: 1})


@contract
async def test_a_batch_larger_than_the_topic_allows_is_refused_and_nothing_is_visible(
    cluster: Cluster,
) -> None:
    small = await cluster.partition(max_message_bytes="2000")
    other = await cluster.partition()
    writer, member = await cluster.writer(), await cluster.member()
    with pytest.raises(DataRefused):
        await write(
            writer, member, out(writer, other, b"a"), out(writer, small, b"x" * 5000), positions={other: 1}
        )
    with pytest.raises(WriterDead):
        await write(writer, member, out(writer, other, b"b"))
    await writer.open()
    admin = await cluster.admin()
    assert await read_all(cluster, other, small) == []
    assert await admin.positions(member.group, [other], timeout_s=10) == {}
    await write(writer, member, out(writer, small, b"fits"))
    await writer.open()
    assert await read_all(cluster, small) == [b"fits"]


@contract
@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE])
async def test_a_compacted_topic_refuses_a_batch_for_one_record_without_a_key(
    cluster: Cluster, guarantee: Guarantee
) -> None:
    compacted = await cluster.partition(cleanup_policy="compact")
    writer, member = await cluster.writer(guarantee=guarantee), await cluster.member()
    batch = writer.batch()
    for index, key in enumerate([b"a", None, b"b"]):
        batch.append(index, cluster.now_ms(), key, b"v", [])
    with pytest.raises(DataRefused) as refused:
        await write(writer, member, OutBatch(compacted, batch, 3))
    assert refused.value.topic == compacted.topic
    assert "record 1 of the batch" in refused.value.detail
    await writer.open()
    await write(writer, member, out(writer, compacted, b"c"))
    await writer.open()
    assert await read_all(cluster, compacted) == [b"c"]


@contract
@pytest.mark.parametrize("ahead_ms", [-60_000, 60_000])
async def test_a_topic_refuses_timestamps_outside_its_bounds(cluster: Cluster, ahead_ms: int) -> None:
    bounded = await cluster.partition(
        message_timestamp_before_max_ms="30000", message_timestamp_after_max_ms="30000"
    )
    stamped = await cluster.partition(message_timestamp_type="LogAppendTime")
    writer, member = await cluster.writer(), await cluster.member()
    timestamp = cluster.now_ms() + ahead_ms
    with pytest.raises(DataRefused) as refused:
        await write(writer, member, out(writer, bounded, b"a", timestamp=timestamp))
    assert refused.value.topic == bounded.topic
    assert "record 0 of the batch" in refused.value.detail
    await writer.open()
    await write(writer, member, out(writer, stamped, b"b", timestamp=timestamp))


@contract
async def test_open_ends_the_transaction_of_an_earlier_holder_for_all_to_see(cluster: Cluster) -> None:
    topic = await cluster.topic(2)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    name, group = cluster.name("writer"), cluster.name("group")
    await cluster.leave_open(name, dict.fromkeys(partitions, b"open"), group, {partitions[0]: 4})
    await cluster.writer(name)
    admin = await cluster.admin()
    stable = await admin.end_offsets(partitions, committed=True)
    assert stable == await admin.end_offsets(partitions, committed=False) == dict.fromkeys(partitions, 2)
    assert await admin.positions(group, partitions, timeout_s=10) == {}
    assert await read_all(cluster, *partitions) == []


@contract
async def test_after_open_every_earlier_commit_is_visible(cluster: Cluster) -> None:
    topic = await cluster.topic(4)
    partitions = [TopicPartition(topic, number) for number in range(4)]
    writer, member = await cluster.writer(), await cluster.member()
    admin = await cluster.admin()
    for number in range(1, 4):
        await write(writer, member, *(out(writer, each, b"a") for each in partitions))
        await writer.open()
        ends = dict.fromkeys(partitions, 2 * number)
        assert await admin.end_offsets(partitions, committed=True) == ends
        assert await admin.end_offsets(partitions, committed=False) == ends


@contract
async def test_a_cancelled_commit_is_in_doubt_and_lands_whole_or_not_at_all(cluster: Cluster) -> None:
    topic = await cluster.topic(2)
    left, right = TopicPartition(topic, 0), TopicPartition(topic, 1)
    writer, member = await cluster.writer(), await cluster.member()
    started = asyncio.Event()

    async def commit() -> None:
        started.set()
        batches = [out(writer, left, b"l"), out(writer, right, b"r")]
        await write(writer, member, *batches, positions={left: 1})

    committing = asyncio.ensure_future(commit())
    await started.wait()
    if committing.cancel():  # in memory it may be done by now
        with pytest.raises(asyncio.CancelledError):
            await committing
        with pytest.raises(WriterDead):
            await write(writer, member, out(writer, left, b"again"))
    await writer.open()
    landed = await read_all(cluster, left, right)
    position = await (await cluster.admin()).positions(member.group, [left], timeout_s=10)
    assert (landed, position) in (([], {}), ([b"l", b"r"], {left: 1}))


@contract
async def test_a_writer_that_was_never_opened_refuses(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer = (await cluster.log()).writer(WriterOptions(cluster.name("writer"), Guarantee.EXACTLY_ONCE))
    with pytest.raises(Bug):
        await write(writer, await cluster.member(), out(writer, partition, b"a"))


@contract
async def test_a_closed_writer_refuses(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer = await cluster.writer()
    await writer.close()
    with pytest.raises(Bug):
        await write(writer, await cluster.member(), out(writer, partition, b"a"))


@contract
async def test_at_least_once_writes_batches_then_positions(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer, member = await cluster.writer(guarantee=Guarantee.AT_LEAST_ONCE), await cluster.member()
    assert await write(writer, member, out(writer, partition, b"a"), positions={partition: 1}) == {
        partition: 1
    }
    stale = Member(member.group, "somebody", member.generation)
    with pytest.raises(Fenced):
        await write(writer, stale, out(writer, partition, b"b"), positions={partition: 2})
    admin = await cluster.admin()
    assert await admin.positions(member.group, [partition], timeout_s=10) == {partition: 1}
    assert await read_all(cluster, partition) == [b"a", b"b"]


@contract
async def test_at_least_once_writes_changelogs_only_behind_acknowledged_results(cluster: Cluster) -> None:
    results, changelog = await cluster.partition(), await cluster.partition()
    writer, member = await cluster.writer(guarantee=Guarantee.AT_LEAST_ONCE), await cluster.member()
    commit = Commit([out(writer, results, b"a")], {}, member, [out(writer, changelog, b"c")])
    assert await writer.commit(commit) == {results: 1, changelog: 1}
    large = out(writer, results, b"x" * 3_000_000)
    with pytest.raises(DataRefused):
        await writer.commit(Commit([large], {changelog: 1}, member, [out(writer, changelog, b"d")]))
    assert await read_all(cluster, changelog) == [b"c"]
    assert await (await cluster.admin()).positions(member.group, [changelog], timeout_s=10) == {}


@contract
async def test_at_least_once_a_former_owner_writes_no_changelog(cluster: Cluster) -> None:
    results, changelog = await cluster.partition(), await cluster.partition()
    writer, member = await cluster.writer(guarantee=Guarantee.AT_LEAST_ONCE), await cluster.member()
    stale = Member(member.group, "somebody", member.generation)
    with pytest.raises(Fenced):
        await writer.commit(
            Commit([out(writer, results, b"a")], {results: 1}, stale, [out(writer, changelog, b"c")])
        )
    assert await read_all(cluster, changelog) == []


@contract
async def test_at_most_once_writes_positions_then_batches(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer, member = await cluster.writer(guarantee=Guarantee.AT_MOST_ONCE), await cluster.member()
    assert await write(writer, member, out(writer, partition, b"a"), positions={partition: 1}) == {
        partition: 1
    }
    stale = Member(member.group, "somebody", member.generation)
    with pytest.raises(Fenced):
        await write(writer, stale, out(writer, partition, b"b"), positions={partition: 2})
    admin = await cluster.admin()
    assert await admin.positions(member.group, [partition], timeout_s=10) == {partition: 1}
    assert await read_all(cluster, partition) == [b"a"]


@contract
async def test_a_batch_is_full_at_its_limit_but_takes_one_record_of_any_size(cluster: Cluster) -> None:
    writer = await cluster.writer()
    value = b"x" * (writer.batch_bytes_max // 3)
    batch = writer.batch()
    assert [batch.append(index, 0, None, value, []) is not None for index in range(2)] == [True, True]
    assert batch.append(2, 0, None, value, []) is None
    assert batch.append(2, 0, None, b"small", []) is not None
    assert writer.batch().append(0, 0, None, value * 9, []) is not None


@contract
async def test_a_batch_takes_nothing_but_bytes(cluster: Cluster) -> None:
    writer = await cluster.writer()
    for key, value in ((b"k", "text"), ("text", b"v"), (1, b"v"), (b"k", {})):
        with pytest.raises(TypeError):
            writer.batch().append(0, 0, key, value, [])  # type: ignore[arg-type]
