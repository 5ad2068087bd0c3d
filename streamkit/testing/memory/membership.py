"""A place in a worker group of the in-memory cluster, kept by heartbeats that run beside the caller."""

import asyncio
from collections.abc import Callable, Sequence

from streamkit.kafka.assignor import Claim, claim_of
from streamkit.kafka.ports import Assignment, MemberOptions
from streamkit.model.commit import Member
from streamkit.model.ids import TaskId
from streamkit.testing.memory.bell import Bell, wait_any
from streamkit.testing.memory.client import Client
from streamkit.testing.memory.groups import Group
from streamkit.testing.memory.network import NoReply
from streamkit.testing.memory.refusal import ErrorCode, Refused
from streamkit.testing.virtual_time import in_process

# Ten chances to be heard before the session is over.
HEARTBEATS_PER_SESSION = 10


class MemoryMembership:
    """The `Membership` port in memory."""

    def __init__(self, client: Client, options: MemberOptions) -> None:
        self._client = client
        self._options = options
        self._member: Member | None = None
        self._member_id: str | None = None
        self._remembered = options.remembered
        self._rejoin_needed = False
        self._lost = False
        self._changed = Bell()
        self._heartbeats: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None

    @property
    def rejoin_needed(self) -> bool:
        """Whether the group wants a new round, or threw us out."""
        return self._rejoin_needed

    @property
    def lost(self) -> bool:
        """Whether we are not a member any more."""
        return self._lost

    async def join(self, owned: Sequence[TaskId], declined: Sequence[TaskId] = ()) -> Assignment:
        """Take part in the next round; waits until the group has decided.

        If the group threw us out meanwhile we come back as somebody else, and claim nothing: what we held is void.
        """
        self.stop()
        await self._client.network.awake()
        if self._lost:
            self._forget()
            owned = ()
        await self._put_out_remembered()
        claim = self._claim(owned, declined)
        while True:
            try:
                assignment = await self._round(claim)
            except NoReply:
                continue
            except Refused as refused:
                if refused.code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._forget()
                    claim = self._claim((), declined)
                continue
            break
        self._member = assignment.member
        self._rejoin_needed = self._lost = False
        # Beside the event loop of the worker: a step that blocks it does not stop them.
        self._heartbeats = asyncio.create_task(self._beat(assignment.member), context=in_process(None))
        return assignment

    async def wait_rejoin(self) -> None:
        """Return when `rejoin_needed` becomes true."""
        while not self._rejoin_needed:
            await wait_any(self._changed)
        await self._client.network.awake()

    async def leave(self) -> None:
        """Leave the group at once; if nobody hears it, the session time-out does the same."""
        self.stop()
        member_id, self._member_id = self._member_id, None
        if member_id is not None:
            await self._leave(member_id)
        self._notice(lost=True)

    def abandon(self) -> None:
        """Leave the group while the event loop is held."""
        self.stop()
        self._notice(lost=True)
        if self._member_id is not None:
            leaving = self._leave(self._member_id)
            self._leaving = asyncio.get_running_loop().create_task(leaving, context=in_process(None))

    def stop(self) -> None:
        """Send no more heartbeats, as a process that ends."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            self._heartbeats = None

    def _claim(self, owned: Sequence[TaskId], declined: Sequence[TaskId]) -> Claim:
        generation = -1 if self._member is None else self._member.generation
        return claim_of(self._options, generation, owned, declined)

    def _forget(self) -> None:
        self._member = None
        self._member_id = None

    async def _round(self, claim: Claim) -> Assignment:
        """One round, from joining to its decision; refused if the next round begins before we hear of it."""
        broker = self._client.broker
        group = self._group
        known, options = self._member_id, self._options
        self._member_id = await self._client.ask(
            "member.join", lambda: group.join(known, options, claim, broker.now)
        )
        member_id = self._member_id
        if member_id != known and options.on_member_id is not None:
            options.on_member_id(member_id)
        while True:
            synced = await self._client.ask("member.sync", lambda: group.sync(member_id, broker.now))
            if synced is not None:
                member, decision = synced
                return decision.for_member(member, options)
            if group.is_waiting(member_id):
                await wait_any(group.changed)

    async def _put_out_remembered(self) -> None:
        remembered, self._remembered = self._remembered, None
        if remembered is not None:
            await self._leave(remembered)

    async def _leave(self, member_id: str) -> None:
        broker, group = self._client.broker, self._group
        try:
            await self._client.ask("member.leave", lambda: group.leave(member_id, broker.now))
        except NoReply:
            return

    @property
    def _group(self) -> Group:
        return self._client.broker.groups.group(self._options.group)

    async def _beat(self, member: Member) -> None:
        """Heartbeats until somebody stops us or the group does not know us any more."""
        session_s = self._options.session_timeout_s
        interval_s = session_s / HEARTBEATS_PER_SESSION
        loop = asyncio.get_running_loop()
        heard_at = loop.time()
        beat = self._heartbeat(member)
        while not self._lost:
            await asyncio.sleep(interval_s)
            try:
                await self._client.ask("member.heartbeat", beat, interval_s)
            except NoReply:
                # Nobody heard us for a whole session: the others count us out, so we must too.
                if loop.time() - heard_at > session_s:
                    self._notice(lost=True)
                continue
            except Refused as refused:
                self._notice(lost=refused.code is not ErrorCode.REBALANCE_IN_PROGRESS)
            heard_at = loop.time()

    def _heartbeat(self, member: Member) -> Callable[[], None]:
        broker, group = self._client.broker, self._group
        return lambda: group.heartbeat(member, broker.now)

    def _notice(self, *, lost: bool) -> None:
        self._rejoin_needed = True
        self._lost = self._lost or lost
        self._changed.fire()
