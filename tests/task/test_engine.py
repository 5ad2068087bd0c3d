"""The engine by plain calls: no event loop, no broker, and the same results as a whole worker."""

from collections.abc import Iterator

import msgspec
import pytest

import streamkit as sk
from streamkit.graph.resolve import resolve
from streamkit.model.commit import Member, OutBatch
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.model.records import FetchedBatch, Headers
from streamkit.progress.writers import Writers
from streamkit.runtime.assign import inputs_of
from streamkit.state.memory import MemoryStores
from streamkit.state.task_state import TaskState
from streamkit.task.clocks import Clocks
from streamkit.task.engine import Engine
from streamkit.task.failures import Verdict
from streamkit.task.span_end import SpanCommit
from streamkit.task.task import Life, Restored, Task
from streamkit.task.time_rules import TimeRules
from streamkit.testing import Harness
from streamkit.testing.memory.batch import MemoryBatch
from tests.runtime.pages import COUNTS, VIEWS, Count, View, counting

NOBODY = Member("", "", -1)


class Record(msgspec.Struct):
    """Keeps the promises of `LogRecord`."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = []


class Memory:
    """Makes batches, and is the log that they come to lie in."""

    batch_bytes_max = 900_000

    def __init__(self) -> None:
        self.log: dict[TopicPartition, list[Record]] = {}

    def batch(self, bytes_max: int | None = None) -> MemoryBatch:
        return MemoryBatch(bytes_max or self.batch_bytes_max)

    def write(self, batches: list[OutBatch]) -> dict[TopicPartition, int]:
        for out in batches:
            assert isinstance(out.batch, MemoryBatch)
            for timestamp, key, value, headers in out.batch.drafts:
                self.add(out.partition, key, value, timestamp, headers)
        return {at: len(records) for at, records in self.log.items()}

    def add(
        self, at: TopicPartition, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        records = self.log.setdefault(at, [])
        records.append(Record(len(records), timestamp, key, value, headers))

    def fetch(self, at: TopicPartition, position: int) -> FetchedBatch:
        records = self.log.get(at, [])
        return FetchedBatch(at, records[position:], position, len(records), 0)


class Driver:
    """All tasks of a pipeline, driven stage by stage: what Spark does with one level after the other."""

    def __init__(self, pipeline: sk.Pipeline, partitions: int = 2) -> None:
        plan = pipeline.plan()
        counts = dict.fromkeys([*plan.sources(), *plan.sinks(), plan.dead_letter_topic], partitions)
        self.plan = resolve(plan, counts)
        counts |= {topic: count or 0 for topic, count in self.plan.shuffles().items()}
        self.memory = Memory()
        self.now_ms = 1_000_000
        clocks = Clocks(lambda: self.now_ms, lambda: 0)
        rules = TimeRules(self.plan.is_timed, Writers(self.plan.writers()), 3_600_000, 200, clocks)
        self.engine = Engine(self.plan, rules, self.memory, counts, {})
        self.tasks = [
            self._start(TaskId(each.name, n)) for each in self.plan.stages for n in range(partitions)
        ]

    def _start(self, task_id: TaskId) -> Task:
        stage = next(each for each in self.plan.stages if each.name == task_id.stage)
        inputs = inputs_of(stage, task_id.partition)
        task = self.engine.make(task_id, stage, inputs)
        state = TaskState(MemoryStores().open(str(task_id)), stage.stores)
        task.move(Life.RESTORING)
        self.engine.start(task, Restored(state, dict.fromkeys(inputs, 0), 0, "birth"))
        return task

    def of_stage(self) -> Iterator[list[Task]]:
        for stage in self.plan.stages:
            yield [task for task in self.tasks if task.stage is stage]

    def run(self) -> list[Verdict]:
        """Stage after stage: read what is there, let time pass, end the span, write it."""
        verdicts = []
        for tasks in self.of_stage():
            self.engine.begin_span(self.now_ms)
            for task in tasks:
                verdicts += [self._feed(task, at) for at in task.inputs]
                assert self.engine.pass_time(task) == (None, True)
            self.land(self.engine.end_span(tasks, NOBODY, "writer"))
        return [each for each in verdicts if each is not None]

    def _feed(self, task: Task, at: TopicPartition) -> Verdict | None:
        return self.engine.feed(task, self.memory.fetch(at, task.positions[at]))

    def land(self, span: SpanCommit | None) -> None:
        assert span is not None
        self.engine.landed(span, self.memory.write(span.commit.all_batches))

    def values(self, topic: str) -> list[bytes | None]:
        return [
            each.value for at, some in sorted(self.memory.log.items()) if at.topic == topic for each in some
        ]


def pages(count: int) -> list[View]:
    return [View(f"page-{number % 7}") for number in range(count)]


def send(driver: Driver, views: list[View]) -> None:
    for number, view in enumerate(views):
        data = msgspec.json.encode(view)
        driver.memory.add(TopicPartition("views", number % 2), b"k", data, 1_000_000 + number, [])


def decoded(driver: Driver) -> list[Count]:
    return sorted(
        (msgspec.json.decode(data or b"", type=Count) for data in driver.values("counts")),
        key=lambda each: (each.page, each.views),
    )


def from_harness(views: list[View]) -> list[Count]:
    with Harness(counting(), partitions=2) as harness:
        for number, view in enumerate(views):
            harness.send(VIEWS, view, key=str(number))
        harness.run()
        return sorted(harness.read(COUNTS), key=lambda each: (each.page, each.views))


def test_two_stages_by_plain_calls_give_what_a_worker_gives():
    driver = Driver(counting())
    send(driver, pages(500))
    assert driver.run() == []
    assert decoded(driver) == from_harness(pages(500))


def test_state_goes_on_from_span_to_span():
    driver = Driver(counting())
    for _ in range(3):
        send(driver, pages(70))
        driver.run()
    assert [each.views for each in decoded(driver) if each.page == "page-0"] == list(range(1, 31))


def test_a_span_that_is_rewound_leaves_nothing():
    driver = Driver(counting())
    send(driver, pages(50))
    for task in next(driver.of_stage()):
        for at in task.inputs:
            driver.engine.feed(task, driver.memory.fetch(at, 0))
    assert driver.engine.outbox.is_filled
    driver.engine.drop()
    for task in driver.tasks:
        driver.engine.rewind(task)
    assert not driver.engine.outbox.is_filled
    driver.run()
    assert decoded(driver) == from_harness(pages(50))


def test_a_record_that_cannot_be_decoded_becomes_a_letter_and_the_others_go_on():
    driver = Driver(counting())
    send(driver, pages(10))
    driver.memory.log[TopicPartition("views", 0)][1].value = b"{"
    assert driver.run() == []
    assert len(decoded(driver)) == 9
    assert driver.values("pages.dead-letters") == [b"{"]


class Reminder(sk.Operator[str, View, Count]):
    """Answers each view a second later."""

    def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:  # noqa: ARG002
        ctx.set_timer(ctx.now + 1_000, clock="processing")

    def on_timer(self, timer: sk.Timer, ctx: sk.Context[str, Count]) -> None:  # noqa: ARG002
        ctx.emit(Count(ctx.key, 1))


def test_timers_of_processing_time_fire_when_time_passes():
    pipeline = sk.pipeline("reminders")
    pipeline.read(VIEWS).key_by(lambda view: view.page).process(Reminder()).write(COUNTS)
    driver = Driver(pipeline)
    send(driver, pages(14))
    driver.run()
    assert decoded(driver) == []
    driver.now_ms += 1_000
    driver.run()
    assert len(decoded(driver)) == 7


@pytest.mark.parametrize("policy", [sk.fail()])
def test_a_failure_that_is_not_set_aside_is_for_the_caller(policy):
    driver = Driver(counting(on_error=policy))
    send(driver, pages(4))
    driver.memory.log[TopicPartition("views", 0)][0].value = b"{"
    task = driver.tasks[0]
    at = next(iter(task.inputs))
    assert driver.engine.feed(task, driver.memory.fetch(at, 0)) is Verdict.WAIT
