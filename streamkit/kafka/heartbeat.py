"""The heartbeats of a member, in a thread with an event loop and a connection of its own.

A step of the user's pipeline may hold the worker's event loop for as long as it likes; the group must not take the worker
for dead meanwhile. That the loop is not dead is watched elsewhere, and `abandon` ends both then.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, TypeVar

from streamkit.errors import BrokerUnreachable, Misconfigured, Retry
from streamkit.kafka.connection import Connection, Purpose
from streamkit.kafka.error_codes import ErrorCode
from streamkit.kafka.group_calls import heartbeat, leave_group
from streamkit.kafka.group_line import GroupLine
from streamkit.kafka.ports import MemberOptions
from streamkit.kafka.wire import Call
from streamkit.model.commit import Member

R = TypeVar("R")

_log = logging.getLogger(__name__)

# A new round begins when every member has noticed it at its heartbeat, so this bounds how long a change takes. One
# heartbeat costs 0.1 ms.
_HEARTBEAT_MAX_S = 0.5
_HEARTBEATS_PER_SESSION = 4
# A heartbeat without answer is tried again this often before the session is over.
_TRIES_PER_SESSION = 3
_PAUSE_S = 0.5
LEAVE_S = 2.0
# Transports end a few steps of the event loop after they were closed; with TLS, after a word to the other side.
CLOSING_S = 0.01

EVICTED = {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}


class Heartbeat:
    """Beats for one member at a time. Used from the worker's event loop; only `abandon` may be called from elsewhere."""

    def __init__(self, connection: Connection, options: MemberOptions, on_news: Callable[[], None]) -> None:
        """`connection` is not connected yet, and nobody else's. `on_news` is called in the thread."""
        self._connection = connection
        self._line = GroupLine(connection, options.group)
        self._options = options
        self._on_news = on_news
        # What is known of our membership.
        self.is_lost = False
        self.is_round_due = False
        # Whether the broker said that it does not know us: the next join is that of a newcomer.
        self.is_unknown = False
        self._heard = 0.0  # when the last heartbeat that was answered had been sent
        self._member: Member | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None

    @property
    def is_silent(self) -> bool:
        """Whether nobody has heard of the member for a whole session, also if this process stood still."""
        return self._member is not None and time.monotonic() - self._heard > self._options.session_timeout_s

    async def start(self, member: Member) -> None:
        """Beat for this member from now on."""
        self.is_lost = self.is_round_due = self.is_unknown = False
        self._heard = time.monotonic()
        self._member = member
        if self._thread is None:
            await self._start_thread()
        await self._there(self._begin(member))

    async def stop(self) -> None:
        """Stop beating; when this returns no heartbeat is on its way."""
        self._member = None
        if self._thread is not None:
            await self._there(self._end())

    async def close(self) -> None:
        """End the thread, and its connection with it."""
        thread, self._thread, self._member = self._thread, None, None
        if thread is not None:
            await self._there(self._close())
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(thread.join)

    def abandon(self) -> None:
        """Beat no more and leave the group, while the worker's event loop is held; may be called from any thread."""
        member, loop = self._member, self._loop
        self.is_lost = True
        if member is not None and loop is not None and self._thread is not None:
            asyncio.run_coroutine_threadsafe(self._leave(member), loop)

    # -- between the two loops --------------------------------------------------------------------------------------

    async def _start_thread(self) -> None:
        self._loop = loop = asyncio.new_event_loop()
        ready: Future[None] = Future()
        loop.call_soon(ready.set_result, None)
        # With the context of the caller: what its log lines carry, those of the thread carry too.
        self._thread = threading.Thread(
            target=copy_context().run, args=(_run, loop), name="streamkit-heartbeat", daemon=True
        )
        self._thread.start()
        await asyncio.wrap_future(ready)

    async def _there(self, work: Coroutine[Any, Any, R]) -> R:
        assert self._loop is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # -- in the thread ----------------------------------------------------------------------------------------------

    async def _begin(self, member: Member) -> None:
        await self._end()
        self._beating = asyncio.create_task(self._beat(member), name="heartbeat")
        self._beating.add_done_callback(self._on_silence)

    async def _end(self) -> None:
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.wait([beating])

    async def _close(self) -> None:
        await self._end()
        if self._connecting is not None:
            await asyncio.wait([self._connecting], timeout=LEAVE_S)
            self._connecting.cancel()
            self._connecting = None
        await self._connection.close()
        await asyncio.sleep(CLOSING_S)

    async def _leave(self, member: Member) -> None:
        await self._end()
        self._on_news()
        with contextlib.suppress(
            TimeoutError, Misconfigured, Retry
        ):  # the session time-out does the same, later
            async with asyncio.timeout(LEAVE_S):
                await self._connect()
                await self._line.leave(leave_group(member.group, [member.member_id]), Purpose.HEARTBEAT)

    async def _beat(self, member: Member) -> None:
        """Tell the broker that we live, until we are thrown out or have not been heard for a session."""
        session_s = self._options.session_timeout_s
        interval_s = min(_HEARTBEAT_MAX_S, session_s / _HEARTBEATS_PER_SESSION)
        call = heartbeat(member.group, member.generation, member.member_id)
        while True:
            sent = time.monotonic()
            code = await self._beat_once(call, session_s / _TRIES_PER_SESSION)
            # Once silent for a session we may have been taken for dead, whatever the broker says now.
            if code in EVICTED or self.is_lost or self.is_silent:
                self.is_unknown = code == ErrorCode.UNKNOWN_MEMBER_ID
                return
            if code in (ErrorCode.OK, ErrorCode.REBALANCE_IN_PROGRESS):
                self._heard = sent
            if code == ErrorCode.REBALANCE_IN_PROGRESS and not self.is_round_due:
                self.is_round_due = True
                self._on_news()
            await asyncio.sleep(min(interval_s, _PAUSE_S))

    async def _beat_once(self, call: Call[int], timeout_s: float) -> int:
        try:
            async with asyncio.timeout(timeout_s):
                await self._connect()
                code = await self._line.ask(call, Purpose.HEARTBEAT)
        except (TimeoutError, Misconfigured, BrokerUnreachable):
            # The next one must not queue behind this one on a connection that may be dead.
            self._connection.drop(Purpose.HEARTBEAT)
            self._line.forget()
            code = None
        return ErrorCode.REQUEST_TIMED_OUT if code is None else code

    async def _connect(self) -> None:
        """Be connected; what ends the wait must not end the attempt, which the client would leave half open."""
        connecting = self._connecting
        if connecting is None or (connecting.done() and (connecting.cancelled() or connecting.exception())):
            connecting = self._connecting = asyncio.create_task(self._connection.connect(), name="connect")
        await asyncio.shield(connecting)

    def _on_silence(self, beating: asyncio.Task[None]) -> None:
        """However the heartbeat ended, unless we stopped it: we do not count as a member any more."""
        if not beating.cancelled():
            self.is_lost = True
            if (error := beating.exception()) is not None:
                _log.error("the heartbeat thread failed", exc_info=error)
            self._on_news()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
