"""Who runs which task: every task that somebody can run once, evenly, and nothing moved without need.

Pure code, run by the leader of each round (`membership.py`). Workers of two versions of a pipeline may be in one group:
each says which tasks it knows and which of them it cannot run, and is given no other. In this order: a task stays with
the live member that owns it; no task could be moved so that the numbers of tasks become more even; the tasks of each
stage are spread, so that the heaviest stage is not in one place. The same input gives the same answer, whatever the
order of the members.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from streamkit.errors import Misconfigured
from streamkit.kafka.ports import Assignment, MemberOptions, StageTasks
from streamkit.model.commit import Member
from streamkit.model.ids import TaskId


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """What a member says when it joins: its writer, its tasks, and in which group generation it got them.

    Fields are only ever added at the end, with a default: members of several releases read each other.
    """

    writer_id: str
    group_generation: int
    owned: tuple[TaskId, ...]
    # The stages of its plan; None from a release that does not say, and is taken to know what the leader knows.
    knows: tuple[StageTasks, ...] | None = None
    # Tasks whose stored state it must not touch.
    declines: tuple[TaskId, ...] = ()
    # The fingerprint of its plan.
    plan: str = ""


class MemberShare(msgspec.Struct, frozen=True, array_like=True):
    """What the leader tells a member. Fields are only ever added at the end, with a default."""

    tasks: tuple[TaskId, ...]
    # The writer ids of all members.
    writers: tuple[str, ...]
    # Tasks that nobody in the group can run.
    stranded: tuple[TaskId, ...] = ()
    # The plans of the members that came with tasks.
    plans: tuple[str, ...] = ()
    # The stages of the others, if this member has none in common with them: it is of another pipeline.
    strangers: tuple[str, ...] = ()

    def for_member(self, member: Member, options: MemberOptions) -> Assignment:
        """The decision as the runtime sees it.

        Raises:
            Misconfigured: the group is that of another pipeline.
        """
        if self.strangers:
            own = ", ".join(_names(options.stages))
            raise Misconfigured(
                f'another pipeline is running under the name "{options.group}"',
                detail=f"its stages are {', '.join(self.strangers)}; this one has {own}",
                hint="give one of the two another name; if this is a new version with nothing left of the old one, stop\n"
                "all workers of the old one first",
            )
        stranded, plans = frozenset(self.stranded), frozenset(self.plans)
        return Assignment(member, self.tasks, frozenset(self.writers), stranded, plans)


def claim_of(
    options: MemberOptions, generation: int, owned: Sequence[TaskId], declined: Sequence[TaskId]
) -> Claim:
    """What a member says of itself."""
    return Claim(options.writer_id, generation, tuple(owned), options.stages, tuple(declined), options.plan)


def decide(stages: Sequence[StageTasks], members: Mapping[str, Claim]) -> dict[str, MemberShare]:
    """What each member is told; `stages` are what those members know that do not say it. There is at least one."""
    strangers = _strangers(stages, members)
    kin = {member: claim for member, claim in members.items() if member not in strangers}
    tasks = assign(stages, kin)
    writers = tuple(sorted({claim.writer_id for claim in members.values()}))
    plans = tuple(sorted({claim.plan for claim in members.values() if claim.owned and claim.plan}))
    given = {task for its_tasks in tasks.values() for task in its_tasks}
    stranded = tuple(task for task in _all_tasks(stages, kin) if task not in given)
    decisions = {
        member: MemberShare(its_tasks, writers, stranded, plans) for member, its_tasks in tasks.items()
    }
    return decisions | {
        member: MemberShare((), writers, strangers=others) for member, others in strangers.items()
    }


def assign(stages: Sequence[StageTasks], members: Mapping[str, Claim]) -> dict[str, tuple[TaskId, ...]]:
    """The tasks of each member, sorted; there must be at least one member."""
    tasks = _all_tasks(stages, members)
    able = {member: _able(stages, members[member]) for member in sorted(members)}
    held = _held(able, members)
    placed = {task for its_tasks in held.values() for task in its_tasks}
    _deal([task for task in tasks if task not in placed], held, able)
    _balance(held, able)
    order = {task: number for number, task in enumerate(tasks)}
    return {member: tuple(sorted(its_tasks, key=order.__getitem__)) for member, its_tasks in held.items()}


def _all_tasks(stages: Sequence[StageTasks], members: Mapping[str, Claim]) -> list[TaskId]:
    """Every task that somebody knows: stage by stage as the leader has them, then what only others know."""
    counts: dict[str, int] = {}
    for claim in members.values():
        for stage in _known(stages, claim):
            counts[stage.stage] = max(counts.get(stage.stage, 0), stage.partitions)
    place = {stage.stage: number for number, stage in enumerate(stages)}
    in_order = sorted(counts, key=lambda name: (place.get(name, len(place)), name))
    return [TaskId(stage, partition) for stage in in_order for partition in range(counts[stage])]


def _known(stages: Sequence[StageTasks], claim: Claim) -> Sequence[StageTasks]:
    return stages if claim.knows is None else claim.knows


def _able(stages: Sequence[StageTasks], claim: Claim) -> set[TaskId]:
    """What a member can run."""
    known = _known(stages, claim)
    tasks = {TaskId(stage.stage, partition) for stage in known for partition in range(stage.partitions)}
    return tasks.difference(claim.declines)


def _held(able: Mapping[str, set[TaskId]], members: Mapping[str, Claim]) -> dict[str, set[TaskId]]:
    """What each member keeps if nothing else counted; of two that claim a task, the one who got it last."""
    owner: dict[TaskId, str] = {}
    for member in sorted(members, key=lambda name: (-members[name].group_generation, name)):
        for task in members[member].owned:
            if task in able[member]:
                owner.setdefault(task, member)
    held: dict[str, set[TaskId]] = {member: set() for member in able}
    for task, member in owner.items():
        held[member].add(task)
    return held


def _deal(
    homeless: Sequence[TaskId], held: Mapping[str, set[TaskId]], able: Mapping[str, set[TaskId]]
) -> None:
    """Give each task to the member that has the fewest tasks, then the fewest of its stage."""
    counts = {member: Counter(task.stage for task in its_tasks) for member, its_tasks in held.items()}
    for task in homeless:
        candidates = [member for member in held if task in able[member]]
        if not candidates:
            continue  # everybody who knows it has declined it
        member = min(candidates, key=lambda name: (len(held[name]), counts[name][task.stage], name))
        held[member].add(task)
        counts[member][task.stage] += 1


def _balance(held: Mapping[str, set[TaskId]], able: Mapping[str, set[TaskId]]) -> None:
    """Move tasks, along members that can take them, until nobody could have fewer at the cost of one with less."""
    while (way := _way_down(held, able)) is not None:
        for giver, taker in itertools.pairwise(way):
            task = _to_give_up(held[giver] & able[taker], held[giver], held[taker])
            held[giver].remove(task)
            held[taker].add(task)


def _way_down(held: Mapping[str, set[TaskId]], able: Mapping[str, set[TaskId]]) -> list[str] | None:
    """The shortest chain of members from one that has most tasks to one that has at least two fewer."""
    fewest_first = sorted(held, key=lambda member: (len(held[member]), member))
    for giver in reversed(fewest_first):
        if len(held[giver]) < len(held[fewest_first[0]]) + 2:
            return None
        way = _way_from(giver, fewest_first, held, able)
        if way is not None:
            return way
    return None


def _way_from(
    giver: str,
    fewest_first: Sequence[str],
    held: Mapping[str, set[TaskId]],
    able: Mapping[str, set[TaskId]],
) -> list[str] | None:
    most = len(held[giver]) - 2
    came_from = {giver: giver}
    reached = [giver]
    for member in reached:  # grows meanwhile
        for other in fewest_first:
            if other in came_from or held[member].isdisjoint(able[other]):
                continue
            came_from[other] = member
            if len(held[other]) <= most:
                return _chain(other, came_from)
            reached.append(other)
    return None


def _chain(last: str, came_from: Mapping[str, str]) -> list[str]:
    way = [last]
    while came_from[way[-1]] != way[-1]:
        way.append(came_from[way[-1]])
    return way[::-1]


def _to_give_up(movable: Iterable[TaskId], giver: set[TaskId], taker: set[TaskId]) -> TaskId:
    """A task of the stage of which the giver has most more than the taker."""
    counts = Counter(task.stage for task in giver)
    counts.subtract(Counter(task.stage for task in taker))
    return max(movable, key=lambda task: (counts[task.stage], task))


def _strangers(stages: Sequence[StageTasks], members: Mapping[str, Claim]) -> dict[str, tuple[str, ...]]:
    """Members that have no stage in common with those that are at work (or with the leader), and their stages.

    Two versions of one pipeline have stages in common; two pipelines that were given one name have none.
    """
    at_work = [claim for claim in members.values() if claim.owned and claim.knows]
    settled = {name for claim in at_work for name in _names(claim.knows or ())} or set(_names(stages))
    return {
        member: tuple(sorted(settled))
        for member, claim in members.items()
        if settled and claim.knows and not claim.owned and settled.isdisjoint(_names(claim.knows))
    }


def _names(stages: Iterable[StageTasks]) -> list[str]:
    return [stage.stage for stage in stages]
