"""Our place in the worker group: joining rounds, the leader's duty, and the heartbeats beside the work.

Kafka's classic group protocol, by our own requests, because the client's group handling swallows errors, stops the
heartbeat during callbacks, and does not show the generation that fences our commits. One round: `join` names the tasks
we hold, the leader runs `assignor.py`, `sync` brings the decision. The heartbeat tells when the next round is due.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TypeVar

from aiokafka.errors import KafkaError

from streamkit.errors import Misconfigured, Retry
from streamkit.kafka.assignor import Claim, assign
from streamkit.kafka.connection import Connection, NoAnswer
from streamkit.kafka.error_codes import Code, name_of
from streamkit.kafka.group_calls import (
    Decision,
    Joined,
    heartbeat,
    join_group,
    leave_group,
    pack_decision,
    read_claim,
    read_decision,
    sync_group,
)
from streamkit.kafka.ports import Assignment, Member, MemberOptions
from streamkit.kafka.wire import Call
from streamkit.model.ids import TaskId

R = TypeVar("R")

_log = logging.getLogger(__name__)

# A new round begins when every member has noticed it at its heartbeat, so this bounds how long a change takes. One
# heartbeat costs 0.1 ms.
_HEARTBEAT_MAX_S = 0.5
_HEARTBEATS_PER_SESSION = 4
# A heartbeat without answer is tried again this often before the session is over.
_TRIES_PER_SESSION = 3
_PAUSE_FIRST_S = 0.02
_PAUSE_LAST_S = 0.5
_LEAVE_S = 2.0
_NO_GENERATION = -1

_MOVED = {Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR}
_MEMBER_ID_REQUIRED = 79
_EVICTED = {Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID}
# Another round began, or we are not known any more: join again.
_AGAIN = {*_EVICTED, Code.REBALANCE_IN_PROGRESS}

_REFUSALS = {
    23: "other consumers use this group; give the pipeline a name of its own, or stop them",
    24: "the group's name is empty or not allowed; rename the pipeline",
    26: "raise session_timeout_s; the broker's bounds are group.min.session.timeout.ms and its max",
    Code.GROUP_AUTHORIZATION_FAILED: "give our user the ACL READ on the group",
    81: "the broker's group.max.size is reached; stop workers or raise it",
}


class KafkaMembership:
    """A member of a worker group; keeps the promises of the `Membership` port."""

    def __init__(self, connection: Connection, options: MemberOptions) -> None:
        self._connection = connection
        self._options = options
        self._remembered = options.remembered
        # A join waits at the broker for the whole round; the heartbeat must not queue behind it.
        self._join_lane = connection.new_lane()
        self._heartbeat_lane = connection.new_lane()
        self._coordinator: int | None = None
        self._member_id = ""
        self._generation = _NO_GENERATION
        self._lost = False
        self._heard = 0.0  # when the last heartbeat that was answered had been sent
        self._rejoin = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    @property
    def member_id(self) -> str | None:
        """The name the broker gave us; whoever is sure that we are dead may make it leave."""
        return self._member_id or None

    @property
    def rejoin_needed(self) -> bool:
        """True as soon as the group wants a new round, or threw us out."""
        return self._rejoin.is_set() or self.lost

    @property
    def lost(self) -> bool:
        """True if we are not a member any more: everything in hand is void.

        Also true at once, before any heartbeat could tell, when this process stood still for a whole session.
        """
        if self._beating is not None and self._silent_too_long():
            self._lost = True
        return self._lost

    async def wait_rejoin(self) -> None:
        """Return when `rejoin_needed` becomes true."""
        await self._rejoin.wait()

    async def join(self, owned: Sequence[TaskId]) -> Assignment:
        """Take part in the next round, naming the tasks we hold; waits until the group has decided.

        Raises:
            Misconfigured: the broker or the group refuses us for good.
            Retry: the broker answered something that we have no rule for.
        """
        # No heartbeats meanwhile: the broker does not expect any from a member that waits in a round, and one with
        # the former generation would be refused.
        await self._stop_heartbeat()
        if self._remembered is not None:
            await self._settle(leave_group(self._options.group, [self._remembered]), self._heartbeat_lane)
            self._remembered = None
        claim = Claim(self._options.writer_id, self._generation, tuple(owned))
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
        self._heard = time.monotonic()
        self._lost = False
        self._rejoin.clear()
        member = Member(self._options.group, joined.member_id, joined.generation)
        self._beating = asyncio.create_task(self._beat(member))
        self._beating.add_done_callback(self._on_silence)
        return Assignment(member, decision.tasks, frozenset(decision.writers))

    async def leave(self) -> None:
        """Leave the group at once, so that others need not wait for the session time-out."""
        await self._stop_heartbeat()
        if self._member_id:
            try:
                async with asyncio.timeout(_LEAVE_S):
                    await self._settle(
                        leave_group(self._options.group, [self._member_id]), self._heartbeat_lane
                    )
            except (TimeoutError, Misconfigured, Retry):
                pass  # the session time-out does the same, later
            self._lost = True
        self._member_id = ""
        await self.close()

    async def close(self) -> None:
        """Stop the heartbeat without leaving: the group gives our tasks away after the session time-out."""
        await self._stop_heartbeat()
        self._connection.drop(self._join_lane)
        self._connection.drop(self._heartbeat_lane)

    async def _join_once(self, claim: Claim) -> Joined:
        """Ask until we are in a round."""
        while True:
            call = join_group(self._options, self._member_id, claim)
            # A round may last longer than the client waits for an answer. The same join again is what the protocol
            # asks for then: the broker replaces the one it holds, or repeats the answer that was lost.
            joined = await self._until_answered(call, self._join_lane)
            if joined.error in (Code.OK, _MEMBER_ID_REQUIRED):
                self._be(joined.member_id)
            if joined.error == Code.OK:
                return joined
            if joined.error == _MEMBER_ID_REQUIRED:
                continue
            if joined.error in _AGAIN:
                self._forget_member(joined.error)
                await asyncio.sleep(_PAUSE_FIRST_S)
            else:
                self._judge(joined.error, "JoinGroup")

    def _be(self, member_id: str) -> None:
        """Take the name that the broker gave us, and let its keeper know before anything can happen to us."""
        if member_id != self._member_id and self._options.on_member_id is not None:
            self._options.on_member_id(member_id)
        self._member_id = member_id

    async def _sync_once(self, joined: Joined) -> Decision | None:
        """Our part of this round's decision; None if another round began meanwhile."""
        decisions = self._decide(joined) if joined.leader == joined.member_id else {}
        call = sync_group(self._options.group, joined.generation, joined.member_id, decisions)
        while True:
            synced = await self._until_answered(call, self._join_lane)
            if synced.error == Code.OK:
                return read_decision(synced.assignment)
            if synced.error in _AGAIN:
                self._forget_member(synced.error)
                return None
            self._judge(synced.error, "SyncGroup")

    def _decide(self, joined: Joined) -> dict[str, bytes]:
        """The leader's duty: who runs what, and who is alive."""
        claims = {member: read_claim(content) for member, content in joined.members.items()}
        writers = tuple(sorted({claim.writer_id for claim in claims.values()}))
        tasks = assign(self._options.stages, claims)
        return {member: pack_decision(Decision(its_tasks, writers)) for member, its_tasks in tasks.items()}

    async def _beat(self, member: Member) -> None:
        """Tell the broker that we live, until we are thrown out or have not been heard for a session."""
        session_s = self._options.session_timeout_s
        interval_s = min(_HEARTBEAT_MAX_S, session_s / _HEARTBEATS_PER_SESSION)
        call = heartbeat(member.group, member.generation, member.member_id)
        while True:
            sent = time.monotonic()
            code = await self._beat_once(call, session_s / _TRIES_PER_SESSION)
            # Once silent for a session we may have been taken for dead, whatever the broker says now.
            if code in _EVICTED or self._lost or self._silent_too_long():
                self._forget_member(code)
                return
            if code == Code.REBALANCE_IN_PROGRESS:
                self._rejoin.set()
            if code in (Code.OK, Code.REBALANCE_IN_PROGRESS):
                self._heard = sent
                await asyncio.sleep(interval_s)
            else:
                await asyncio.sleep(min(interval_s, _PAUSE_LAST_S))

    def _on_silence(self, beating: asyncio.Task[None]) -> None:
        """However the heartbeat ended, unless we stopped it: we do not count as a member any more."""
        if not beating.cancelled():
            self._lost = True
            self._rejoin.set()
            if (error := beating.exception()) is not None:
                _log.error("the heartbeat broke", exc_info=error)

    def _silent_too_long(self) -> bool:
        return time.monotonic() - self._heard > self._options.session_timeout_s

    async def _beat_once(self, call: Call[int], timeout_s: float) -> int:
        try:
            async with asyncio.timeout(timeout_s):
                code = await self._ask(call, self._heartbeat_lane)
        except (TimeoutError, Misconfigured):
            # The next one must not queue behind this one on a connection that may be dead.
            self._connection.drop(self._heartbeat_lane)
            self._coordinator = None
            code = None
        return Code.REQUEST_TIMED_OUT if code is None else code

    async def _stop_heartbeat(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            self._beating = None

    def _forget_member(self, code: int) -> None:
        if code == Code.UNKNOWN_MEMBER_ID:
            self._member_id = ""

    def _judge(self, code: int, doing: str) -> None:
        """Raise what no repetition will mend."""
        detail = f"{doing} answered {name_of(code)}"
        where = f'group "{self._options.group}"'
        if code in _REFUSALS:
            raise Misconfigured(
                "the broker refused us as a member", where=where, detail=detail, hint=_REFUSALS[code]
            )
        raise Retry("the broker did not let us into the group", where=where, detail=detail)

    async def _settle(self, call: Call[int], lane: int) -> None:
        code = await self._until_answered(call, lane)
        if code not in (Code.OK, Code.UNKNOWN_MEMBER_ID):
            self._judge(code, "LeaveGroup")

    async def _until_answered(self, call: Call[R], lane: int) -> R:
        """Ask until the coordinator, whoever it is by then, gives an answer that is about the question."""
        pause_s = _PAUSE_FIRST_S
        while True:
            answer = await self._ask(call, lane)
            if answer is not None:
                return answer
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_LAST_S)

    async def _ask(self, call: Call[R], lane: int) -> R | None:
        """Ask once; None if there was no answer or the coordinator has moved."""
        try:
            if self._coordinator is None:
                self._coordinator = await self._connection.group_coordinator(self._options.group)
            answer = await self._connection.send(self._coordinator, call, lane)
        except NoAnswer:
            self._coordinator = None
            return None
        except KafkaError as error:  # the look-up answered with a code
            code = getattr(error, "errno", Code.UNKNOWN_SERVER_ERROR)
            if code in _REFUSALS:
                self._judge(code, "FindCoordinator")
            self._coordinator = None
            return None
        if getattr(answer, "error", answer) in _MOVED:
            self._coordinator = None
            return None
        return answer
