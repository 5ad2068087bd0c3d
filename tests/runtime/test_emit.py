from typing import Any

import pytest

from streamkit.errors import EncodeError
from streamkit.kafka.ports import Guarantee, WriterOptions
from streamkit.model.ids import TopicPartition
from streamkit.model.keys import KafkaPartitions, ShufflePartitions, kafka_partition
from streamkit.operators.fused import fuse_push
from streamkit.operators.step import Code
from streamkit.runtime.emit import AHEAD_MS_MAX, Outbox
from streamkit.testing.memory import MemoryBroker, MemoryLog


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(MemoryLog(MemoryBroker()).writer(WriterOptions("w", Guarantee.EXACTLY_ONCE)))


def appender(outbox: Outbox, partition_of: Any, partitions: int) -> Any:
    """The statements of an output as a function of key, value and timestamp."""
    names = Code("", ("out_key, data = key, value",), {})
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
    now = 1_600_000_000_000
    sink, shuffle = appender(outbox, KafkaPartitions(1), 1), ShufflePartitions(1)
    outbox.begin_span(now)
    for timestamp in (-5, 7, now + 10 * AHEAD_MS_MAX):
        sink(b"k", b"v", timestamp)
    (batch,) = outbox.take()
    assert [draft[0] for draft in batch.batch.drafts] == [0, 7, now + AHEAD_MS_MAX]
    assert "latest" not in " ".join(outbox.append_code("hop", shuffle, 1).lines)
