"""Workers joining, leaving and dying in a group on a real broker."""

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient

from streamkit.errors import Misconfigured
from streamkit.kafka.assignor import Claim
from streamkit.kafka.connection import Connection, Purpose
from streamkit.kafka.group_calls import (
    MemberShare,
    heartbeat,
    join_group,
    leave_group,
    pack_claim,
    pack_decision,
    read_claim,
    read_decision,
)
from streamkit.kafka.membership import KafkaMembership
from streamkit.kafka.ports import Assignment, MemberOptions, StageTasks
from streamkit.model.ids import TaskId
from streamkit.testing.broker import Broker, start_broker
from tests.kafka.auditor import connected

STAGES = (StageTasks("clean", 4), StageTasks("count", 5))
ALL = {TaskId(stage.stage, partition) for stage in STAGES for partition in range(stage.partitions)}
# The smallest that a broker accepts by default.
SESSION_S = 6.0

Make = Callable[..., KafkaMembership]


@pytest.fixture
async def connection(kafka_broker: Broker) -> AsyncIterator[Connection]:
    async with connected(kafka_broker.bootstrap) as connection:
        yield connection


@pytest.fixture
async def make(connection: Connection) -> AsyncIterator[Make]:
    """Members of one new group, all of which have left when the test ends."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    made: list[KafkaMembership] = []

    def member(writer_id: str, **options: Any) -> KafkaMembership:
        given = {"session_timeout_s": SESSION_S, "stages": STAGES, "rebalance_timeout_s": 20.0} | options
        made.append(KafkaMembership(connection, MemberOptions(group, writer_id, **given)))
        return made[-1]

    yield member
    for membership in made:
        await membership.leave()


async def rejoin(membership: KafkaMembership, assignment: Assignment) -> Assignment:
    await membership.wait_rejoin()
    assert not membership.lost
    return await membership.join(assignment.tasks)


async def gather(*joining: Any, timeout_s: float = 20.0) -> list[Assignment]:
    async with asyncio.timeout(timeout_s):
        return list(await asyncio.gather(*joining))


def assert_shared(assignments: Sequence[Assignment], writers: set[str]) -> None:
    given_out = [task for assignment in assignments for task in assignment.tasks]
    assert len(given_out) == len(ALL)
    assert set(given_out) == ALL
    counts = [len(assignment.tasks) for assignment in assignments]
    assert max(counts) - min(counts) <= 1
    assert {assignment.member.generation for assignment in assignments} == {assignments[0].member.generation}
    assert all(assignment.live_writers == writers for assignment in assignments)


async def fall_silent(membership: KafkaMembership) -> None:
    """As a kill would: no heartbeat any more, no goodbye."""
    await membership.close()


@pytest.mark.kafka
async def test_one_two_and_three_members_share_the_tasks_and_keep_what_they_have(make: Make) -> None:
    one, two, three = make("w1"), make("w2"), make("w3")
    first = await one.join(())
    assert_shared([first], {"w1"})
    assert one.member_id == first.member.member_id
    assert not one.rejoin_needed

    second, newcomer = await gather(rejoin(one, first), two.join(()))
    assert_shared([second, newcomer], {"w1", "w2"})
    assert set(second.tasks) <= set(first.tasks)
    assert second.member.generation > first.member.generation

    a, b, c = await gather(rejoin(one, second), rejoin(two, newcomer), three.join(()))
    assert_shared([a, b, c], {"w1", "w2", "w3"})
    assert set(a.tasks) <= set(second.tasks)
    assert set(b.tasks) <= set(newcomer.tasks)


@pytest.mark.kafka
async def test_who_leaves_is_replaced_at_once(make: Make) -> None:
    one, two = make("w1"), make("w2")
    first = await one.join(())
    first, second = await gather(rejoin(one, first), two.join(()))
    begun = time.monotonic()
    await two.leave()
    assert two.member_id is None
    alone = await rejoin(one, first)
    assert time.monotonic() - begun < 2.0
    assert_shared([alone], {"w1"})
    again, back = await gather(rejoin(one, alone), two.join(()))
    assert_shared([again, back], {"w1", "w2"})
    assert back.member.member_id != second.member.member_id


@pytest.mark.kafka
async def test_who_dies_silently_is_replaced_after_its_session(make: Make) -> None:
    one, two, three = make("w1"), make("w2"), make("w3")
    first = await one.join(())
    first, second = await gather(rejoin(one, first), two.join(()))
    first, second, _ = await gather(rejoin(one, first), rejoin(two, second), three.join(()))
    begun = time.monotonic()
    await fall_silent(three)
    now = await gather(rejoin(one, first), rejoin(two, second))
    took = time.monotonic() - begun
    assert_shared(now, {"w1", "w2"})
    assert SESSION_S - 2.0 < took < SESSION_S + 4.0
    assert set(first.tasks) <= set(now[0].tasks)
    assert set(second.tasks) <= set(now[1].tasks)


@pytest.mark.kafka
async def test_a_remembered_member_is_made_to_leave_at_once(make: Make) -> None:
    one, dead = make("w1"), make("w2")
    first = await one.join(())
    first, before = await gather(rejoin(one, first), dead.join(()))
    await fall_silent(dead)
    begun = time.monotonic()
    successor = make("w2", remembered=dead.member_id)
    now = await gather(rejoin(one, first), successor.join(before.tasks))
    assert time.monotonic() - begun < 1.0
    assert_shared(now, {"w1", "w2"})
    assert set(now[1].tasks) == set(before.tasks)


@pytest.mark.kafka
async def test_a_remembered_member_that_nobody_knows_is_no_trouble(make: Make) -> None:
    membership = make("w1", remembered="streamkit-long-gone")
    assert_shared([await membership.join(())], {"w1"})


@pytest.mark.kafka
async def test_heartbeats_go_on_while_the_caller_is_busy_elsewhere(make: Make) -> None:
    membership = make("w1")
    await membership.join(())
    await asyncio.sleep(SESSION_S + 1.5)
    assert not membership.lost
    assert not membership.rejoin_needed


@pytest.mark.kafka
async def test_a_member_thrown_out_learns_it_and_comes_back_with_a_new_name(
    make: Make, connection: Connection
) -> None:
    membership = make("w1")
    before = await membership.join(())
    group = before.member.group
    node = await connection.coordinator(Purpose.GROUP, group)
    lane = connection.new_lane()
    assert await connection.send(node, leave_group(group, [before.member.member_id]), lane) == 0
    async with asyncio.timeout(5):
        await membership.wait_rejoin()
    assert membership.lost
    now = await membership.join(before.tasks)
    assert not membership.lost
    assert not membership.rejoin_needed
    assert now.member.member_id != before.member.member_id
    assert now.member.generation > before.member.generation


@pytest.mark.kafka
async def test_an_older_generation_is_refused(make: Make, connection: Connection) -> None:
    one, two = make("w1"), make("w2")
    first = await one.join(())
    now, _ = await gather(rejoin(one, first), two.join(()))
    group, member_id, generation = now.member.group, now.member.member_id, now.member.generation
    node = await connection.coordinator(Purpose.GROUP, group)
    lane = connection.new_lane()
    assert await connection.send(node, heartbeat(group, generation - 1, member_id), lane) == 22
    assert await connection.send(node, heartbeat(group, generation, "nobody"), lane) == 25
    assert await connection.send(node, heartbeat(group, generation, member_id), lane) == 0


@pytest.mark.kafka
async def test_the_broker_wants_a_name_before_the_first_join(connection: Connection) -> None:
    """KIP-394: otherwise each lost answer would leave a member behind that nobody plays."""
    options = MemberOptions(f"group-{uuid.uuid4().hex[:8]}", "w1", STAGES, SESSION_S)
    async with asyncio.timeout(20):  # a broker that has just started has no coordinators yet
        membership = KafkaMembership(connection, options)
        await membership.join(())
        await membership.leave()
    node = await connection.coordinator(Purpose.GROUP, options.group)
    call = join_group(options, "", Claim("w1", -1, ()))
    answer = await connection.send(node, call, connection.new_lane())
    assert answer.error == 79
    assert answer.member_id


@pytest.mark.kafka
async def test_a_round_may_last_longer_than_a_request(kafka_broker: Broker) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    async with connected(kafka_broker.bootstrap, request_timeout_s=1.0) as connection:
        options = MemberOptions(group, "w1", STAGES, SESSION_S, 15.0)
        one = KafkaMembership(connection, options)
        two = KafkaMembership(connection, MemberOptions(group, "w2", STAGES, SESSION_S, 15.0))
        first = await one.join(())
        joining = asyncio.create_task(two.join(()))
        await one.wait_rejoin()
        await asyncio.sleep(3.5)  # the first one still works on its span
        assert not one.lost
        now = await gather(one.join(first.tasks), joining)
        assert_shared(now, {"w1", "w2"})
        await asyncio.sleep(1.5)
        assert not one.rejoin_needed
        assert not two.rejoin_needed
        await one.leave()
        await two.leave()


@pytest.mark.kafka
async def test_a_cancelled_join_can_be_repeated_or_left(make: Make) -> None:
    one, two = make("w1"), make("w2")
    first = await one.join(())
    joining = asyncio.create_task(two.join(()))
    await one.wait_rejoin()
    joining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await joining
    now = await gather(one.join(first.tasks), two.join(()))
    assert_shared(now, {"w1", "w2"})


@pytest.mark.kafka
async def test_a_process_that_stood_still_for_a_session_is_lost_at_once(make: Make) -> None:
    membership = make("w1")
    await membership.join(())
    beside = membership._heartbeat._loop
    assert beside is not None
    beside.call_soon_threadsafe(time.sleep, SESSION_S + 0.5)
    time.sleep(SESSION_S + 0.5)  # noqa: ASYNC251 - nothing runs, as under SIGSTOP
    assert membership.lost
    assert membership.rejoin_needed
    async with asyncio.timeout(5):
        await membership.wait_rejoin()
    assert_shared([await membership.join(())], {"w1"})


@pytest.mark.kafka
async def test_neither_thread_nor_connection_of_the_heartbeat_outlives_its_member(make: Make) -> None:
    def threads() -> int:
        return sum(thread.name == "streamkit-heartbeat" for thread in threading.enumerate())

    membership = make("w1")
    await membership.join(())
    await membership.join(())
    assert threads() == 1
    await membership.leave()
    assert threads() == 0
    await membership.join(())
    await asyncio.sleep(0.5)
    assert threads() == 1
    await membership.close()
    assert threads() == 0
    assert membership._heartbeat._connection._client is None


@pytest.mark.kafka
async def test_a_session_that_the_broker_does_not_allow_is_explained(make: Make) -> None:
    with pytest.raises(Misconfigured, match="refused us as a member") as raised:
        await make("w1", session_timeout_s=0.5).join(())
    assert "session_timeout_s" in raised.value.hint


@pytest.mark.kafka
async def test_without_a_broker_we_are_lost_after_a_session_and_return_with_it() -> None:
    with start_broker() as broker:
        async with connected(broker.bootstrap) as connection:
            options = MemberOptions("alone", "w1", STAGES, SESSION_S)
            membership = KafkaMembership(connection, options)
            before = await membership.join(())
            broker.kill(0)
            begun = time.monotonic()
            async with asyncio.timeout(SESSION_S + 5):
                await membership.wait_rejoin()
            assert membership.lost
            assert time.monotonic() - begun > SESSION_S - 1.0
            await asyncio.to_thread(broker.restart, 0)
            async with asyncio.timeout(30):
                now = await membership.join(before.tasks)
            assert_shared([now], {"w1"})
            await membership.leave()


@pytest.mark.kafka
async def test_a_group_that_names_its_topics_is_one_of_consumers_to_kafkas_tools(
    kafka_broker: Broker, connection: Connection
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    listed = {}
    for topics in ((), ("orders",)):
        options = MemberOptions(f"group-{uuid.uuid4().hex[:8]}", "w1", STAGES)
        membership = KafkaMembership(connection, msgspec.structs.replace(options, topics=tuple(topics)))
        await membership.join(())
        groups = await asyncio.to_thread(admin.list_consumer_groups().result, 10)
        listed[topics] = {group.group_id for group in groups.valid} & {options.group}
        await membership.leave()
    assert [bool(found) for found in listed.values()] == [False, True]


def test_claims_and_decisions_come_back() -> None:
    claim = Claim("w1", 7, (TaskId("clean", 0), TaskId("count", 3)))
    assert read_claim(pack_claim(claim, ())) == claim
    assert read_claim(pack_claim(claim, ("orders", "clicks"))) == claim
    decision = MemberShare((TaskId("clean", 1),), ("w1", "w2"))
    assert read_decision(pack_decision(decision)) == decision
    assert read_decision(b"") == MemberShare((), ())


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\0\0\0\0\0\0\0\0", b"\0\1\0\0\0\1\0\5other\0\0\0\2\2x", b"junk"]
)
def test_a_member_of_another_kind_is_explained(content: bytes) -> None:
    with pytest.raises(Misconfigured, match="does not speak our format"):
        read_claim(content)
