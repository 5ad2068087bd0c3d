"""From key bytes to key groups and partitions, the same in every process and every release.

Kafka's murmur2 in pure Python costs one to three microseconds, so the maps below remember their answers: a dict
with `__missing__` answers a known key at the speed of a dict lookup. Never Python's `hash()`, which differs
between processes.
"""

import struct
from functools import lru_cache
from typing import TypeVar

from streamkit.errors import Bug, EncodeError
from streamkit.model.ids import KEY_GROUPS

# A map forgets everything when it holds this many keys: about 100 MB, then it starts again from the hot keys. Those of a
# worker are emptied earlier, if its memory is short (`state/budget.py`).
REMEMBERED_KEYS_MAX = 1_000_000

# What a key takes in such a map, with the key itself: measured with keys of a dozen bytes.
REMEMBERED_KEY_BYTES = 100

K = TypeVar("K")
V = TypeVar("V")

_PREFIXES = tuple(group.to_bytes(2, "big") for group in range(KEY_GROUPS))

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


# A new key asks twice within a moment, for its key group and for its output partition: the second answer is free.
@lru_cache(maxsize=1024)
def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 of `data`, unsigned."""
    length = len(data)
    h = _SEED ^ length
    blocks = length >> 2
    for block in struct.unpack_from(f"<{blocks}I", data):
        k = (block * _M) & _MASK
        h = ((h * _M) & _MASK) ^ (((k ^ (k >> 24)) * _M) & _MASK)
    rest = data[blocks << 2 :]
    if rest:
        h = ((h ^ int.from_bytes(rest, "little")) * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def kafka_partition(key: bytes, partitions: int) -> int:
    """Where Kafka's default partitioner puts this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def key_group(key: bytes) -> int:
    """The key group that owns this key, for ever."""
    return (murmur2(key) & 0x7FFFFFFF) % KEY_GROUPS


def shuffle_partition(key: bytes, partitions: int) -> int:
    """Which partition of a shuffle with this many partitions owns the key's group."""
    return key_group(key) * partitions // KEY_GROUPS


class KeyMap(dict[K, V]):
    """Answers for keys, remembered; what was forgotten is computed again."""

    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return len(self) * REMEMBERED_KEY_BYTES

    def evict(self) -> None:
        """Forget everything."""
        self.clear()


class KafkaPartitions(KeyMap[bytes | None, int]):
    """key -> partition of a sink topic, by Kafka's default partitioner.

    Records without a key stay on one partition until `rotate`, so that their batches fill up; or they are refused.
    """

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.partitions = partitions
        self._keyless = 0
        self._compacted: str | None = None

    def __missing__(self, key: bytes | None) -> int:
        if key is None:
            if self._compacted is not None:
                raise EncodeError(
                    f'a record without a key for topic "{self._compacted}", which is compacted',
                    hint="give it a key, with key_by() or write(key=...), or set the topic's cleanup.policy to delete",
                )
            return self._keyless
        return _remember(self, key, kafka_partition(key, self.partitions))

    def needs_key(self, topic: str) -> None:
        """Refuse records without a key from now on: this topic is compacted."""
        self._compacted = topic

    def grow(self, partitions: int) -> None:
        """The topic has more partitions now: as with any producer, keys may go to others."""
        self.partitions = partitions
        self.clear()

    def rotate(self) -> None:
        """Send records without a key to the next partition from now on."""
        self._keyless = (self._keyless + 1) % self.partitions


class ShufflePartitions(KeyMap[bytes | None, int]):
    """key -> partition of a shuffle topic, by key group. Every record of a shuffle has a key."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.partitions = partitions

    def __missing__(self, key: bytes | None) -> int:
        if key is None:
            raise Bug("a record without a key reached a shuffle")
        return _remember(self, key, shuffle_partition(key, self.partitions))


class GroupPrefixes(KeyMap[bytes, bytes]):
    """key -> the two bytes of its key group, with which every state key begins."""

    def __missing__(self, key: bytes) -> bytes:
        return _remember(self, key, _PREFIXES[key_group(key)])


def _remember(known: dict[K, V], key: K, answer: V) -> V:
    if len(known) >= REMEMBERED_KEYS_MAX:
        known.clear()
    known[key] = answer
    return answer
