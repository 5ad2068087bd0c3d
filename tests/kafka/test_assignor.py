"""The assignor's promises, on generated groups and on the cases that people will see."""

import math
from collections import Counter
from collections.abc import Mapping

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from streamkit.kafka.assignor import Claim, MemberShare, assign, decide
from streamkit.kafka.ports import StageTasks
from streamkit.model.ids import TaskId

Tasks = Mapping[str, tuple[TaskId, ...]]

stage_lists = st.lists(st.integers(0, 12), max_size=5).map(
    lambda counts: [StageTasks(f"stage{number}", count) for number, count in enumerate(counts)]
)
names = st.sets(st.sampled_from([f"m{number}" for number in range(9)]), min_size=1)
any_tasks = st.lists(
    st.builds(TaskId, st.sampled_from(["stage0", "stage1", "gone"]), st.integers(0, 14)), max_size=20
)
any_claims = st.builds(Claim, st.just("w"), st.integers(-1, 3), any_tasks.map(tuple))
groups = st.dictionaries(st.sampled_from([f"m{number}" for number in range(9)]), any_claims, min_size=1)


def newcomers(members: set[str]) -> dict[str, Claim]:
    return {member: Claim(member, -1, ()) for member in members}


def after(tasks: Tasks, members: set[str], generation: int = 1) -> dict[str, Claim]:
    return {member: Claim(member, generation, tasks.get(member, ())) for member in members}


def moves(before: Tasks, now: Tasks) -> set[TaskId]:
    owners = {task: member for member, tasks in before.items() for task in tasks}
    return {task for member, tasks in now.items() for task in tasks if owners.get(task) != member}


@given(stage_lists, groups)
def test_every_task_has_one_owner_and_nobody_has_two_more_than_another(stages, members) -> None:
    result = assign(stages, members)
    assert result.keys() == members.keys()
    wanted = {TaskId(stage.stage, partition) for stage in stages for partition in range(stage.partitions)}
    given_out = [task for tasks in result.values() for task in tasks]
    assert len(given_out) == len(wanted)
    assert set(given_out) == wanted
    counts = [len(tasks) for tasks in result.values()]
    assert max(counts) - min(counts) <= 1


@given(stage_lists, groups)
def test_the_order_of_the_members_does_not_matter(stages, members) -> None:
    assert assign(stages, members) == assign(stages, dict(reversed(members.items())))


@given(stage_lists, groups)
def test_nothing_moves_while_the_members_stay(stages, members) -> None:
    result = assign(stages, members)
    assert assign(stages, after(result, set(members))) == result


@given(stage_lists, groups)
def test_a_task_only_moves_if_its_owner_has_too_many(stages, members) -> None:
    """No fewer moves are possible: what an owner gives up is exactly what it has above the bound."""
    result = assign(stages, members)
    total = sum(stage.partitions for stage in stages)
    for member, claim in members.items():
        owned = {task for task in claim.owned if task in set().union(*map(set, result.values()))}
        if len(owned) <= total // len(members) and all(
            other == member or not owned & set(rival.owned) for other, rival in members.items()
        ):
            assert owned <= set(result[member])


@given(stage_lists, names)
def test_a_new_group_spreads_each_stage(stages, members) -> None:
    result = assign(stages, newcomers(members))
    for stage in stages:
        counts = [sum(task.stage == stage.stage for task in tasks) for tasks in result.values()]
        assert max(counts) - min(counts) <= 1


@given(stage_lists, names, st.data())
def test_when_one_leaves_only_its_tasks_move(stages, members, data) -> None:
    before = assign(stages, newcomers(members | {"leaver"}))
    now = assign(stages, after(before, members))
    assert moves(before, now) == set(before["leaver"])


@given(stage_lists, names)
def test_when_one_joins_only_its_share_moves(stages, members) -> None:
    before = assign(stages, newcomers(members))
    now = assign(stages, after(before, members | {"newcomer"}))
    total = sum(stage.partitions for stage in stages)
    assert moves(before, now) == set(now["newcomer"])
    assert len(now["newcomer"]) <= math.ceil(total / (len(members) + 1))


def test_of_two_claims_the_later_generation_wins_and_then_the_smaller_name() -> None:
    task = TaskId("one", 0)
    stages = [StageTasks("one", 2)]
    stale = {"a": Claim("w1", 3, (task,)), "b": Claim("w2", 4, (task,))}
    assert assign(stages, stale)["b"] == (task,)
    equal = {"b": Claim("w2", 4, (task,)), "a": Claim("w1", 4, (task,))}
    assert assign(stages, equal)["a"] == (task,)


def test_whoever_comes_back_gets_a_fair_part_of_the_heavy_stage() -> None:
    stages = [StageTasks("heavy", 4), StageTasks("light", 4)]
    alone = assign(stages, newcomers({"a"}))
    now = assign(stages, after(alone, {"a", "b"}))
    assert Counter(task.stage for task in now["b"]) == {"heavy": 2, "light": 2}


