"""What a reader promises: committed data only, in order, from where it was pointed to."""

import asyncio

import pytest

from streamkit.errors import Misconfigured
from streamkit.model.commit import Guarantee, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_shape import TopicSpec
from tests.contract.harness import Cluster, contract, out, read_all, read_until, take, write


@contract
async def test_a_record_comes_back_as_it_was_written(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer = await cluster.writer()
    batch = writer.batch()
    batch.append(0, 1_700_000_000_123, b"key", b"value", [("name", b"content"), ("empty", None)])
    batch.append(1, 5, None, None, [])
    await write(writer, await cluster.member(), OutBatch(partition, batch, 2))
    found = (await read_until(await cluster.reader(partition), {partition: 3}))[partition]
    assert [(record.offset, record.timestamp, record.key, record.value) for record in found] == [
        (0, 1_700_000_000_123, b"key", b"value"),
        (1, 5, None, None),
    ]
    assert [tuple(header) for header in found[0].headers] == [("name", b"content"), ("empty", None)]
    assert list(found[1].headers) == []


@contract
async def test_a_timestamp_is_the_writers_even_where_the_broker_stamps_its_own(cluster: Cluster) -> None:
    partition = await cluster.partition(message_timestamp_type="LogAppendTime")
    writer = await cluster.writer()
    await write(writer, await cluster.member(), out(writer, partition, b"a", timestamp=12345))
    found = (await read_until(await cluster.reader(partition), {partition: 2}))[partition]
    assert [record.timestamp for record in found] == [12345]


@contract
async def test_a_committed_reader_stops_at_an_open_transaction(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer, member = await cluster.writer(), await cluster.member()
    await write(writer, member, out(writer, partition, b"before"))
    await cluster.leave_open(cluster.name("stuck"), {partition: b"open"}, "", {})
    await write(writer, member, out(writer, partition, b"behind"))
    reader = await cluster.reader(partition)
    found = await read_until(reader, {partition: 2})
    assert [record.value for record in found[partition]] == [b"before"]
    assert [fetched for fetched in await reader.poll(0.3) if take(fetched)] == []


@contract
async def test_a_committed_reader_goes_on_when_the_open_transaction_ends(cluster: Cluster) -> None:
    partition = await cluster.partition()
    stuck = cluster.name("stuck")
    await cluster.leave_open(stuck, {partition: b"open"}, "", {})
    writer = await cluster.writer()
    await write(writer, await cluster.member(), out(writer, partition, b"behind"))
    reader = await cluster.reader(partition)
    waiting = asyncio.ensure_future(read_until(reader, {partition: 4}))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await (await cluster.admin()).fence(stuck)
    assert [record.value for record in (await waiting)[partition]] == [b"behind"]


@contract
async def test_an_uncommitted_reader_sees_open_and_aborted_records(cluster: Cluster) -> None:
    partition = await cluster.partition()
    stuck = cluster.name("stuck")
    await cluster.leave_open(stuck, {partition: b"open"}, "", {})
    assert await read_all(cluster, partition, committed=False) == [b"open"]
    await (await cluster.admin()).fence(stuck)
    assert await read_all(cluster, partition, committed=False) == [b"open"]


@contract
async def test_aborted_records_are_left_out_and_the_position_moves_over_them(cluster: Cluster) -> None:
    partition = await cluster.partition()
    stuck = cluster.name("stuck")
    await cluster.leave_open(stuck, {partition: b"gone"}, "", {})
    await (await cluster.admin()).fence(stuck)
    reader = await cluster.reader(partition)
    assert (await read_until(reader, {partition: 2}))[partition] == []
    writer = await cluster.writer()
    await write(writer, await cluster.member(), out(writer, partition, b"kept"))
    assert await read_all(cluster, partition) == [b"kept"]


@contract
async def test_the_position_moves_over_the_marker_of_a_commit(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer = await cluster.writer()
    await write(writer, await cluster.member(), out(writer, partition, b"a", b"b"))
    reader = await cluster.reader(partition)
    found = await read_until(reader, {partition: 3})
    assert [record.offset for record in found[partition]] == [0, 1]


@contract
async def test_seek_reads_again_from_an_earlier_position(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer = await cluster.writer()
    await write(writer, await cluster.member(), out(writer, partition, b"a", b"b"))
    reader = await cluster.reader(partition)
    first = await read_until(reader, {partition: 3})
    reader.seek(partition, 0)
    second = await read_until(reader, {partition: 3})
    assert [[record.value for record in found[partition]] for found in (first, second)] == [[b"a", b"b"]] * 2


@contract
async def test_a_position_inside_a_batch_says_what_to_skip(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer = await cluster.writer()
    await write(writer, await cluster.member(), out(writer, partition, b"a", b"b", b"c"))
    reader = await cluster.reader()
    reader.seek(partition, 2)
    (fetched,) = await reader.poll(10.0)
    assert fetched.first_offset == 2
    assert [record.value for record in take(fetched)] == [b"c"]


@contract
async def test_a_paused_partition_hands_out_nothing_and_loses_nothing(cluster: Cluster) -> None:
    topic = await cluster.topic(2)
    left, right = TopicPartition(topic, 0), TopicPartition(topic, 1)
    writer, member = await cluster.writer(), await cluster.member()
    reader = await cluster.reader(left, right)
    reader.pause(left)
    await write(writer, member, out(writer, left, b"l"), out(writer, right, b"r"))
    assert [record.value for record in (await read_until(reader, {right: 2}))[right]] == [b"r"]
    assert await reader.poll(0.2) == []
    reader.resume(left)
    assert [record.value for record in (await read_until(reader, {left: 2}))[left]] == [b"l"]


@contract
async def test_a_forgotten_partition_is_not_handed_out(cluster: Cluster) -> None:
    topic = await cluster.topic(2)
    left, right = TopicPartition(topic, 0), TopicPartition(topic, 1)
    writer, member = await cluster.writer(), await cluster.member()
    await write(writer, member, out(writer, left, b"l"), out(writer, right, b"r"))
    reader = await cluster.reader(left, right)
    reader.forget(left)
    assert [record.value for record in (await read_until(reader, {right: 2}))[right]] == [b"r"]
    assert await reader.poll(0.2) == []


@contract
@pytest.mark.parametrize("offset", [999, 3])
async def test_a_position_outside_the_log_is_an_error_and_never_reset(cluster: Cluster, offset: int) -> None:
    partition = await cluster.partition()
    writer = await cluster.writer()
    await write(writer, await cluster.member(), out(writer, partition, b"a"))
    reader = await cluster.reader()
    reader.seek(partition, offset)
    with pytest.raises(Misconfigured):
        await reader.poll(10.0)
    reader.seek(partition, 0)
    assert [record.value for record in (await read_until(reader, {partition: 2}))[partition]] == [b"a"]


@contract
async def test_a_missing_topic_is_an_error(cluster: Cluster) -> None:
    topic = cluster.name("missing")
    reader = await cluster.reader(TopicPartition(topic, 0))
    with pytest.raises(Misconfigured) as refused:
        await reader.poll(30.0)
    assert refused.value.problem == f'topic "{topic}" does not exist'
    assert "`streamkit topics apply --execute`" in refused.value.hint


@contract
async def test_poll_comes_back_empty_when_its_time_is_over(cluster: Cluster) -> None:
    reader = await cluster.reader(await cluster.partition())
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert await reader.poll(0.3) == []
    assert 0.29 < loop.time() - started < 5


@contract
async def test_poll_comes_back_with_what_arrives_first(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer, member = await cluster.writer(), await cluster.member()
    reader = await cluster.reader(partition)
    polling = asyncio.ensure_future(reader.poll(60.0))
    await asyncio.sleep(0.1)
    await write(writer, member, out(writer, partition, b"a"))
    async with asyncio.timeout(10):
        (fetched,) = await polling
    assert fetched.first_offset == 0


@contract
async def test_a_reader_without_partitions_waits_and_finds_nothing(cluster: Cluster) -> None:
    assert await (await cluster.reader()).poll(0.1) == []


@contract
async def test_a_long_log_comes_in_order_and_without_gaps(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer, member = await cluster.writer(guarantee=Guarantee.AT_LEAST_ONCE), await cluster.member()
    for number in range(20):
        await write(writer, member, out(writer, partition, *[b"%03d" % number * 100] * 50))
    found = (await read_until(await cluster.reader(partition), {partition: 1000}))[partition]
    assert [record.offset for record in found] == list(range(1000))
    assert [record.value for record in found] == [b"%03d" % (at // 50) * 100 for at in range(1000)]


@contract
async def test_a_topic_that_appears_later_can_be_read(cluster: Cluster) -> None:
    admin = await cluster.admin()
    partition = await cluster.partition()
    reader = await cluster.reader(partition)
    assert await reader.poll(0.1) == []
    later = TopicPartition(cluster.name("later"), 0)
    await admin.create([TopicSpec(later.topic, 1, 1)])
    reader.seek(later, 0)
    writer = await cluster.writer()
    await write(writer, await cluster.member(), out(writer, later, b"a"))
    assert [record.value for record in (await read_until(reader, {later: 2}))[later]] == [b"a"]
