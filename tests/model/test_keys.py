import pytest
from aiokafka.partitioner import murmur2 as clients_murmur2
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import Bug
from streamkit.model import keys
from streamkit.model.ids import KEY_GROUPS
from streamkit.model.keys import (
    GroupPrefixes,
    KafkaPartitions,
    ShufflePartitions,
    kafka_partition,
    key_group,
    murmur2,
    shuffle_partition,
)


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        # From Kafka's own UtilsTest: what the Java client answers.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key, signed):
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=80))
def test_murmur2_agrees_with_the_client(key):
    assert murmur2(key) == clients_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=20), st.integers(1, 64))
def test_a_remembered_answer_is_the_same_answer(key, partitions):
    sinks, shuffles, prefixes = KafkaPartitions(partitions), ShufflePartitions(partitions), GroupPrefixes()
    for _ in range(2):
        assert sinks[key] == kafka_partition(key, partitions)
        assert shuffles[key] == shuffle_partition(key, partitions)
        assert prefixes[key] == key_group(key).to_bytes(2, "big")


@given(st.integers(1, KEY_GROUPS))
def test_every_partition_owns_a_range_of_groups(partitions):
    owners = [group * partitions // KEY_GROUPS for group in range(KEY_GROUPS)]
    assert owners == sorted(owners)
    assert set(owners) == set(range(partitions))


def test_memory_for_keys_is_bounded(monkeypatch):
    monkeypatch.setattr(keys, "REMEMBERED_KEYS_MAX", 10)
    partitions = KafkaPartitions(3)
    for number in range(100):
        assert partitions[b"%d" % number] == kafka_partition(b"%d" % number, 3)
        assert len(partitions) <= 10


def test_a_shuffle_has_no_place_for_a_record_without_a_key():
    with pytest.raises(Bug):
        ShufflePartitions(2)[None]
