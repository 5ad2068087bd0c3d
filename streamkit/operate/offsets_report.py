"""Where a pipeline stands in its inputs: position, end and lag of each partition. Asks; changes nothing."""

from collections.abc import Iterable

import msgspec

from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Admin
from streamkit.kafka.preview import stranded_in
from streamkit.model.ids import TopicPartition

# Positions that a transaction holds pending are stable again within a span, or after its owner was fenced.
POSITIONS_TIMEOUT_S = 10.0


class PartitionOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """One input partition: `position` is the next record to read, None before the first commit."""

    topic: str
    partition: int
    position: int | None
    end_offset: int
    lag_records: int


class StageOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of one stage. Where one of its topics does not exist, nobody can tell the lag."""

    stage: str
    inputs: list[PartitionOffsets]
    lag_records: int | None


class OffsetsReport(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline's positions.

    `members` counts the workers in its group now, `missing` names source topics that do not exist, and `stranded` tasks that
    none of the workers can run: another version of the pipeline ran them last.
    """

    pipeline: str
    group: str
    members: int
    stages: list[StageOffsets]
    lag_records: int | None
    missing: list[str] = []
    stranded: list[str] = []


async def report_offsets(plan: Plan, admin: Admin) -> OffsetsReport:
    """Positions, ends and lag of every input that exists."""
    topics = [each.topic for stage in plan.stages for each in stage.inputs]
    partitions = await partitions_of(topics, admin)
    starts = await admin.start_offsets(partitions)
    ends = await admin.end_offsets(partitions, committed=True)
    positions = await positions_of(plan, partitions, admin)
    members = await admin.members(plan.group)
    missing = sorted({*plan.sources()} - {each.topic for each in partitions})
    stages = []
    for stage in plan.stages:
        names = [each.topic for each in stage.inputs]
        inputs = [
            PartitionOffsets(
                topic=each.topic,
                partition=each.partition,
                position=positions.get(each),
                end_offset=ends[each],
                lag_records=max(0, ends[each] - max(positions.get(each, 0), starts[each])),
            )
            for each in partitions
            if each.topic in names
        ]
        lag = None if {*names} & {*missing} else sum(each.lag_records for each in inputs)
        stages.append(StageOffsets(stage=stage.name, inputs=inputs, lag_records=lag))
    return OffsetsReport(
        pipeline=plan.name,
        group=plan.group,
        members=len(members),
        stages=stages,
        lag_records=None if missing else sum(stage.lag_records or 0 for stage in stages),
        missing=missing,
        stranded=[str(task) for task in stranded_in(members)],
    )


async def partitions_of(topics: Iterable[str], admin: Admin) -> list[TopicPartition]:
    """All partitions of the topics that exist, in the order given."""
    names = list(dict.fromkeys(topics))
    counts = await admin.partitions(names)
    return [TopicPartition(name, number) for name in names for number in range(counts.get(name, 0))]


async def positions_of(
    plan: Plan, partitions: Iterable[TopicPartition], admin: Admin
) -> dict[TopicPartition, int]:
    """The group's positions as plain numbers, which can be printed in any form."""
    found = await admin.positions(plan.group, partitions, timeout_s=POSITIONS_TIMEOUT_S)
    return {at: int(position) for at, position in found.items()}
