"""early: before internal topics are created: refuse a plan that the stored state or the group would refuse later.

A renamed `key_by` has topics of a new name. They must not be left behind by a version that is refused because of the state
under the old one. So before the first change the group and the plans that are stored in the changelogs are compared, as a
restore does later; positions are not, for they are settled only when the writers of dead workers have been retired.
"""

from streamkit.config import Settings
from streamkit.graph.fingerprint import Description
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Log, Reader
from streamkit.model.ids import TopicPartition
from streamkit.runtime.agree import decode_plan, require_compatible
from streamkit.runtime.declined import is_newcomer
from streamkit.runtime.group_preview import group_of
from streamkit.runtime.last_commits import find_last, find_last_commit
from streamkit.runtime.prepare import Prepared
from streamkit.state.keys import PLAN_KEY
from streamkit.task.identity import identify


async def require_welcome(prepared: Prepared, log_: Log, settings: Settings) -> None:
    """Refuse a plan that does not fit what is stored, or that another pipeline runs under its name.

    Where workers of the same plan are at work, it is not the newcomer that is wrong: tasks that it cannot run, it leaves.

    Raises:
        Misconfigured: what a worker would end with.
        Retry: a changelog gives no answer.
    """
    plan = prepared.plan
    ours = identify(plan)
    group = await group_of(plan, log_.admin(), settings)
    if not is_newcomer(ours.fingerprint, group.plans):
        return
    for fingerprint, stored in (await _stored_plans(plan, _changelogs(prepared), log_)).items():
        if fingerprint != ours.fingerprint:
            require_compatible(stored, ours, allow_dropped=settings.allow_dropped_state)


def _changelogs(prepared: Prepared) -> list[TopicPartition]:
    """The partitions of those changelogs that are there."""
    missing = {spec.name for spec in prepared.missing}
    return [
        TopicPartition(topic, number)
        for topic in prepared.plan.changelogs()
        if topic not in missing
        for number in range(prepared.partition_counts[topic])
    ]


async def _stored_plans(
    plan: Plan, changelogs: list[TopicPartition], log_: Log
) -> dict[str, Description | None]:
    """By fingerprint the plans under which tasks last committed; one task of each is asked for the plan itself."""
    if not changelogs:
        return {}
    admin = log_.admin()
    starts = await admin.start_offsets(changelogs)
    ends = await admin.end_offsets(changelogs, committed=True)
    found: dict[str, Description | None] = {identify(plan).fingerprint: None}
    reader = log_.reader(committed=True)
    try:
        for place in changelogs:
            await _add_plan(found, reader, place, (starts[place], ends[place]))
    finally:
        await reader.close()
    return found


async def _add_plan(
    found: dict[str, Description | None], reader: Reader, place: TopicPartition, between: tuple[int, int]
) -> None:
    last = await find_last_commit(reader, place, *between)
    if last is not None and last[1].fingerprint not in found:
        row = await find_last(reader, place, PLAN_KEY, (between[0], last[0]))
        found[last[1].fingerprint] = decode_plan(None if row is None else row[1])
