"""What an admin promises about topics, offsets, positions and fencing."""

import asyncio

import pytest

from streamkit.errors import Fenced, Misconfigured, Retry
from streamkit.model.commit import Guarantee
from streamkit.model.ids import Position, TopicPartition
from streamkit.model.topic_shape import TopicSpec
from tests.contract.harness import Cluster, contract, out, write


@contract
async def test_a_topic_is_created_as_it_was_asked_for(cluster: Cluster) -> None:
    admin = await cluster.admin()
    name, missing = cluster.name("topic"), cluster.name("missing")
    await admin.create([TopicSpec(name, 3, 1, {"cleanup.policy": "compact"})])
    assert await admin.partitions([name, missing]) == {name: 3}
    (info,) = (await admin.describe([name, missing])).values()
    assert (info.name, info.partitions, info.replication) == (name, 3, 1)
    assert info.config["cleanup.policy"] == "compact"
    assert name in await admin.list_topics()


@contract
async def test_what_counts_for_a_topic_is_told_with_the_brokers_defaults(cluster: Cluster) -> None:
    admin = await cluster.admin()
    topic = await cluster.topic(1, cleanup_policy="compact")
    info = (await admin.describe([topic]))[topic]
    assert info.config == {"cleanup.policy": "compact"}
    wanted = {
        "cleanup.policy": "compact",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.after.max.ms": "3600000",
    }
    assert {name: info.effective[name] for name in wanted} == wanted
    await admin.configure(topic, {"message.timestamp.after.max.ms": "1000"})
    assert (await admin.describe([topic]))[topic].effective["message.timestamp.after.max.ms"] == "1000"


@contract
async def test_the_list_of_topics_is_sorted_and_without_kafkas_own(cluster: Cluster) -> None:
    admin = await cluster.admin()
    first, second = cluster.name("b"), cluster.name("a")
    await admin.create([TopicSpec(first, 1, 1), TopicSpec(second, 1, 1)])
    await cluster.member()  # so that Kafka has its own topic of positions
    names = await admin.list_topics()
    assert names == sorted(names)
    assert {first, second} <= set(names)
    assert not any(name.startswith("__") for name in names)


@contract
async def test_a_new_topic_can_be_written_to_at_once(cluster: Cluster) -> None:
    writer, member = await cluster.writer(), await cluster.member()
    for _ in range(3):
        partition = await cluster.partition()
        assert await write(writer, member, out(writer, partition, b"a")) == {partition: 1}


@contract
async def test_a_topic_that_exists_is_left_as_it_is(cluster: Cluster) -> None:
    admin = await cluster.admin()
    name, other = await cluster.topic(2), cluster.name("topic")
    await admin.create([TopicSpec(name, 5, 1, {"cleanup.policy": "compact"}), TopicSpec(other, 1, 1)])
    assert await admin.partitions([name, other]) == {name: 2, other: 1}
    assert "cleanup.policy" not in (await admin.describe([name]))[name].config


@contract
async def test_configure_changes_the_entries_named_and_no_others(cluster: Cluster) -> None:
    admin = await cluster.admin()
    name = await cluster.topic(1, retention_ms="1000000", cleanup_policy="compact")
    await admin.configure(name, {"retention.ms": "2000000", "max.message.bytes": "5000"})
    config = (await admin.describe([name]))[name].config
    assert dict(config) == {
        "retention.ms": "2000000",
        "cleanup.policy": "compact",
        "max.message.bytes": "5000",
    }


@contract
async def test_a_missing_topic_can_not_be_changed_or_measured(cluster: Cluster) -> None:
    admin = await cluster.admin()
    missing = cluster.name("missing")
    with pytest.raises(Misconfigured):
        await admin.configure(missing, {"retention.ms": "1"})
    with pytest.raises(Misconfigured):
        await admin.add_partitions(missing, 3)
    with pytest.raises(Misconfigured):
        await admin.end_offsets([TopicPartition(missing, 0)], committed=False)
    with pytest.raises(Misconfigured):
        await admin.start_offsets([TopicPartition(await cluster.topic(1), 1)])


@contract
async def test_partitions_can_be_added_and_written_to(cluster: Cluster) -> None:
    admin = await cluster.admin()
    name = await cluster.topic(1)
    await admin.add_partitions(name, 3)
    assert await admin.partitions([name]) == {name: 3}
    writer, last = await cluster.writer(), TopicPartition(name, 2)
    assert await write(writer, await cluster.member(), out(writer, last, b"a")) == {last: 1}


@contract
async def test_deleted_topics_are_gone_and_missing_ones_are_fine(cluster: Cluster) -> None:
    admin = await cluster.admin()
    name = await cluster.topic(1)
    await admin.delete([name, cluster.name("missing")])
    assert await admin.partitions([name]) == {}
    assert name not in await admin.list_topics()


@contract
@pytest.mark.parametrize("guarantee", list(Guarantee))
async def test_a_position_keeps_its_note(cluster: Cluster, guarantee: Guarantee) -> None:
    admin = await cluster.admin()
    left, right = await cluster.partition(), await cluster.partition()
    writer, member = await cluster.writer(guarantee=guarantee), await cluster.member()
    await write(writer, member, positions={left: Position(7, "span 3 ü"), right: 8})
    found = await admin.positions(member.group, [left, right], timeout_s=10)
    assert found == {left: 7, right: 8}
    assert {at: position.note for at, position in found.items()} == {left: "span 3 ü", right: ""}


