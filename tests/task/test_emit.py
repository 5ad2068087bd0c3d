from typing import Any

import pytest
from structlog.testing import capture_logs

from streamkit.errors import EncodeError
from streamkit.kafka.ports import WriterOptions
from streamkit.model.commit import Guarantee
from streamkit.model.ids import TopicPartition
from streamkit.model.keys import KafkaPartitions, ShufflePartitions, kafka_partition
from streamkit.operators.fused import fuse_push
from streamkit.operators.step import Statements
from streamkit.task.emit import CLOCKS_MS, Outbox
from streamkit.task.limits import TopicLimits
from streamkit.testing.memory import MemoryBroker, MemoryLog

NOW = 1_600_000_000_000
HOUR = 3_600_000


def outbox_with(**limits: Any) -> Outbox:
    writer = MemoryLog(MemoryBroker()).writer(WriterOptions("w", Guarantee.EXACTLY_ONCE))
    return Outbox(writer, {"out": TopicLimits(**limits)} if limits else None)


@pytest.fixture
def outbox() -> Outbox:
    return outbox_with()


def sink(outbox: Outbox, now_ms: int = NOW) -> Any:
    append = appender(outbox, KafkaPartitions(1), 1)
    outbox.begin_span(now_ms)
    return append


def timestamps(outbox: Outbox) -> list[int]:
    (batch,) = outbox.take()
    return [draft[0] for draft in batch.batch.drafts]


def appender(outbox: Outbox, partition_of: Any, partitions: int) -> Any:
    """The statements of an output as a function of key, value and timestamp."""
    names = Statements("", ("out_key, data = key, value",), {})
    return fuse_push([names, outbox.append_code("out", partition_of, partitions)], None)


def test_records_go_to_the_partition_of_their_key(outbox):
    append = appender(outbox, KafkaPartitions(3), 3)
    keys = [b"a", b"b", b"c", b"a"]
    for key in keys:
        append(key, b"v", 1)
    counts = {batch.partition.partition: batch.count for batch in outbox.take()}
    expected: dict[int, int] = {}
    for key in keys:
        expected[kafka_partition(key, 3)] = expected.get(kafka_partition(key, 3), 0) + 1
    assert counts == expected


def test_a_full_batch_is_followed_by_another_in_order(outbox):
    append = appender(outbox, ShufflePartitions(1), 1)
    for _ in range(10):
        append(b"k", bytes(300_000), 1)
    batches = outbox.take()
    assert [batch.partition for batch in batches] == [TopicPartition("out", 0)] * len(batches)
    assert len(batches) > 1
    assert sum(batch.count for batch in batches) == 10
    assert outbox.take() == []


def test_what_was_dropped_does_not_come_back(outbox):
    append = appender(outbox, KafkaPartitions(2), 2)
    append(b"k", b"v", 1)
    outbox.drop()
    append(b"l", b"v", 1)
    assert [batch.count for batch in outbox.take()] == [1]


def test_records_without_a_key_share_a_partition_within_a_span_and_move_on_after_it(outbox):
    append = appender(outbox, KafkaPartitions(3), 3)
    seen = []
    for _ in range(4):
        append(None, b"v", 1)
        append(None, b"w", 1)
        (batch,) = outbox.take()
        seen.append(batch.partition.partition)
    assert seen == [0, 1, 2, 0]


def test_a_record_that_no_batch_can_hold_is_refused_with_its_size(outbox):
    append = appender(outbox, KafkaPartitions(2), 2)
    append(b"k", b"small", 1)
    with pytest.raises(EncodeError, match="larger than topic"):
        append(b"k", bytes(5_000_000), 1)
    assert [batch.count for batch in outbox.take()] == [1]


def test_a_sink_gets_no_timestamp_that_a_broker_refuses_and_a_shuffle_gets_any(outbox):
    append = sink(outbox)
    for timestamp in (-5, 7, NOW + 10 * HOUR):
        append(b"k", b"v", timestamp)
    assert timestamps(outbox) == [0, 7, NOW + HOUR - CLOCKS_MS]
    assert "latest" not in " ".join(outbox.append_code("hop", ShufflePartitions(1), 1).lines)


def test_a_topic_with_bounds_of_its_own_gets_what_lies_within_them():
    outbox = outbox_with(before_ms_max=10_000, after_ms_max=2_000)
    append = sink(outbox)
    for timestamp in (NOW - 4_000, NOW + 60_000):
        append(b"k", b"v", timestamp)
    with pytest.raises(EncodeError, match='older than topic "out" accepts'):
        append(b"k", b"v", NOW - 20_000)
    assert timestamps(outbox) == [NOW - 4_000, NOW + 1_000]


def test_a_topic_on_which_the_broker_stamps_its_own_time_gets_any_timestamp():
    outbox = outbox_with(after_ms_max=None)
    append = sink(outbox)
    append(b"k", b"v", NOW + 1000 * HOUR)
    assert timestamps(outbox) == [NOW + 1000 * HOUR]


def test_a_record_without_a_key_is_refused_for_a_compacted_topic_alone():
    outbox = outbox_with(needs_key=True)
    append = sink(outbox)
    append(b"k", b"v", NOW)
    with pytest.raises(EncodeError, match='without a key for topic "out", which is compacted'):
        append(None, b"v", NOW)
    assert timestamps(outbox) == [NOW]


def test_a_record_may_be_as_large_as_its_topic_allows():
    outbox = outbox_with(record_bytes_max=3_000_000)
    append = sink(outbox)
    append(b"k", b"small", NOW)
    append(b"k", bytes(2_000_000), NOW)
    append(b"k", b"small", NOW)
    with pytest.raises(EncodeError, match=r"larger than topic .* accepts \(3000000\)"):
        append(b"k", bytes(4_000_000), NOW)
    assert [batch.count for batch in outbox.take()] == [1, 1, 1]


def test_open_batches_count_as_bytes_that_wait(outbox):
    append = appender(outbox, KafkaPartitions(200), 200)
    for number in range(20_000):
        append(b"%d" % number, bytes(1000), NOW)
    assert not outbox.lane("out", 200).full
    assert 20_000_000 < outbox.bytes_waiting < 21_000_000
    outbox.take()
    assert outbox.bytes_waiting == 0


def test_records_that_the_broker_will_delete_at_once_are_said_once_by_topic():
    outbox = outbox_with(retention_ms=7 * 24 * HOUR)
    append = sink(outbox)
    with capture_logs() as logs:
        for days in (6, 8, 9):
            append(b"k", b"v", NOW - days * 24 * HOUR)
            outbox.take()
    (warning,) = logs
    assert (warning["topic"], warning["retention_ms"]) == ("out", 7 * 24 * HOUR)
