"""A gap in the log: records that a pipeline was to read next, and that are gone. Finds it, and goes on behind it.

Positions and state move on together. For every task that has committed, a new commit record says the new positions and
keeps all else (state, event time), in one transaction with the group's positions, by a member of the group that is alone
in it: a worker that starts meanwhile makes it fail as a whole. Rows of a span that was never finished stay out of the state
(`operate/strays.py`).
"""

import secrets
import time
from collections.abc import Mapping

import msgspec

from streamkit.errors import Fenced, Misconfigured
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Admin, Log, MemberOptions, StageTasks, Writer, WriterOptions
from streamkit.model.commit import Commit, Guarantee, OutBatch
from streamkit.model.ids import Position, TaskId, TopicPartition
from streamkit.operate.offsets_plan import Move, ResetPlan, require_no_open_transaction
from streamkit.operate.offsets_report import partitions_of, positions_of
from streamkit.operate.strays import true_rows
from streamkit.runtime.last_commits import last_commits
from streamkit.state.changelog import CommitRecord
from streamkit.state.keys import COMMIT_KEY

# The place that `--accept-gap` names in the plan.
GAP = "behind the gap"


async def plan_gap(plan: Plan, log: Log) -> ResetPlan:
    """The positions that lie outside their logs, and the nearest ones inside.

    Raises:
        Misconfigured: there is no gap, or a transaction is still open.
    """
    admin = log.admin()
    await require_no_open_transaction(plan, admin)
    records = await last_commits(plan, log)
    inputs = await partitions_of([each.topic for stage in plan.stages for each in stage.inputs], admin)
    group = await positions_of(plan, inputs, admin)
    committed = {at: offset for record in records.values() for at, offset in record.places().items()}
    moves = await _moves({**group, **committed}, inputs, admin)
    if not moves:
        raise Misconfigured(
            f'every position of pipeline "{plan.name}" lies inside its log: there is no gap',
            hint="`streamkit offsets show` shows the positions",
        )
    return ResetPlan(pipeline=plan.name, group=plan.group, to=GAP, moves=moves)


async def _moves(
    positions: Mapping[TopicPartition, int], inputs: list[TopicPartition], admin: Admin
) -> list[Move]:
    starts = await admin.start_offsets(inputs)
    ends = await admin.end_offsets(inputs, committed=False)
    moves = []
    for at in inputs:
        before = positions.get(at)
        if before is None or starts[at] <= before <= ends[at]:
            continue
        after = starts[at] if before < starts[at] else ends[at]
        lost = max(0, after - before)
        moves.append(
            Move(topic=at.topic, partition=at.partition, before=before, after=after, lost_records=lost)
        )
    return moves


async def go_behind_gap(plan: Plan, log: Log, moves: list[Move]) -> None:
    """Set these positions, in the group and in the commit records of the tasks that they belong to.

    Raises:
        Misconfigured: a worker has started meanwhile; nothing was changed.
    """
    # A life as that of a worker: no other has its name, and whoever restores a task retires its writer id when it is over.
    life = f"{plan.group}.accept-gap.{secrets.token_hex(4)}"
    writer_id = f"{life}.1"
    membership = log.membership(await _member(plan, log.admin(), life))
    writer = log.writer(WriterOptions(writer_id, Guarantee.EXACTLY_ONCE))
    try:
        assignment = await membership.join([])
        if assignment.live_writers - {life}:
            raise _started(plan)
        await writer.open()
        after = {TopicPartition(move.topic, move.partition): move.after for move in moves}
        records = _moved(await last_commits(plan, log), after, writer_id)
        positions: dict[TopicPartition, int] = dict(after)
        for record in records.values():
            positions |= {at: Position(offset, str(record.span)) for at, offset in record.places().items()}
        changelogs: list[OutBatch] = []
        for task, record in records.items():
            changelog = TopicPartition(plan.stage(task.stage).changelog, task.partition)
            rows = await true_rows(log, changelog)
            changelogs += _written(changelog, {**rows, COMMIT_KEY: record.encode()}, writer)
        await writer.commit(Commit([], positions, assignment.member, changelogs))
    except Fenced:
        raise _started(plan) from None
    finally:
        await writer.close()
        await membership.leave()


async def _member(plan: Plan, admin: Admin, life: str) -> MemberOptions:
    """A member that owns every task for a moment."""
    counts = await admin.partitions([stage.changelog for stage in plan.stages])
    return MemberOptions(
        group=plan.group,
        writer_id=life,
        stages=tuple(StageTasks(stage.name, counts.get(stage.changelog, 0)) for stage in plan.stages),
        topics=tuple(sorted({each.topic for stage in plan.stages for each in stage.inputs})),
    )


def _moved(
    records: Mapping[TaskId, CommitRecord], after: Mapping[TopicPartition, int], writer_id: str
) -> dict[TaskId, CommitRecord]:
    """The next commit record of each task that has one of these positions: the same but for its positions."""
    moved = {}
    for task, record in records.items():
        places = record.places()
        if places.keys() & after.keys():
            positions: dict[str, dict[int, int]] = {}
            for at, offset in places.items():
                positions.setdefault(at.topic, {})[at.partition] = after.get(at, offset)
            moved[task] = msgspec.structs.replace(
                record, positions=positions, span=record.span + 1, writer_id=writer_id
            )
    return moved


def _written(changelog: TopicPartition, rows: Mapping[bytes, bytes | None], writer: Writer) -> list[OutBatch]:
    """These rows, in this order: the commit record ends them."""
    now_ms = int(time.time() * 1000)
    batches: list[OutBatch] = []
    for key, value in rows.items():
        out = batches[-1] if batches else None
        if out is None or out.batch.append(out.count, now_ms, key, value, []) is None:
            out = OutBatch(changelog, writer.batch(), 0)
            out.batch.append(0, now_ms, key, value, [])
            batches.append(out)
        out.count += 1
    return batches


def _started(plan: Plan) -> Misconfigured:
    return Misconfigured(
        f'a worker of pipeline "{plan.name}" has started meanwhile: nothing was changed',
        hint="stop its workers first",
    )
