"""The admin on a real broker: effects are there when it returns, faults pass or are named. The port: `tests/contract/`."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from streamkit.errors import Fenced, Misconfigured, Retry
from streamkit.kafka import admin as admin_module
from streamkit.kafka import transaction_calls as calls
from streamkit.kafka.admin_calls import Found
from streamkit.model.commit import Commit
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_shape import TopicSpec
from streamkit.testing.broker import Broker
from tests.kafka.wiretap import Hold, Rule, Site, first, lost_answer, lost_request, never, site_on

pytestmark = pytest.mark.kafka

METADATA, LIST_OFFSETS, OFFSET_FETCH, CREATE, DELETE, GROW = 3, 2, 9, 19, 20, 37


@pytest.fixture
async def site(kafka_broker: Broker) -> AsyncIterator[Site]:
    async with site_on(kafka_broker.bootstrap) as site:
        yield site


async def test_a_created_topic_can_be_written_and_read_at_once(site: Site) -> None:
    writer = site.writer()
    await writer.open()
    for number in range(5):
        topic = f"{site.name}-new-{number}"
        await site.admin.create([TopicSpec(topic, 6)])
        out = site.batch(writer, 0, [b"a"])
        out.partition = TopicPartition(topic, 5)
        site.wire.seen.clear()
        await writer.commit(Commit([out], {}, site.member))
        ends = await site.admin.end_offsets([out.partition], committed=False)
        assert ends[out.partition] >= 1  # the marker may still be under way


async def test_only_what_was_set_on_the_topic_itself_is_described(site: Site) -> None:
    plain, special = f"{site.name}-plain", f"{site.name}-special"
    config = {"cleanup.policy": "compact", "max.message.bytes": "5000"}
    await site.admin.create([TopicSpec(plain, 2), TopicSpec(special, 1, 1, config)])
    described = await site.admin.describe([plain, special, "nowhere"])
    assert described.keys() == {plain, special}
    assert described[plain].config == {}
    assert described[special].config == config
    assert described[plain].partitions == 2
    assert described[plain].replication >= 1  # the broker's own choice
    await site.admin.configure(special, {"cleanup.policy": "compact, delete", "retention.ms": "1000"})
    changed = (await site.admin.describe([special]))[special].config
    assert changed == {
        "cleanup.policy": "compact,delete",
        "max.message.bytes": "5000",
        "retention.ms": "1000",
    }


@pytest.mark.parametrize("rule", [lost_request, lost_answer], ids=["request", "answer"])
async def test_changes_survive_a_lost_request_and_a_lost_answer(site: Site, rule: Rule) -> None:
    topic = f"{site.name}-changing"
    for key in (CREATE, GROW, DELETE, METADATA, LIST_OFFSETS):
        site.wire.rules[key] = first(1, rule)
    await site.admin.create([TopicSpec(topic, 1)])
    await site.admin.add_partitions(topic, 3)
    assert await site.admin.partitions([topic]) == {topic: 3}
    await site.admin.delete([topic])
    assert await site.admin.partitions([topic]) == {}


async def test_what_the_broker_refuses_is_a_persons_business(site: Site) -> None:
    topic = site.to(0).topic
    with pytest.raises(Misconfigured, match="not be an increase"):
        await site.admin.add_partitions(topic, 2)
    with pytest.raises(Misconfigured, match="INVALID_REPLICATION_FACTOR"):
        await site.admin.create([TopicSpec(f"{topic}-wide", 1, 99)])
    with pytest.raises(Misconfigured, match="Unknown topic config"):
        await site.admin.create([TopicSpec(f"{topic}-odd", 1, None, {"no.such": "1"})])
    with pytest.raises(Misconfigured, match="INVALID_TOPIC"):
        await site.admin.create([TopicSpec("not/a/name", 1)])
    with pytest.raises(Misconfigured, match="no topic"):
        await site.admin.configure("nowhere", {"retention.ms": "1"})
    with pytest.raises(Misconfigured, match="no topic"):
        await site.admin.end_offsets([TopicPartition(topic, 17)], committed=False)
    with pytest.raises(Misconfigured, match="no topic"):
        await site.admin.reset_positions("nobody", {TopicPartition("nowhere", 0): 1})


async def test_internal_topics_are_not_listed(site: Site) -> None:
    writer = site.writer()
    await writer.open()
    await writer.commit(site.commit(writer, {}, 1))  # now Kafka's own two topics exist
    topics = await site.admin.list_topics()
    assert {site.to(0).topic, site.source().topic} <= set(topics)
    assert not [topic for topic in topics if topic.startswith("__")]
    assert topics == sorted(topics)


async def test_a_leader_that_moves_is_looked_up_again(site: Site) -> None:
    async def moved(*_: object) -> list[Found]:
        return [Found(site.to(0), 6, -1)]

    site.wire.rules[LIST_OFFSETS] = first(2, moved)
    assert await site.admin.end_offsets([site.to(0)], committed=True) == {site.to(0): 0}
    assert site.wire.sent().count(LIST_OFFSETS) >= 3


async def test_pending_positions_are_waited_for_and_fencing_frees_them(site: Site) -> None:
    writer = site.writer()
    await writer.open()
    await writer.commit(site.commit(writer, {0: [b"1"]}, 1))
    hold = site.wire.rules[calls.END_TXN_KEY] = Hold()
    committing = asyncio.ensure_future(writer.commit(site.commit(writer, {0: [b"2"]}, 2)))
    await hold.reached.wait()
    with pytest.raises(Retry, match="UNSTABLE_OFFSET_COMMIT"):
        await site.admin.positions(site.member.group, [site.source()], timeout_s=0.3)
    stable = await site.admin.end_offsets([site.to(0)], committed=True)
    assert stable[site.to(0)] < (await site.admin.end_offsets([site.to(0)], committed=False))[site.to(0)]
    await site.admin.fence(writer.writer_id)
    assert await site.position() == 1
    assert await site.admin.end_offsets([site.to(0)], committed=True) == {site.to(0): 4}
    hold.go.set()
    with pytest.raises(Fenced):
        await committing


async def test_positions_of_a_group_with_members_are_not_touched(site: Site) -> None:
    assert await site.admin.members(site.member.group) == [site.member.member_id]
    with pytest.raises(Misconfigured, match="has members"):
        await site.admin.reset_positions(site.member.group, {site.source(): 3})
    assert await site.position() is None


async def test_the_broker_itself_guards_against_a_member_that_joins_meanwhile(site: Site) -> None:
    async def nobody(group: str) -> list[str]:
        return []

    site.admin.members = nobody  # type: ignore[method-assign]
    with pytest.raises(Misconfigured, match="joined just now"):
        await site.admin.reset_positions(site.member.group, {site.source(): 3})
    assert await site.position() is None


async def test_an_answer_that_never_comes_is_a_retry_with_its_reason(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_module, "ADMIN_DEADLINE_S", 0.3)
    site.wire.rules[METADATA] = lost_request
    with pytest.raises(Retry, match="cut before it was sent"):
        await site.admin.list_topics()
    site.wire.rules[METADATA] = never
    with pytest.raises(Retry, match="took longer than"):
        await site.admin.list_topics()
