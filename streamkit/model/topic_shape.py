"""Topics as a cluster has them: what is asked of a new one, and what is told of an existing one."""

from collections.abc import Mapping

import msgspec


class TopicSpec(msgspec.Struct, frozen=True):
    """A topic as it should be created."""

    name: str
    partitions: int
    replication: int | None = None
    config: Mapping[str, str] = {}


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic as the broker has it.

    `config` is what was set on the topic itself, `effective` everything that counts for it, the broker's own settings and
    defaults included.
    """

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]
    effective: Mapping[str, str] = {}


def so_many(partitions: int) -> str:
    """A number of partitions, in words."""
    return f"{partitions} partition{'' if partitions == 1 else 's'}"