def test_more_members_than_tasks_leaves_some_idle() -> None:
    result = assign([StageTasks("one", 1)], newcomers({"a", "b"}))
    assert result == {"a": (TaskId("one", 0),), "b": ()}


# -- members of several versions -----------------------------------------------------------------------------------

stage_names = [f"stage{number}" for number in range(4)]
versions = st.dictionaries(st.sampled_from(stage_names), st.integers(0, 7), max_size=4).map(
    lambda counts: tuple(StageTasks(name, count) for name, count in counts.items())
)
some_tasks = st.lists(
    st.builds(TaskId, st.sampled_from([*stage_names, "gone"]), st.integers(0, 8)), max_size=12
).map(tuple)
mixed_claims = st.builds(
    Claim, st.just("w"), st.integers(-1, 3), some_tasks, st.none() | versions, some_tasks, st.just("")
)
mixed_groups = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(7)]), mixed_claims, min_size=1
)


def can_run(stages, claim: Claim) -> set[TaskId]:
    known = stages if claim.knows is None else claim.knows
    return {TaskId(each.stage, number) for each in known for number in range(each.partitions)} - set(
        claim.declines
    )


@given(versions, mixed_groups)
def test_a_task_goes_once_to_somebody_who_can_run_it(stages, members) -> None:
    result = assign(stages, members)
    assert result.keys() == members.keys()
    given_out = [task for tasks in result.values() for task in tasks]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == set().union(*(can_run(stages, claim) for claim in members.values()))
    for member, tasks in result.items():
        assert set(tasks) <= can_run(stages, members[member])


@given(versions, mixed_groups)
def test_nobody_could_have_less_at_the_cost_of_one_who_has_less(stages, members) -> None:
    """No chain of moves leads from a member to one with two tasks fewer."""
    result = assign(stages, members)
    for giver in members:
        reached, new = {giver}, {giver}
        while new:
            new = {
                other
                for other in members
                for member in new
                if set(result[member]) & can_run(stages, members[other])
            } - reached
            reached |= new
        assert all(len(result[giver]) - len(result[other]) <= 1 for other in reached)


@given(versions, mixed_groups)
def test_nothing_moves_while_members_of_several_versions_stay(stages, members) -> None:
    result = assign(stages, members)
    again = {
        member: Claim("w", 5, result[member], claim.knows, claim.declines)
        for member, claim in members.items()
    }
    assert assign(stages, again) == result
    assert assign(stages, dict(reversed(members.items()))) == result


@example((), {"m0": Claim("w", 0, (), (StageTasks("count", 1),), (TaskId("count", 0),), "")})
@given(versions, mixed_groups)
def test_everybody_hears_of_tasks_that_nobody_can_run(stages, members) -> None:
    decisions = decide(stages, members)
    kin = {member: claim for member, claim in members.items() if not decisions[member].strangers}
    known = {
        TaskId(each.stage, number)
        for claim in kin.values()
        for each in (stages if claim.knows is None else claim.knows)
        for number in range(each.partitions)
    }
    able = set().union(*(can_run(stages, claim) for claim in kin.values())) if kin else set()
    for member in kin:
        assert set(decisions[member].stranded) == known - able


def test_a_new_version_gets_its_new_stage_and_its_share_of_the_old_ones() -> None:
    old, new = (StageTasks("a", 4),), (StageTasks("a", 4), StageTasks("b", 2))
    before = assign(old, {"m1": Claim("w1", -1, (), old), "m2": Claim("w2", -1, (), old)})
    members = {member: Claim("w", 1, tasks, old) for member, tasks in before.items()}
    now = assign(old, members | {"m3": Claim("w3", -1, (), new)})
    assert set(now["m3"]) == {TaskId("b", 0), TaskId("b", 1)}
    assert {member: now[member] for member in before} == before


def test_a_member_with_no_stage_in_common_is_of_another_pipeline() -> None:
    ours, theirs = (StageTasks("a", 2),), (StageTasks("z", 2),)
    members = {"m1": Claim("w1", 1, (TaskId("a", 0),), ours), "m2": Claim("w2", -1, (), theirs)}
    for leader in (ours, theirs):
        decisions = decide(leader, members)
        assert decisions["m2"].strangers == ("a",)
        assert decisions["m2"].tasks == ()
        assert decisions["m1"].strangers == ()
        assert decisions["m1"].tasks == (TaskId("a", 0), TaskId("a", 1))


def test_a_claim_and_a_decision_of_an_older_release_are_read() -> None:
    """And an older release reads ours: what it does not know stands at the end."""
    task = TaskId("a", 0)
    old_claim = msgspec.msgpack.encode(["w1", 3, [task]])
    assert msgspec.msgpack.decode(old_claim, type=Claim) == Claim("w1", 3, (task,))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Claim("w1", 3, (task,))))[:3] == [
        "w1",
        3,
        [["a", 0]],
    ]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([[task], ["w"]]), type=MemberShare) == MemberShare(
        (task,), ("w",)
    )
