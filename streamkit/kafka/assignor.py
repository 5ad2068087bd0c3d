"""Who runs which task: every task once, as many for each as for the others, and nothing moved without need.

Pure code, run by the leader of each round (`membership.py`). In this order: a task stays with the live member that
owns it; the numbers of tasks differ by at most one; the tasks of each stage are spread, so that the heaviest stage is
not in one place. The same input gives the same answer, whatever the order of the members.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from streamkit.kafka.ports import StageTasks
from streamkit.model.ids import TaskId


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """What a member says when it joins: its writer, its tasks, and in which group generation it got them."""

    writer_id: str
    group_generation: int
    owned: tuple[TaskId, ...]


def assign(stages: Sequence[StageTasks], members: Mapping[str, Claim]) -> dict[str, tuple[TaskId, ...]]:
    """The tasks of each member, sorted; there must be at least one member."""
    tasks = [TaskId(stage.stage, partition) for stage in stages for partition in range(stage.partitions)]
    held = _held(set(tasks), members)
    quota = _quotas(len(tasks), held)
    shares = {stage.stage: stage.partitions / len(members) for stage in stages}
    for member, its_tasks in held.items():
        while len(its_tasks) > quota[member]:
            its_tasks.remove(_to_give_up(its_tasks, shares))
    placed = {task for its_tasks in held.values() for task in its_tasks}
    _deal([task for task in tasks if task not in placed], held, quota)
    order = {task: number for number, task in enumerate(tasks)}
    return {member: tuple(sorted(its_tasks, key=order.__getitem__)) for member, its_tasks in held.items()}


def _held(tasks: set[TaskId], members: Mapping[str, Claim]) -> dict[str, set[TaskId]]:
    """What each member keeps if nothing else counted; of two that claim a task, the one who got it last."""
    owner: dict[TaskId, str] = {}
    for member in sorted(members, key=lambda name: (-members[name].group_generation, name)):
        for task in members[member].owned:
            if task in tasks:
                owner.setdefault(task, member)
    held: dict[str, set[TaskId]] = {member: set() for member in sorted(members)}
    for task, member in owner.items():
        held[member].add(task)
    return held


def _quotas(total: int, held: Mapping[str, set[TaskId]]) -> dict[str, int]:
    """How many tasks each gets; the one more that some must have goes to those that hold most already."""
    least, remainder = divmod(total, len(held))
    most_first = sorted(held, key=lambda member: (-len(held[member]), member))
    return {member: least + (rank < remainder) for rank, member in enumerate(most_first)}


def _to_give_up(its_tasks: set[TaskId], shares: Mapping[str, float]) -> TaskId:
    """A task of the stage of which this member has most above its share."""
    counts = Counter(task.stage for task in its_tasks)
    return max(its_tasks, key=lambda task: (counts[task.stage] - shares[task.stage], task))


def _deal(homeless: Sequence[TaskId], held: Mapping[str, set[TaskId]], quota: Mapping[str, int]) -> None:
    """Give each task to the member with room that has the fewest of its stage, then the fewest at all."""
    counts = {member: Counter(task.stage for task in its_tasks) for member, its_tasks in held.items()}
    open_to = [member for member in held if len(held[member]) < quota[member]]
    for task in homeless:
        member = min(open_to, key=lambda name: (counts[name][task.stage], len(held[name]), name))
        held[member].add(task)
        counts[member][task.stage] += 1
        if len(held[member]) == quota[member]:
            open_to.remove(member)
