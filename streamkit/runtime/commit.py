"""commit: the end of a span. State, output, dead letters and positions of all tasks, in one transaction, or none.

Before this step the chain filled the overlays and the outbox, and `task/span_end.py` made of them what is to be written;
after it nothing of the span can be lost or happen twice. While a commit is in flight the next span is already being
processed; at most one is in flight.
"""

import asyncio
from collections.abc import Iterable, Mapping

from streamkit.kafka.ports import Writer
from streamkit.model.commit import Commit, Member
from streamkit.model.ids import TopicPartition
from streamkit.task.engine import Engine
from streamkit.task.span_end import SpanCommit
from streamkit.task.task import Task


class Committer:
    """Ends spans, one after the other."""

    def __init__(self, writer: Writer, engine: Engine) -> None:
        self._writer = writer
        self._engine = engine
        self._in_flight: asyncio.Task[None] | None = None
        self.ended_at = float("-inf")
        # Where the last commit to each partition has ended.
        self.ends: dict[TopicPartition, int] = {}
        # Up to where the span had read that was sent last.
        self.sent: Mapping[TopicPartition, int] = {}
        # Of how many batches it was, and how long it took if it has failed.
        self.batches_sent = 0
        self.failed_after_s = 0.0
        self.commits = 0
        # Those of them that brought a task forward: a task that is merely taken over commits too.
        self.advances = 0

    @property
    def busy(self) -> bool:
        """True while a commit is in flight."""
        return self._in_flight is not None and not self._in_flight.done()

    def begin(self, tasks: Iterable[Task], member: Member) -> None:
        """Freeze the finished span and send it off; the commit before it must have ended.

        Raises:
            SpanEndFailed: a task's span cannot be frozen; drop the span.
        """
        span = self._engine.freeze(tasks, member, self._writer.writer_id)
        if span is not None:
            self.sent = span.commit.positions
            self.batches_sent = len(span.commit.all_batches)
            self._in_flight = asyncio.create_task(self._write(span), name="commit")

    async def _write(self, span: SpanCommit) -> None:
        ends = await self._send(span.commit)
        self.advances += self._engine.landed(span, ends)
        self.ends |= ends
        self.commits += 1
        self.ended_at = asyncio.get_running_loop().time()

    async def _send(self, commit: Commit) -> dict[TopicPartition, int]:
        now_s = asyncio.get_running_loop().time
        began_s, self.failed_after_s = now_s(), 0.0
        try:
            return await self._writer.commit(commit)
        except BaseException:
            self.failed_after_s = now_s() - began_s
            raise

    async def settle(self) -> None:
        """Wait until no commit is in flight; raises if the last one failed."""
        if self._in_flight is not None:
            try:
                await self._in_flight
            finally:
                self._in_flight = None

    async def cancel(self) -> None:
        """End a commit in flight as a crash would; its outcome is for the next life to find out."""
        if self._in_flight is not None:
            self._in_flight.cancel()
        await self.abandon()

    async def abandon(self) -> None:
        """Wait until no commit is in flight, whatever became of it."""
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None:
            await asyncio.wait([in_flight])
            if not in_flight.cancelled():
                in_flight.exception()