@contract
async def test_a_topic_made_again_under_its_name_is_empty(cluster: Cluster) -> None:
    admin = await cluster.admin()
    partition = await cluster.partition()
    writer, member = await cluster.writer(guarantee=Guarantee.AT_LEAST_ONCE), await cluster.member()
    await write(writer, member, out(writer, partition, b"a"))
    await admin.delete([partition.topic])
    await admin.create([TopicSpec(partition.topic, 1, 1)])
    assert await admin.end_offsets([partition], committed=False) == {partition: 0}


@contract
async def test_questions_about_nothing_are_answered_with_nothing(cluster: Cluster) -> None:
    admin = await cluster.admin()
    await admin.create([])
    await admin.delete([])
    assert await admin.partitions([]) == {}
    assert await admin.describe([]) == {}
    assert await admin.end_offsets([], committed=True) == {}
    assert await admin.positions(cluster.name("group"), [], timeout_s=5) == {}


@contract
async def test_offsets_of_an_empty_partition_are_zero(cluster: Cluster) -> None:
    admin = await cluster.admin()
    partition = await cluster.partition()
    assert await admin.start_offsets([partition]) == {partition: 0}
    assert await admin.end_offsets([partition], committed=True) == {partition: 0}
    assert await admin.offsets_for_time([partition], 0) == {partition: 0}


@contract
async def test_the_committed_end_is_the_start_of_the_oldest_open_transaction(cluster: Cluster) -> None:
    admin = await cluster.admin()
    partition = await cluster.partition()
    writer, member = await cluster.writer(), await cluster.member()
    await write(writer, member, out(writer, partition, b"a"))
    stuck = cluster.name("stuck")
    await cluster.leave_open(stuck, {partition: b"open"}, "", {})
    await write(writer, member, out(writer, partition, b"b"))
    await writer.open()
    assert await admin.end_offsets([partition], committed=True) == {partition: 2}
    assert await admin.end_offsets([partition], committed=False) == {partition: 5}
    await admin.fence(stuck)
    assert await admin.end_offsets([partition], committed=True) == {partition: 6}


@contract
async def test_a_time_leads_to_the_first_record_at_or_after_it(cluster: Cluster) -> None:
    admin = await cluster.admin()
    partition = await cluster.partition()
    writer, member = await cluster.writer(guarantee=Guarantee.AT_LEAST_ONCE), await cluster.member()
    for timestamp in (1000, 3000, 2000):
        await write(writer, member, out(writer, partition, b"a", timestamp=timestamp))
    found = [(await admin.offsets_for_time([partition], at))[partition] for at in (0, 1000, 1001, 3000, 3001)]
    assert found == [0, 0, 1, 1, 3]


@contract
async def test_a_group_without_positions_has_none(cluster: Cluster) -> None:
    admin = await cluster.admin()
    partition = await cluster.partition()
    assert await admin.positions(cluster.name("group"), [partition], timeout_s=10) == {}


@contract
async def test_positions_wait_for_the_transaction_that_holds_them(cluster: Cluster) -> None:
    admin = await cluster.admin()
    topic = await cluster.topic(2)
    held, free = TopicPartition(topic, 0), TopicPartition(topic, 1)
    group, stuck = cluster.name("group"), cluster.name("stuck")
    await admin.reset_positions(group, {held: 1, free: 2})
    await cluster.leave_open(stuck, {held: b"open"}, group, {held: 5})
    assert await admin.positions(group, [free], timeout_s=5) == {free: 2}
    with pytest.raises(Retry):
        await admin.positions(group, [held, free], timeout_s=0.5)
    waiting = asyncio.ensure_future(admin.positions(group, [held, free], timeout_s=20))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await (await cluster.admin()).fence(stuck)
    assert await waiting == {held: 1, free: 2}


@contract
async def test_positions_can_be_reset_only_without_members(cluster: Cluster) -> None:
    admin = await cluster.admin()
    partition = await cluster.partition()
    group = cluster.name("group")
    await admin.reset_positions(group, {partition: 42})
    membership = await cluster.membership(group)
    await membership.join(())
    with pytest.raises(Misconfigured):
        await admin.reset_positions(group, {partition: 7})
    assert await admin.positions(group, [partition], timeout_s=10) == {partition: 42}
    await membership.leave()
    await admin.reset_positions(group, {partition: 7})
    assert await admin.positions(group, [partition], timeout_s=10) == {partition: 7}


@contract
async def test_the_members_of_a_group_are_known_by_their_ids(cluster: Cluster) -> None:
    admin = await cluster.admin()
    group = cluster.name("group")
    assert await admin.members(group) == []
    member = await cluster.member(group)
    assert await admin.members(group) == [member.member_id]


@contract
async def test_a_fenced_writer_can_not_commit(cluster: Cluster) -> None:
    admin = await cluster.admin()
    partition = await cluster.partition()
    writer, member = await cluster.writer(), await cluster.member()
    await write(writer, member, out(writer, partition, b"a"))
    await admin.fence(writer.writer_id)
    with pytest.raises(Fenced):
        await write(writer, member, out(writer, partition, b"b"), positions={partition: 1})
    assert await admin.end_offsets([partition], committed=False) == {partition: 2}
    assert await admin.positions(member.group, [partition], timeout_s=10) == {}


@contract
async def test_a_writer_that_nobody_knows_can_be_fenced(cluster: Cluster) -> None:
    await (await cluster.admin()).fence(cluster.name("writer"))
