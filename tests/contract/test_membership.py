"""What a membership promises: every task in one place, few moves, and everybody learns of a change."""

import asyncio
from collections.abc import Sequence

import pytest

from streamkit.errors import Fenced, Misconfigured
from streamkit.kafka.ports import Assignment, MemberOptions, Membership, StageTasks
from streamkit.kafka.preview import preview
from streamkit.model.ids import TaskId
from tests.contract.harness import SESSION_S, STAGES, Cluster, contract, out, write

ALL = [TaskId(stage.stage, number) for stage in STAGES for number in range(stage.partitions)]


async def join_together(*joining: tuple[Membership, Sequence[TaskId]]) -> list[Assignment]:
    """One round: the first is in the group already and waits until it is asked, the others come."""
    (first, owned), *others = joining
    coming = [asyncio.ensure_future(each.join(its)) for each, its in others]
    async with asyncio.timeout(20):
        await first.wait_rejoin()
        return [await first.join(owned), *(await asyncio.gather(*coming))]


@contract
async def test_a_member_alone_gets_every_task(cluster: Cluster) -> None:
    group = cluster.name("group")
    membership = await cluster.membership(group, "w1")
    assignment = await membership.join(())
    assert sorted(assignment.tasks) == ALL
    assert assignment.live_writers == {"w1"}
    assert assignment.member.group == group
    assert not membership.rejoin_needed
    assert not membership.lost


@contract
async def test_whoever_looks_sees_what_the_members_run_and_disturbs_nobody(cluster: Cluster) -> None:
    group = cluster.name("group")
    membership, admin = await cluster.membership(group, "w1"), await cluster.admin()
    options = MemberOptions(group, "looking", STAGES)
    assert preview(options, await admin.members(group)).running == frozenset()
    await membership.join(())
    assert preview(options, await admin.members(group)).running == set(ALL)
    with pytest.raises(Misconfigured, match="another pipeline is running"):
        preview(MemberOptions(group, "looking", (StageTasks("other", 1),)), await admin.members(group))
    assert not membership.rejoin_needed


@contract
async def test_two_members_share_the_tasks_and_know_each_other(cluster: Cluster) -> None:
    group = cluster.name("group")
    first, second = await cluster.membership(group, "w1"), await cluster.membership(group, "w2")
    alone = await first.join(())
    one, two = await join_together((first, alone.tasks), (second, ()))
    assert sorted([*one.tasks, *two.tasks]) == ALL
    assert abs(len(one.tasks) - len(two.tasks)) <= 1
    assert one.live_writers == two.live_writers == {"w1", "w2"}
    assert one.member.generation == two.member.generation > alone.member.generation
    assert one.member.member_id == alone.member.member_id != two.member.member_id


@contract
async def test_a_task_stays_where_it_is_unless_balance_demands_a_move(cluster: Cluster) -> None:
    group = cluster.name("group")
    first, second = await cluster.membership(group), await cluster.membership(group)
    alone = await first.join(())
    one, two = await join_together((first, alone.tasks), (second, ()))
    assert set(one.tasks) <= set(alone.tasks)
    third = await cluster.membership(group)
    coming = asyncio.ensure_future(third.join(()))
    await asyncio.gather(first.wait_rejoin(), second.wait_rejoin())
    later = await asyncio.gather(first.join(one.tasks), second.join(two.tasks))
    await coming
    assert set(later[0].tasks) <= set(one.tasks)
    assert set(later[1].tasks) <= set(two.tasks)


@contract
async def test_who_leaves_gives_its_tasks_to_the_others_at_once(cluster: Cluster) -> None:
    group = cluster.name("group")
    first, second = await cluster.membership(group, "w1"), await cluster.membership(group, "w2")
    alone = await first.join(())
    _, two = await join_together((first, alone.tasks), (second, ()))
    started = asyncio.get_running_loop().time()
    await first.leave()
    await second.wait_rejoin()
    rest = await second.join(two.tasks)
    assert asyncio.get_running_loop().time() - started < 5  # far less than the session time-out
    assert sorted(rest.tasks) == ALL
    assert rest.live_writers == {"w2"}


@contract
async def test_who_left_is_not_a_member_any_more(cluster: Cluster) -> None:
    group = cluster.name("group")
    membership = await cluster.membership(group)
    await membership.join(())
    await membership.leave()
    assert membership.lost
    assert await (await cluster.admin()).members(group) == []


@contract
async def test_who_left_can_come_back(cluster: Cluster) -> None:
    membership = await cluster.membership(cluster.name("group"))
    before = await membership.join(())
    await membership.leave()
    after = await membership.join(())
    assert sorted(after.tasks) == ALL
    assert after.member.member_id != before.member.member_id
    assert not membership.lost
    assert not membership.rejoin_needed


@contract
async def test_each_round_has_its_own_generation(cluster: Cluster) -> None:
    membership = await cluster.membership(cluster.name("group"))
    first = await membership.join(())
    second = await membership.join(first.tasks)
    assert second.member.generation > first.member.generation
    assert second.member.member_id == first.member.member_id
    assert sorted(second.tasks) == ALL


