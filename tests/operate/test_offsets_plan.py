"""Positions: what is reported, what may be set, and what is refused because state was built on it."""

import asyncio

import msgspec
import pytest

import streamkit as sk
from streamkit.errors import Misconfigured, Misuse, StateLost
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import MemberOptions, StageTasks, WriterOptions
from streamkit.model.commit import Commit, Guarantee, Member, OutBatch
from streamkit.model.ids import Position, TopicPartition
from streamkit.model.topic_shape import TopicSpec
from streamkit.operate.offsets_apply import drop_state
from streamkit.operate.offsets_plan import (
    plan_anew,
    plan_repair,
    plan_reset,
    require_no_state,
    require_stopped,
)
from streamkit.operate.offsets_report import partitions_of, report_offsets
from streamkit.runtime.prepare import inspect, prepare
from streamkit.state.changelog import CommitRecord
from streamkit.state.keys import COMMIT_KEY
from streamkit.testing.memory import MemoryBroker, MemoryLog


@pytest.fixture
def plan() -> Plan:
    pipeline = sk.pipeline("p")
    text = sk.topic("in", str)
    pipeline.read(text).key_by(lambda word: word, key_type=str, name="by").count(name="n").write(
        sk.topic("out", int)
    )
    return pipeline.plan()


@pytest.fixture
async def log() -> MemoryLog:
    log = MemoryLog(MemoryBroker())
    await log.admin().create([TopicSpec("in", 2), TopicSpec("out", 2)])
    await write(log, TopicPartition("in", 0), 3)
    return log


async def write(
    log: MemoryLog, partition: TopicPartition, count: int, key: bytes | None = None, value: bytes = b"x"
) -> None:
    """Records at the times 1000, 2000, ..."""
    writer = log.writer(WriterOptions("test", Guarantee.AT_LEAST_ONCE))
    await writer.open()
    batch = writer.batch()
    for index in range(count):
        batch.append(index, 1000 * (index + 1), key, value, [])
    await writer.commit(Commit([OutBatch(partition, batch, count)], {}, Member("g", "", -1)))
    await writer.close()


async def say_committed(
    log: MemoryLog, changelog: TopicPartition, positions: dict[str, dict[int, int]]
) -> None:
    """A commit record, as a task writes it."""
    record = CommitRecord(
        positions=positions, writer_id="w", generation=1, span=1, birth="b", fingerprint="f"
    )
    await write(log, changelog, 1, COMMIT_KEY, record.encode())


async def test_where_a_source_does_not_exist_lag_is_not_told_as_none(log: MemoryLog, plan: Plan) -> None:
    await log.admin().delete(["in"])
    report = await report_offsets(plan, log.admin())
    assert (report.missing, report.lag_records) == (["in"], None)
    assert [stage.lag_records for stage in report.stages] == [None, 0]


async def test_lag_counts_from_the_position_or_from_the_start(log: MemoryLog, plan: Plan) -> None:
    report = await report_offsets(plan, log.admin())
    assert (report.lag_records, report.members) == (3, 0)
    assert [each.position for each in report.stages[0].inputs] == [None, None]
    await log.admin().reset_positions("p", {TopicPartition("in", 0): Position(2, "with a note")})
    report = await report_offsets(plan, log.admin())
    first = report.stages[0].inputs[0]
    assert (first.position, first.end_offset, first.lag_records) == (2, 3, 1)
    assert b'"position":2' in msgspec.json.encode(report)
    assert b'"before":2' in msgspec.json.encode(await plan_reset(plan, log.admin(), "latest", None))
    assert report.stages[1].inputs == []


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("earliest", [0, 0]),
        ("latest", [3, 0]),
        ("0", [0, 0]),
        ("1970-01-01T00:00:02", [1, 0]),
        ("1970-01-01T01:00:02+01:00", [1, 0]),
        ("2100-01-01", [3, 0]),
    ],
)
async def test_a_place_is_a_word_a_number_or_a_time(
    log: MemoryLog, plan: Plan, to: str, expected: list[int]
) -> None:
    planned = await plan_reset(plan, log.admin(), to, None)
    assert [move.after for move in planned.moves] == expected
    assert not planned.executed


async def test_one_topic_may_be_chosen_and_only_a_source(log: MemoryLog, plan: Plan) -> None:
    assert len((await plan_reset(plan, log.admin(), "latest", "in")).moves) == 2
    with pytest.raises(Misuse, match="does not read"):
        await plan_reset(plan, log.admin(), "latest", "out")


async def test_an_offset_outside_the_log_is_refused(log: MemoryLog, plan: Plan) -> None:
    with pytest.raises(Misconfigured, match="outside in"):
        await plan_reset(plan, log.admin(), "3", None)


