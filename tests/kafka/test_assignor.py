"""The assignor's promises, on generated groups and on the cases that people will see."""

import math
from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from streamkit.kafka.assignor import Claim, assign
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
