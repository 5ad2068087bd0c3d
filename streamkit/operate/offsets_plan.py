"""Where a pipeline may be put in its inputs. Decides; does not act."""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from streamkit.errors import Misconfigured, Misuse
from streamkit.graph.plan import Plan
from streamkit.graph.resolve import resolve
from streamkit.kafka.ports import Admin, Log
from streamkit.model.ids import TopicPartition
from streamkit.operate.offsets_report import partitions_of, positions_of
from streamkit.runtime.internal_topics import state_topics
from streamkit.runtime.last_commits import last_commits

# The place that the commit records name.
COMMITTED = "committed"
NAMED_PLACES = ("earliest", "latest", COMMITTED)


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One partition's position, before and after, and how many offsets between them are gone unread."""

    topic: str
    partition: int
    before: int | None
    after: int
    lost_records: int = 0


class ResetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The positions that would be set, and the topics that would be emptied first. `executed` tells whether they were."""

    pipeline: str
    group: str
    to: str
    moves: list[Move]
    executed: bool = False
    drops: list[str] = []


async def require_stopped(plan: Plan, admin: Admin) -> None:
    """Refuse to move positions under workers that hold them.

    Raises:
        Misconfigured: workers are running.
    """
    members = await admin.members(plan.group)
    if members:
        raise Misconfigured(
            f'pipeline "{plan.name}" is running: its group has {len(members)} member{"s" if len(members) > 1 else ""}',
            hint="stop its workers first; after a crash the group forgets them within the session time-out",
        )


def keeps_nothing(plan: Plan) -> bool:
    """Whether no step remembers anything and no input ends: then positions may be set at any time."""
    return not plan.is_timed and not any(stage.stores for stage in plan.stages)


async def require_no_state(plan: Plan, admin: Admin) -> None:
    """Refuse to tear positions from the state that was built up to them.

    Raises:
        Misconfigured: the pipeline has committed state.
    """
    if keeps_nothing(plan):
        await require_no_open_transaction(plan, admin)
        return
    changelogs = await partitions_of(plan.changelogs(), admin)
    ends = await admin.end_offsets(changelogs, committed=False) if changelogs else {}
    written = sorted({partition.topic for partition, end in ends.items() if end > 0})
    if written:
        raise Misconfigured(
            f'pipeline "{plan.name}" has committed state, and its positions belong to that state',
            where=f"changelog {', '.join(written)}",
            detail="Its state holds the effect of every record before these positions. Other positions would count\n"
            "records twice, or leave some out, and the next start would notice and stop.",
            hint=f'give the pipeline a new name (pipeline("{plan.name}-2")): it starts with empty state, and its\n'
            "positions can be set before its first start.\n"
            "If only the group's positions were moved or lost, `--to committed` sets them to what the state says;\n"
            "if records were deleted that it had not read, `--accept-gap` goes on behind them;\n"
            "`--drop-state` deletes the state too, and begins anew under the same name.",
        )


async def plan_anew(plan: Plan, admin: Admin, to: str) -> ResetPlan:
    """As `plan_reset` of every source, with empty state: shuffles and changelogs begin anew.

    Raises:
        Misconfigured, Misuse: as `plan_reset`; or a transaction is still open.
    """
    await require_no_open_transaction(plan, admin)
    planned = await plan_reset(plan, admin, to, None)
    topics = state_topics(await resolved(plan, admin), None)
    shuffles = [
        TopicPartition(spec.name, number)
        for spec in topics
        if spec.name in plan.shuffles()
        for number in range(spec.partitions)
    ]
    before = await positions_of(plan, shuffles, admin)
    emptied = _moves(plan, to, before, dict.fromkeys(shuffles, 0))
    return msgspec.structs.replace(
        planned, moves=[*planned.moves, *emptied.moves], drops=sorted(spec.name for spec in topics)
    )


async def resolved(plan: Plan, admin: Admin) -> Plan:
    """The plan with the partition counts that its topics have now."""
    return resolve(plan, await admin.partitions([*plan.sources(), *plan.sinks()]))


async def plan_repair(plan: Plan, log: Log) -> ResetPlan:
    """The positions that the commit records name, of sources and shuffles: those that belong to the stored state.

    Raises:
        Misconfigured: nothing was committed yet, or a transaction is still open.
    """
    admin = log.admin()
    await require_no_open_transaction(plan, admin)
    records = await last_commits(plan, log)
    wanted = {at: offset for record in records.values() for at, offset in record.places().items()}
    if not wanted:
        raise Misconfigured(
            f'pipeline "{plan.name}" has committed nothing yet',
            hint="`--to earliest` or `--to latest` begins it",
        )
    before = await positions_of(plan, wanted, admin)
    return _moves(plan, COMMITTED, before, dict(sorted(wanted.items())))


async def require_no_open_transaction(plan: Plan, admin: Admin) -> None:
    """What an open transaction wrote may still be committed, and then another record is the last one.

    Raises:
        Misconfigured: one is open.
    """
    changelogs = await partitions_of(plan.changelogs(), admin)
    written = await admin.end_offsets(changelogs, committed=False) if changelogs else {}
    settled = await admin.end_offsets(changelogs, committed=True) if changelogs else {}
    for place, end in written.items():
        if settled[place] < end:
            raise Misconfigured(
                f"a transaction of a worker that is gone is still open in {place}",
                hint="the broker ends it within the transaction time-out: try again in a minute",
            )


def require_sense(plan: Plan, to: str | None, topic: str | None) -> None:
    """Refuse words that mean nothing, whatever the cluster holds: before anybody looks there.

    Raises:
        Misuse: `to` is no place, or the pipeline does not read the topic.
    """
    sources = plan.sources()
    if topic is not None and topic not in sources:
        raise Misuse(
            f'pipeline "{plan.name}" does not read topic "{topic}"', hint=f"it reads: {', '.join(sources)}"
        )
    if to is not None and to not in NAMED_PLACES and not to.isdecimal():
        _milliseconds(to)


async def plan_reset(plan: Plan, admin: Admin, to: str, topic: str | None) -> ResetPlan:
    """The positions of the source topics that `to` means: earliest, latest, a time, or an offset.

    Raises:
        Misconfigured: a topic is missing, or the offset is outside the log.
        Misuse: `to` means nothing, or the pipeline does not read the topic.
    """
    require_sense(plan, to, topic)
    sources = plan.sources()
    chosen = sources if topic is None else (topic,)
    partitions = await partitions_of(chosen, admin)
    missing = [name for name in chosen if not any(each.topic == name for each in partitions)]
    if missing:
        raise Misconfigured(
            f'topic "{missing[0]}" does not exist', hint="`streamkit topics list` shows what there is"
        )
    wanted = await _wanted(to, partitions, admin)
    before = await positions_of(plan, partitions, admin)
    return _moves(plan, to, before, wanted)


def _moves(
    plan: Plan, to: str, before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]
) -> ResetPlan:
    moves = [
        Move(topic=each.topic, partition=each.partition, before=before.get(each), after=offset)
        for each, offset in after.items()
    ]
    return ResetPlan(pipeline=plan.name, group=plan.group, to=to, moves=moves)


async def _wanted(to: str, partitions: list[TopicPartition], admin: Admin) -> Mapping[TopicPartition, int]:
    if to == "earliest":
        return await admin.start_offsets(partitions)
    if to == "latest":
        return await admin.end_offsets(partitions, committed=True)
    if to.isdecimal():
        return await _at_offset(int(to), partitions, admin)
    return await admin.offsets_for_time(partitions, _milliseconds(to))


async def _at_offset(
    offset: int, partitions: list[TopicPartition], admin: Admin
) -> dict[TopicPartition, int]:
    starts = await admin.start_offsets(partitions)
    ends = await admin.end_offsets(partitions, committed=True)
    for each in partitions:
        if not starts[each] <= offset <= ends[each]:
            raise Misconfigured(
                f"offset {offset} is outside {each}, which holds {starts[each]} to {ends[each]}",
                hint="name one topic with --topic, or use earliest, latest or a time",
            )
    return dict.fromkeys(partitions, offset)


def _milliseconds(to: str) -> int:
    """A time as ISO 8601; without an offset it is taken as UTC."""
    try:
        moment = datetime.fromisoformat(to)
    except ValueError:
        raise Misuse(
            f'"{to}" is not a place in a topic',
            hint="use earliest, latest, committed, an offset such as 1200, or a time such as 2026-01-31T08:00:00+01:00",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
