"""Putting a pipeline where a plan says: the only place where its positions are set or its state is deleted from outside."""

import msgspec

from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Admin, Log
from streamkit.model.ids import TopicPartition
from streamkit.operate.offsets_gap import GAP, go_behind_gap
from streamkit.operate.offsets_plan import COMMITTED, ResetPlan, keeps_nothing, resolved
from streamkit.runtime.internal_topics import state_topics


async def apply_reset(plan: Plan, log: Log, planned: ResetPlan, replication: int | None) -> ResetPlan:
    """Do what was planned for a pipeline whose workers are stopped; returns the plan, marked as executed.

    Raises:
        Misconfigured: a worker has started meanwhile.
    """
    admin = log.admin()
    if planned.drops:
        await drop_state(plan, admin, replication)
    # Without state the commit records alone hold positions, and move with those of the group.
    is_free = keeps_nothing(plan) and planned.to != COMMITTED and not planned.drops
    if planned.to == GAP or is_free:
        await go_behind_gap(plan, log, planned.moves)
    else:
        positions = {TopicPartition(each.topic, each.partition): each.after for each in planned.moves}
        await admin.reset_positions(plan.group, positions)
    return msgspec.structs.replace(planned, executed=True)


async def drop_state(plan: Plan, admin: Admin, replication: int | None) -> None:
    """Delete all shuffles and changelogs and create them anew; a start before positions are set is refused."""
    topics = state_topics(await resolved(plan, admin), replication)
    await admin.delete([spec.name for spec in topics])
    await admin.create(topics)
