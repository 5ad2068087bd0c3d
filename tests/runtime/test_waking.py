"""Partitions that were all idle and get a backlog at once: whoever wakes up is waited for from its first record on."""

import msgspec
import pytest

import streamkit as sk
from streamkit.codec.signals import decode_signal
from streamkit.codec.values import value_codec
from streamkit.kafka.ports import WriterOptions
from streamkit.model.commit import Commit, Guarantee, Member, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.model.signal import Idle
from streamkit.progress.channels import Status
from streamkit.testing import Harness
from streamkit.windows import tumbling
from tests.progress.alarms import key_on, raw, shuffle_topics

PARTITIONS = 4
BACKLOG = 60


class Visit(msgspec.Struct):
    at: int
    page: str


VISITS = sk.topic("visits", Visit, time="at")
MORE = sk.topic("more-visits", Visit, time="at")
COUNTS = sk.topic("counts", int)
LATE = sk.topic("late", Visit)


def counting(*, topics: tuple[sk.Topic[Visit], ...] = (VISITS,), shuffles: int = 1) -> sk.Pipeline:
    """Visits per second and page, behind as many shuffles; what comes too late is kept."""
    pipeline = sk.pipeline("waking")
    first, *others = [pipeline.read(topic, name=f"read_{topic.name}") for topic in topics]
    keyed = (first.union(*others) if others else first).key_by(
        lambda visit: visit.page, key_type=str, name="by"
    )
    for number in range(shuffles - 1):
        keyed = keyed.key_by(lambda visit: visit.page, key_type=str, name=f"again_{number}")
    keyed.window(tumbling(sk.seconds(1)), late=LATE).count(name="n").write(COUNTS)
    return pipeline


def fall_asleep(harness: Harness, *topics: sk.Topic[Visit]) -> None:
    for topic in topics:
        for partition in range(PARTITIONS):
            harness.send(topic, Visit(0, "home"), key=key_on(partition))
    harness.run()
    harness.advance(60)
    assert {task.clock.status for task in harness._running()} == {Status.IDLE}


def send_backlog(harness: Harness, *topics: sk.Topic[Visit]) -> None:
    """The same hour in every partition, in order, and all of it there at once: in one transaction."""
    writer = harness._log.writer(WriterOptions("bulk", Guarantee.EXACTLY_ONCE))
    encode = value_codec(Visit).encode
    batches = []
    for topic in topics:
        for partition in range(PARTITIONS):
            batch = writer.batch()
            for number in range(BACKLOG):
                visit = Visit(60_000 * (number + 1), f"page-{number % 7}")
                batch.append(number, 0, key_on(partition).encode(), encode(visit), [])
            batches.append(OutBatch(TopicPartition(topic.name, partition), batch, BACKLOG))
    harness._do(writer.open())
    harness._do(writer.commit(Commit(batches, {}, Member("", "", -1))))


def require_way(harness: Harness, *, is_local: bool) -> None:
    loop = harness.workers[0].loop
    assert loop is not None
    assert (loop.local.partitions > 0) is is_local


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("shuffles", [1, 2])
@pytest.mark.parametrize("slice_records", [1, 7])
def test_a_backlog_in_all_partitions_makes_no_record_late(
    is_local: bool, shuffles: int, slice_records: int
) -> None:
    pipeline = counting(shuffles=shuffles)
    with Harness(
        pipeline,
        partitions=PARTITIONS,
        local_shuffle=is_local,
        slice_records=slice_records,
        commit_interval_s=0.0005,
    ) as harness:
        fall_asleep(harness, VISITS)
        require_way(harness, is_local=is_local)
        send_backlog(harness, VISITS)
        harness.run()
        assert harness.read(LATE) == []


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("slice_records", [1, 7])
def test_nor_if_two_topics_of_the_same_task_wake_up(is_local: bool, slice_records: int) -> None:
    pipeline = counting(topics=(VISITS, MORE))
    with Harness(
        pipeline,
        partitions=PARTITIONS,
        local_shuffle=is_local,
        slice_records=slice_records,
        commit_interval_s=0.0005,
    ) as harness:
        fall_asleep(harness, VISITS, MORE)
        require_way(harness, is_local=is_local)
        send_backlog(harness, VISITS, MORE)
        harness.run()
        assert harness.read(LATE) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_a_channel_says_that_it_is_awake_before_its_first_record(workers: int) -> None:
    pipeline = counting(shuffles=2)
    with Harness(pipeline, partitions=PARTITIONS, workers=workers, local_shuffle=False) as harness:
        fall_asleep(harness, VISITS)
        for topic in shuffle_topics(pipeline):
            raw(harness, topic)
        send_backlog(harness, VISITS)
        harness.run()
        for topic in shuffle_topics(pipeline):
            awake: dict[int, set[int]] = {}
            for record in raw(harness, topic):
                channels = awake.setdefault(record.partition, set())
                if record.key is not None:
                    assert channels, f"{record} came while every channel slept"
                    continue
                sent = decode_signal(record.value)
                (channels.discard if isinstance(sent.signal, Idle) else channels.add)(sent.channel)


def test_it_is_told_once_more_after_a_crash_and_nothing_goes_back() -> None:
    with Harness(counting(), partitions=PARTITIONS, workers=2, local_shuffle=False) as harness:
        fall_asleep(harness, VISITS)
        send_backlog(harness, VISITS)
        harness.advance(0.02)
        harness.crash(0)
        harness.restart(0)
        harness.run()
        times = [task.clock.watermark for task in harness._running()]
        assert min(times) == max(times) == 60_000 * BACKLOG - 1
