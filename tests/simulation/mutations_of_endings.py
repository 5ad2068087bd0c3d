"""Broken promises about writers that write no more, each as a patch."""

from collections.abc import Iterable
from typing import Any

import msgspec

from streamkit.kafka.transaction_port import LastTransaction, LeftOpen, Producer, TransactionState
from streamkit.model.ids import TopicPartition
from streamkit.runtime.retire import Note, Retirement, _Retiring
from streamkit.runtime.writer_names import WriterNames
from streamkit.testing.memory.endings import MemoryEndings
from streamkit.testing.memory.writer import MemoryWriter


def same_id_goes_on(patch: Any) -> None:
    """After a doubt, and in the next life, the worker takes a new epoch of its old id, and nobody looks after that."""

    async def nothing(_self: Retirement, _writer_id: str) -> None:
        return

    def same(self: WriterNames) -> str:
        self.former = f"{self._life.rpartition('.')[0]}.1.1"
        self._memory.remember_writer(self.former)
        return self.former

    patch(Retirement, "retire", nothing)
    patch(WriterNames, "next", same)


def id_outlives_its_broker(patch: Any) -> None:
    """A writer goes on under its id although the broker was lost."""
    opened = MemoryWriter.open

    async def at_first(self: MemoryWriter, writer_id: str | None = None) -> None:
        await opened(self, writer_id)

    patch(MemoryWriter, "open", at_first)
    patch(MemoryWriter, "needs_renewal", False)

    async def whatever(self: MemoryWriter, what: str, apply: Any) -> int:
        answer = await self._client.ask(what, apply, self._options.request_timeout_s)
        return -1 if answer is None else answer

    patch(MemoryWriter, "_ask", whatever)


def healed_as_commit(patch: Any) -> None:
    """What was forgotten is always committed."""
    patch(_Retiring, "_is_aborted", lambda _self, _state: False)


def healed_as_abort(patch: Any) -> None:
    """What was forgotten is always aborted."""
    patch(_Retiring, "_is_aborted", lambda _self, _state: True)


def decision_asked_for_after_the_fence(patch: Any) -> None:
    """The id is fenced first, which makes the coordinator forget what was decided."""
    run = _Retiring.run

    async def broken(self: _Retiring) -> None:
        last = await self._transactions.last(self._id)
        if last is not None:
            await self._transactions.end(self._id, last.producer, commit=False)
        await run(self)

    patch(_Retiring, "run", broken)


def note_outlives_what_it_was_about(patch: Any) -> None:
    """That the last transaction was committed is noted at once, and then held true of whatever the holder begins."""
    step = _Retiring._step

    async def broken(self: _Retiring, last: LastTransaction, now_s: float) -> bool:
        if last.state in (TransactionState.COMPLETE_COMMIT, TransactionState.EMPTY):
            for each in Note:
                await self._admin.fence(f"{self._id}.{each.value}")
            await self._fence(last.producer)
        return await step(self, last, now_s)

    patch(_Retiring, "_step", broken)


def positions_not_looked_at(patch: Any) -> None:
    """Positions that were forgotten stay pending."""
    left_open = MemoryEndings.left_open

    async def broken(
        self: MemoryEndings,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        group: str,
        inputs: Iterable[TopicPartition],
    ) -> LeftOpen:
        found = await left_open(self, producer, partitions, group, inputs)
        return msgspec.structs.replace(found, positions=False)

    patch(MemoryEndings, "left_open", broken)
