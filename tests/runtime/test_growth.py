"""A source that gets more partitions while its pipeline runs."""

import pytest

import streamkit as sk
from streamkit.errors import LogGap, Misconfigured, Retry, StateLost
from streamkit.model.ids import MIN_TIME, TopicPartition
from streamkit.model.signal import Watermark
from streamkit.progress.channels import Channels, Status
from streamkit.progress.task_clock import ClockState, TaskClock
from streamkit.runtime.growth import LOOK_S
from streamkit.runtime.prepare import inspect
from streamkit.testing import Harness
from streamkit.testing.memory.admin import MemoryAdmin
from streamkit.windows import Window, tumbling
from tests.runtime.pages import COUNTS, VIEWS, Count, View, as_count, check_running_counts, counting, page_of


def send(harness: Harness, count: int) -> None:
    for number in range(count):
        harness.send(VIEWS, View(f"page-{number % 7}"), key=str(number))


def grow(harness: Harness, topic: str, partitions: int) -> None:
    harness._do(harness._log.admin().add_partitions(topic, partitions))


def counted(harness: Harness) -> int:
    return sum(check_running_counts(harness.read(COUNTS)).values())


def tasks(harness: Harness, stage: str) -> list[int]:
    return sorted(
        task.partition
        for worker in harness.workers
        for task in worker.loop.roster.tasks
        if task.stage == stage
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_new_partitions_are_taken_over_within_a_minute_and_without_a_restart(workers: int) -> None:
    with Harness(counting(), partitions=2, workers=workers) as harness:
        send(harness, 30)
        harness.run()
        grow(harness, "views", 5)
        send(harness, 30)  # some of them go to partitions that nobody reads yet
        harness.advance(2 * LOOK_S)
        harness._do(harness._until(harness._is_settled))
        assert tasks(harness, "views") == [0, 1, 2, 3, 4]
        assert tasks(harness, "page_of") == [0, 1]  # behind the shuffle nothing has moved
        harness.run()
        harness.crash(0)
        harness.restart(0)
        send(harness, 30)
        harness.run()
        assert counted(harness) == 90


def test_a_broker_that_is_too_busy_to_add_partitions_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    add, tries = MemoryAdmin.add_partitions, []

    async def busy(self: MemoryAdmin, topic: str, partitions: int) -> None:
        tries.append(topic)
        if len(tries) in range(2, 6):  # the first is that of the source itself
            raise Retry("waiting for new partitions took longer than 30 s")
        await add(self, topic, partitions)

    monkeypatch.setattr(MemoryAdmin, "add_partitions", busy)
    with Harness(counting(), partitions=2) as harness:
        grow(harness, "views", 5)
        send(harness, 30)
        harness.advance(3 * LOOK_S)
        harness._do(harness._until(harness._is_settled))
        harness.run()
        assert tasks(harness, "views") == [0, 1, 2, 3, 4]
        assert counted(harness) == 30
    assert len(tries) == 6


def test_state_that_depends_on_the_count_is_not_torn_apart() -> None:
    keyed = sk.topic("views", View, key=str)
    pipeline = sk.pipeline("pages")
    pipeline.read_keyed(keyed).count(name="per_key").map_keyed(as_count).write(COUNTS)
    with Harness(pipeline, partitions=2) as harness:
        send(harness, 10)
        harness.run()
        grow(harness, "views", 3)
        harness.advance(3 * LOOK_S)
        assert not harness.workers[0].work.done()
        assert tasks(harness, "views") == [0, 1]  # the old ones go on
        findings = harness._do(inspect(harness._plan, harness._log.admin())).findings
        assert any(
            "has 2 partitions, the pipeline needs 3" in each.what for each in findings if not each.good
        )
        harness.crash(0)
        with pytest.raises(Misconfigured, match="has 2 partitions, the pipeline needs 3"):
            harness.restart(0)


def test_event_time_waits_for_a_writer_that_we_had_not_heard_of() -> None:
    channels = Channels(2)
    channels.accept(0, Watermark(100))
    channels.accept(1, Watermark(100))
    assert channels.combined == (Status.ACTIVE, 100)
    channels.grow(4)
    assert channels.combined == (
        Status.ACTIVE,
        MIN_TIME,
    )  # a task's clock never goes back, so it stands still
    channels.accept(2, Watermark(150))
    channels.accept(3, Watermark(90))
    assert channels.combined == (Status.ACTIVE, 90)


def test_a_worker_that_knows_fewer_writers_keeps_those_that_were_committed() -> None:
    state = ClockState(watermark=50, channels={"s": ([100, 100, 60], [0, 0, 0])})
    channels = Channels(2)
    TaskClock(state, {}, {"s": channels}, lambda: 0, lambda: 0)
    assert channels.watermarks == [100, 100, 60]


def minutes(page: str, window: Window, count: int) -> Count:
    return Count(f"{page}@{window.start}", count)


def test_event_time_goes_on_after_a_source_has_grown() -> None:
    pipeline = sk.pipeline("pages")
    windows = pipeline.read(VIEWS).key_by(page_of).window(tumbling(sk.seconds(10)))
    windows.count(into=minutes, name="per_page").write(COUNTS)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(VIEWS, View("a"), key="x", timestamp=1_000)
        harness.run()
        grow(harness, "views", 2)
        harness.advance(2 * LOOK_S)
        harness._do(harness._until(harness._is_settled))
        assert harness._broker.topics.partition(TopicPartition("pages.views.changelog.1", 1)) is not None
        harness.send(VIEWS, View("a"), key="x", timestamp=2_000)
        harness.advance(60)  # the new partition is silent, and holds nobody back for ever
        for number in range(8):
            harness.send(VIEWS, View("b"), key=str(number), timestamp=60_000)
        harness.run()
        harness.advance(60)
        harness.run()
        assert Count("a@0", 2) in harness.read(COUNTS)


@pytest.mark.parametrize(("topic", "error"), [("shuffle", LogGap), ("changelog", StateLost)])
def test_what_is_lost_behind_a_source_that_has_grown_is_told_as_lost(
    topic: str, error: type[Misconfigured]
) -> None:
    with Harness(counting(), partitions=2, local_shuffle=False) as harness:
        send(harness, 30)
        harness.run()
        grow(harness, "views", 5)
        harness.advance(2 * LOOK_S)
        harness.run()
        harness.crash()
        harness.advance(20)
        harness._do(harness._log.admin().delete([f"pages.page_of.{topic}.1"]))
        with pytest.raises(error):
            harness.restart()
        harness._kill(harness.workers[0])
