"""Our place in the worker group: joining rounds and the leader's duty; `heartbeat.py` keeps it beside the work.

Kafka's classic group protocol, by our own requests, because the client's group handling swallows errors, stops the
heartbeat during callbacks, and does not show the generation that fences our commits. One round: `join` names the tasks
we hold, the leader runs `assignor.py`, `sync` brings the decision. The heartbeat tells when the next round is due.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from streamkit.errors import Misconfigured, Retry
from streamkit.kafka.assignor import Claim, MemberShare, claim_of, decide
from streamkit.kafka.connection import Connection
from streamkit.kafka.error_codes import ErrorCode, name_of
from streamkit.kafka.group_calls import (
    Joined,
    join_group,
    leave_group,
    pack_decision,
    read_claim,
    read_decision,
    sync_group,
)
from streamkit.kafka.group_line import GroupLine
from streamkit.kafka.heartbeat import EVICTED, LEAVE_S, Heartbeat
from streamkit.kafka.ports import Assignment, MemberOptions
from streamkit.model.commit import Member
from streamkit.model.ids import TaskId

_PAUSE_FIRST_S, _PAUSE_LAST_S = 0.02, 0.5
_NO_GENERATION = -1

_MEMBER_ID_REQUIRED = 79
# Another round began, or we are not known any more: join again.
_AGAIN = {*EVICTED, ErrorCode.REBALANCE_IN_PROGRESS}


class KafkaMembership:
    """A member of a worker group; keeps the promises of the `Membership` port."""

    def __init__(self, connection: Connection, options: MemberOptions) -> None:
        self._connection = connection
        self._options = options
        self._remembered = options.remembered
        self._line = GroupLine(connection, options.group)
        # A join waits at the broker for the whole round; nothing else must queue behind it.
        self._join_lane = connection.new_lane()
        self._leave_lane = connection.new_lane()
        self._member_id = ""
        self._generation = _NO_GENERATION
        self._lost = False
        self._rejoin = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heartbeat = Heartbeat(connection.another(), options, self._on_news)

    @property
    def member_id(self) -> str | None:
        """The name the broker gave us; whoever is sure that we are dead may make it leave."""
        return self._member_id or None

    @property
    def rejoin_needed(self) -> bool:
        """True as soon as the group wants a new round, or threw us out."""
        return self._heartbeat.is_round_due or self.lost

    @property
    def lost(self) -> bool:
        """True if we are not a member any more: everything in hand is void.

        Also true at once, before any heartbeat could tell, when this process stood still for a whole session.
        """
        if self._heartbeat.is_lost or self._heartbeat.is_silent:
            self._lost = True
        return self._lost

    async def wait_rejoin(self) -> None:
        """Return when `rejoin_needed` becomes true."""
        await self._rejoin.wait()

    async def join(self, owned: Sequence[TaskId], declined: Sequence[TaskId] = ()) -> Assignment:
        """Take part in the next round, naming the tasks we hold and those we cannot run; waits for the decision.

        Raises:
            Misconfigured: the broker or the group refuses us for good.
            Retry: the broker answered something that we have no rule for.
        """
        # No heartbeats meanwhile: the broker does not expect any from a member that waits in a round, and one with
        # the former generation would be refused.
        self._loop = asyncio.get_running_loop()
        await self._heartbeat.stop()
        if self._heartbeat.is_unknown:
            self._member_id = ""
        if self._remembered is not None:
            await self._line.leave(leave_group(self._options.group, [self._remembered]), self._leave_lane)
            self._remembered = None
        claim = claim_of(self._options, self._generation, owned, declined)
        try:
            while True:
                joined = await self._join_once(claim)
                decision = await self._sync_once(joined)
                if decision is not None:
                    break
        except asyncio.CancelledError:
            # The broker still holds our join on this connection and would make the next one wait behind it.
            self._connection.drop(self._join_lane)
            raise
        self._generation = joined.generation
        self._lost = False
        self._rejoin.clear()
        member = Member(self._options.group, joined.member_id, joined.generation)
        await self._heartbeat.start(member)
        return decision.for_member(member, self._options)

    async def leave(self) -> None:
        """Leave the group at once, so that others need not wait for the session time-out."""
        await self._heartbeat.stop()
        if self._member_id:
            call = leave_group(self._options.group, [self._member_id])
            with contextlib.suppress(
                TimeoutError, Misconfigured, Retry
            ):  # the session time-out does it, later
                async with asyncio.timeout(LEAVE_S):
                    await self._line.leave(call, self._leave_lane)
            self._lost = True
        self._member_id = ""
        await self.close()

    async def close(self) -> None:
        """Stop the heartbeat without leaving: the group gives our tasks away after the session time-out."""
        await self._heartbeat.close()
        self._connection.drop(self._join_lane)
        self._connection.drop(self._leave_lane)

    def abandon(self) -> None:
        """Leave the group while the event loop is held; may be called from any thread."""
        self._heartbeat.abandon()

    def _on_news(self) -> None:
        """Called in the thread of the heartbeat: let the worker's loop look."""
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed in this very moment
                self._loop.call_soon_threadsafe(self._rejoin.set)

    async def _join_once(self, claim: Claim) -> Joined:
        """Ask until we are in a round."""
        pause_s = _PAUSE_FIRST_S
        while True:
            call = join_group(self._options, self._member_id, claim)
            # A round may last longer than the client waits for an answer. The same join again is what the protocol
            # asks for then: the broker replaces the one it holds, or repeats the answer that was lost.
            joined = await self._line.until_answered(call, self._join_lane)
            if joined.error in (ErrorCode.OK, _MEMBER_ID_REQUIRED):
                self._be(joined.member_id)
            if joined.error == ErrorCode.OK:
                self._line.waiting.over()
                return joined
            if joined.error == _MEMBER_ID_REQUIRED:
                continue
            if joined.error in _AGAIN:
                self._forget_member(joined.error)
                self._line.waiting.failed(f"JoinGroup answered {name_of(joined.error)}")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_LAST_S)
            else:
                self._line.judge(joined.error, "JoinGroup")

    def _be(self, member_id: str) -> None:
        """Take the name that the broker gave us, and let its keeper know before anything can happen to us."""
        if member_id != self._member_id and self._options.on_member_id is not None:
            self._options.on_member_id(member_id)
        self._member_id = member_id

    async def _sync_once(self, joined: Joined) -> MemberShare | None:
        """Our part of this round's decision; None if another round began meanwhile."""
        decisions = self._decide(joined) if joined.leader == joined.member_id else {}
        call = sync_group(self._options.group, joined.generation, joined.member_id, decisions)
        while True:
            synced = await self._line.until_answered(call, self._join_lane)
            if synced.error == ErrorCode.OK:
                return read_decision(synced.assignment)
            if synced.error in _AGAIN:
                self._forget_member(synced.error)
                return None
            self._line.judge(synced.error, "SyncGroup")

    def _decide(self, joined: Joined) -> dict[str, bytes]:
        """The leader's duty: who runs what, and who is alive."""
        claims = {member: read_claim(content) for member, content in joined.members.items()}
        decisions = decide(self._options.stages, claims)
        return {member: pack_decision(decision) for member, decision in decisions.items()}

    def _forget_member(self, code: int) -> None:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
