"""Broken promises of the writer, the reader and the broker, each as a patch."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from streamkit.kafka import assignor
from streamkit.kafka.assignor import Claim, MemberShare
from streamkit.kafka.ports import StageTasks
from streamkit.model.commit import Commit
from streamkit.runtime import assign
from streamkit.runtime.retire import Retirement
from streamkit.testing.memory import groups
from streamkit.testing.memory.groups import Group
from streamkit.testing.memory.network import NoReply
from streamkit.testing.memory.partition import MemoryPartition, Read
from streamkit.testing.memory.writer import Maker, MemoryWriter, WriterState


def positions_outside_the_transaction(patch: Any) -> None:
    """Positions count at once, whatever becomes of the transaction."""

    async def broken(self: MemoryWriter, commit: Commit, _maker: Maker) -> None:
        await self._store_positions(commit)

    patch(MemoryWriter, "_add_positions", broken)


def membership_unchecked(patch: Any) -> None:
    """Anybody may commit positions."""
    patch(Group, "check", lambda _self, _member: None)


def failed_produce_ignored(patch: Any) -> None:
    """The end is sent although an acknowledgement is missing."""
    together = MemoryWriter._together

    async def broken(self: MemoryWriter, steps: Any) -> None:
        if len(steps) == 1:
            await together(self, steps)
        else:
            await self._client.network.together(steps)

    patch(MemoryWriter, "_together", broken)


def lost_end_reply_is_success(patch: Any) -> None:
    """Silence after EndTxn is taken for a yes."""
    end = MemoryWriter._end

    async def broken(self: MemoryWriter, maker: Maker) -> None:
        try:
            await end(self, maker)
        except NoReply:
            self._epoch = maker.epoch + 1

    patch(MemoryWriter, "_end", broken)


def dead_writer_reused(patch: Any) -> None:
    """After doubt the same epoch goes on, and nobody fences it."""
    opened = MemoryWriter.open

    async def broken(self: MemoryWriter, writer_id: str | None = None) -> None:
        if self._epoch >= 0 and self.state is WriterState.DEAD:
            self.state = WriterState.READY
            return
        await opened(self, writer_id)

    async def nothing(_self: Retirement, _writer_id: str) -> None:
        return

    patch(MemoryWriter, "open", broken)
    patch(Retirement, "retire", nothing)


def pending_positions_not_waited_for(patch: Any) -> None:
    """OffsetFetch without require_stable; and no second look, which would heal it."""
    patch(Group, "is_pending", lambda _self, _partition: False)
    patch(assign, "DISAGREEMENT_S", 0.0)


def aborted_records_are_shown(patch: Any) -> None:
    """A committed reader hands out aborted records."""

    def broken(self: MemoryPartition, position: int, bytes_max: int, *, committed: bool) -> Read | None:
        limit = self.stable_offset if committed else self.end_offset
        if position >= limit:
            return None
        found = Read(position)
        for batch in self.batches:
            if position < batch.next_offset <= limit:
                found.records.extend(batch.records)
                found.next_offset = batch.next_offset
                found.size_bytes += batch.size_bytes
                if found.size_bytes >= bytes_max:
                    break
        return found

    patch(MemoryPartition, "read", broken)


def open_transactions_are_read_past(patch: Any) -> None:
    """A committed reader does not stop at an open transaction, and never comes back to it."""
    patch(MemoryPartition, "stable_offset", property(lambda self: self.end_offset))


def tasks_for_anybody(patch: Any) -> None:
    """The assignor gives tasks to members that do not know them."""

    def broken(stages: Sequence[StageTasks], members: Mapping[str, Claim]) -> dict[str, MemberShare]:
        claims = {name: msgspec.structs.replace(each, knows=None) for name, each in members.items()}
        return assignor.decide(stages, claims)

    patch(groups, "decide", broken)
