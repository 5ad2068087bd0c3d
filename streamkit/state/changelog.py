"""Commit records: what a task says in its changelog, under a reserved key, with every commit.

The record and the state changes of its span are committed together, so whoever restores the changelog up to some
commit knows exactly which input is reflected in it, and whose commit it was.
"""

from typing import Annotated

import msgspec

from streamkit.errors import Misconfigured, StateCorrupt
from streamkit.model.ids import TopicPartition

FORMAT_VERSION = 1

Offset = Annotated[int, msgspec.Meta(ge=0)]


class CommitRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What was committed, by whom, and as which of the task's commits.

    Fields are only ever added at the end, with a default: an older release skips them. A change that an older
    release must not overlook raises `FORMAT_VERSION`, and it refuses.
    """

    version: int = FORMAT_VERSION
    # Topic to partition to the offset of the next record to read.
    positions: dict[str, dict[int, Offset]]
    # The transactional id of the writer, by which its successor can fence it.
    writer_id: str
    # The generation of the pipeline's internal topics.
    generation: int
    # Counts the commits of the task.
    span: int
    # Chosen at random when the task's changelog was first written: another one means another changelog.
    birth: str
    # Of the plan that wrote the record.
    fingerprint: str
    # Room for what later releases want to commit with a span, by name.
    extra: dict[str, bytes] = {}
    # Wall clock of the commit.
    at_ms: int = 0

    def places(self) -> dict[TopicPartition, int]:
        """The positions, by partition."""
        return {
            TopicPartition(topic, partition): offset
            for topic, by_partition in self.positions.items()
            for partition, offset in by_partition.items()
        }

    def encode(self) -> bytes:
        """The bytes of the record."""
        return _encoder.encode(self)

    @classmethod
    def decode(cls, data: bytes | None) -> "CommitRecord":
        """The record that these bytes hold.

        Raises:
            StateCorrupt: they hold none.
            Misconfigured: a newer release wrote them in a way that this one must not read.
        """
        if data is None:
            raise _corrupt("it was deleted")
        try:
            version = _head_decoder.decode(data).version
            if version > FORMAT_VERSION:
                raise Misconfigured(
                    f"a commit record has format {version}, and this release reads up to {FORMAT_VERSION}",
                    detail="a newer release of streamkit has committed to this pipeline",
                    hint="run that release or a newer one",
                )
            return _decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _corrupt(str(error)) from error


class _Head(msgspec.Struct, array_like=True):
    """The part of a commit record that every release can read."""

    version: Annotated[int, msgspec.Meta(ge=1)]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(CommitRecord)
_head_decoder = msgspec.msgpack.Decoder(_Head)


def _corrupt(detail: str) -> StateCorrupt:
    return StateCorrupt(
        "a commit record cannot be read",
        detail=detail,
        hint="the local state is discarded and restored; if it comes back, something else writes to the changelog topic",
    )