async def test_a_missing_topic_is_told(plan: Plan) -> None:
    with pytest.raises(Misconfigured, match="does not exist"):
        await plan_reset(plan, MemoryLog(MemoryBroker()).admin(), "latest", None)


async def test_what_is_no_place_is_misuse(log: MemoryLog, plan: Plan) -> None:
    with pytest.raises(Misuse, match="not a place"):
        await plan_reset(plan, log.admin(), "yesterday", None)


async def test_before_the_first_start_positions_are_free(log: MemoryLog, plan: Plan) -> None:
    await require_no_state(plan, log.admin())
    await log.admin().create([TopicSpec(name, 2) for name in plan.changelogs()])
    await require_no_state(plan, log.admin())


async def test_positions_with_state_behind_them_are_not_moved(log: MemoryLog, plan: Plan) -> None:
    changelog = next(iter(plan.changelogs()))
    await log.admin().create([TopicSpec(changelog, 2)])
    await write(log, TopicPartition(changelog, 1), 1)
    with pytest.raises(Misconfigured, match="committed state") as error:
        await require_no_state(plan, log.admin())
    assert changelog in error.value.where
    assert "new name" in error.value.hint
    assert "--drop-state" in error.value.hint
    assert "savepoint" not in error.value.hint, "there are none"
    assert "--to committed" in error.value.hint


async def test_positions_of_a_running_pipeline_are_not_moved(log: MemoryLog, plan: Plan) -> None:
    member = log.membership(MemberOptions("p", "w", (StageTasks("in", 2),)))
    await member.join([])
    with pytest.raises(Misconfigured, match="is running"):
        await require_stopped(plan, log.admin())
    await member.leave()
    await require_stopped(plan, log.admin())
    await log.close()


async def test_positions_are_set_right_from_the_last_commit_records(log: MemoryLog, plan: Plan) -> None:
    first, second = plan.changelogs()
    await log.admin().create([TopicSpec(first, 2), TopicSpec(second, 2)])
    await say_committed(log, TopicPartition(first, 0), {"in": {0: 1}})
    await say_committed(log, TopicPartition(first, 0), {"in": {0: 2}})
    await say_committed(log, TopicPartition(second, 1), {"shuffle": {1: 7}})
    await log.admin().reset_positions("p", {TopicPartition("in", 0): 0})
    planned = await plan_repair(plan, log)
    assert [(move.topic, move.partition, move.before, move.after) for move in planned.moves] == [
        ("in", 0, 0, 2),
        ("shuffle", 1, None, 7),
    ]


async def test_without_commit_records_nothing_can_be_set_right(log: MemoryLog, plan: Plan) -> None:
    with pytest.raises(Misconfigured, match="committed nothing"):
        await plan_repair(plan, log)


async def test_an_open_transaction_must_end_before_positions_are_set_right(
    log: MemoryLog, plan: Plan
) -> None:
    first, second = plan.changelogs()
    await log.admin().create([TopicSpec(first, 2), TopicSpec(second, 2)])
    await say_committed(log, TopicPartition(first, 0), {"in": {0: 1}})
    writer = log.writer(WriterOptions("gone", Guarantee.EXACTLY_ONCE))
    batch = writer.batch()
    batch.append(0, 1000, COMMIT_KEY, b"x", [])
    transactions = log.broker.transactions
    epoch = transactions.init("gone", 30.0)
    transactions.produce("gone", epoch, TopicPartition(first, 1), batch, asyncio.get_running_loop().time())
    with pytest.raises(Misconfigured, match="still open"):
        await plan_repair(plan, log)


async def test_a_pipeline_begins_anew_with_its_state_dropped(log: MemoryLog, plan: Plan) -> None:
    admin = log.admin()
    await prepare(plan, admin)
    (shuffle,) = plan.shuffles()
    await say_committed(log, TopicPartition("p.in.changelog.1", 0), {"in": {0: 2}})
    await write(log, TopicPartition(shuffle, 1), 4)
    positions = {TopicPartition("in", 0): Position(2, "1"), TopicPartition(shuffle, 1): Position(4, "1")}
    await admin.reset_positions("p", positions)
    planned = await plan_anew(plan, admin, "latest")
    assert sorted(planned.drops) == sorted([shuffle, *plan.changelogs()])
    assert {(each.topic, each.partition): each.after for each in planned.moves} == {
        ("in", 0): 3,
        ("in", 1): 0,
        (shuffle, 0): 0,
        (shuffle, 1): 0,
    }
    await drop_state(plan, admin, None)
    places = await partitions_of(planned.drops, admin)
    assert set((await admin.end_offsets(places, committed=False)).values()) == {0}
    with pytest.raises(StateLost):  # interrupted here, it cannot be started by mistake
        (await inspect(plan, admin)).require()
    after = {TopicPartition(each.topic, each.partition): each.after for each in planned.moves}
    await admin.reset_positions("p", after)
    (await inspect(plan, admin)).require()