@contract
async def test_a_commit_is_taken_while_the_round_waits_for_us_and_refused_after_it(cluster: Cluster) -> None:
    partition = await cluster.partition()
    writer, group = await cluster.writer(), cluster.name("group")
    first, second = await cluster.membership(group), await cluster.membership(group)
    alone = await first.join(())
    coming = asyncio.ensure_future(second.join(()))
    await first.wait_rejoin()
    assert first.rejoin_needed
    assert not first.lost
    await write(writer, alone.member, out(writer, partition, b"last"), positions={partition: 1})
    await first.join(alone.tasks)
    await coming
    with pytest.raises(Fenced):
        await write(writer, alone.member, out(writer, partition, b"late"), positions={partition: 2})


@contract
async def test_who_is_remembered_as_dead_is_made_to_leave(cluster: Cluster) -> None:
    group = cluster.name("group")
    dead = await cluster.membership(group, "w1")
    before = await dead.join(())
    heir = await cluster.membership(group, "w1", remembered=before.member.member_id)
    async with asyncio.timeout(5):  # without it the round waits for the dead one
        after = await heir.join(())
    assert sorted(after.tasks) == ALL
    assert await (await cluster.admin()).members(group) == [after.member.member_id]
    async with asyncio.timeout(10):
        await dead.wait_rejoin()
    assert dead.lost


@contract
async def test_remembering_somebody_who_is_gone_is_fine(cluster: Cluster) -> None:
    membership = await cluster.membership(cluster.name("group"), remembered="somebody-long-gone")
    assert sorted((await membership.join(())).tasks) == ALL


@contract
async def test_a_silent_member_loses_its_tasks_after_its_session(cluster: Cluster) -> None:
    group, partition = cluster.name("group"), await cluster.partition()
    sleeper = await cluster.sleeper(cluster.member_options(group, "w1"))
    assert sorted(sleeper.assignment.tasks) == ALL
    sleeper.freeze()
    awake = await cluster.membership(group, "w2")
    async with asyncio.timeout(30):
        assignment = await awake.join(())
    assert sorted(assignment.tasks) == ALL
    assert assignment.live_writers == {"w2"}
    writer = await cluster.writer()
    with pytest.raises(Fenced):
        await write(writer, sleeper.assignment.member, positions={partition: 1})
    sleeper.thaw()
    await sleeper.wait_lost()


@contract
async def test_a_member_whose_event_loop_is_held_keeps_its_place(cluster: Cluster) -> None:
    group = cluster.name("group")
    sleeper = await cluster.sleeper(cluster.member_options(group))
    sleeper.hold(2 * SESSION_S)
    await asyncio.sleep(2 * SESSION_S + 1)
    assert not sleeper.membership.lost
    assert await (await cluster.admin()).members(group) == [sleeper.assignment.member.member_id]


@contract
async def test_who_gives_up_while_its_event_loop_is_held_is_replaced_at_once(cluster: Cluster) -> None:
    group = cluster.name("group")
    sleeper = await cluster.sleeper(cluster.member_options(group))
    sleeper.hold(SESSION_S)
    started = asyncio.get_running_loop().time()
    sleeper.membership.abandon()
    assert sleeper.membership.lost
    successor = await (await cluster.membership(group)).join(())
    assert asyncio.get_running_loop().time() - started < SESSION_S / 2
    assert len(successor.tasks) == sum(stage.partitions for stage in STAGES)


@contract
async def test_who_was_lost_comes_back_as_somebody_else(cluster: Cluster) -> None:
    group = cluster.name("group")
    lost = await cluster.membership(group, "w1")
    before = await lost.join(())
    heir = await cluster.membership(group, "w2", remembered=before.member.member_id)
    after = await heir.join(())
    await lost.wait_rejoin()
    assert lost.lost
    taken, back = await join_together((heir, after.tasks), (lost, before.tasks))
    assert back.member.member_id != before.member.member_id
    assert not lost.lost
    assert sorted([*taken.tasks, *back.tasks]) == ALL
    assert set(taken.tasks) <= set(after.tasks)


@contract
async def test_waiting_for_a_round_ends_at_once_if_one_is_due(cluster: Cluster) -> None:
    group = cluster.name("group")
    first, second = await cluster.membership(group), await cluster.membership(group)
    alone = await first.join(())
    coming = asyncio.ensure_future(second.join(()))
    await first.wait_rejoin()
    await first.wait_rejoin()
    await first.join(alone.tasks)
    await coming


@contract
async def test_more_members_than_tasks_leaves_some_without(cluster: Cluster) -> None:
    group, stages = cluster.name("group"), (StageTasks("one", 1),)
    first = await cluster.membership(group, stages=stages)
    second = await cluster.membership(group, stages=stages)
    alone = await first.join(())
    one, two = await join_together((first, alone.tasks), (second, ()))
    assert (one.tasks, two.tasks) == ((TaskId("one", 0),), ())
