"""retire: whatever a writer that writes no more has left open is ended, as it was decided.

Kafka can call a transaction complete without having written its marker to every partition (DECISIONS.md). Readers then
wait there for ever; and a marker ends everything that its producer has open on a partition, whatever had been decided
about it. So a writer id that may have left something open never begins another transaction: every life of a worker, and
every recovery from doubt, takes a new one, and the old one is retired here, by its own next life or by whoever takes over
a task of it:

    decide   what is going on under the old id is aborted; how its last transaction ended, the coordinator tells
    note     the decision is noted, because the next step makes the coordinator forget it
    fence    the epoch is raised: a holder of the id that is still alive can begin nothing any more
    end      partitions, and positions of the group, on which something is still open get their marker

Several workers may do this at the same time, and each of them may die in the middle: every request is tied to the epoch that
was seen, and whoever finds a note goes on with it.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from streamkit.errors import Retry
from streamkit.kafka.ports import Admin, Log
from streamkit.kafka.transaction_port import PASSING, Identity, LastTransaction, LeftOpen, TransactionState
from streamkit.model.ids import TopicPartition

log = structlog.get_logger()

# Markers are written within milliseconds; a coordinator that has just been elected may take seconds to load.
PATIENCE_S = 60.0
PAUSE_FIRST_S = 0.005
PAUSE_LAST_S = 0.5
# Somebody else who is ending what was left open has this long before we take him for dead.
HELPER_S = 0.5


def life_of(writer_id: str) -> str:
    """The life of a worker that this writer id belongs to: ids of one life are counted."""
    return writer_id.rpartition(".")[0]


class Retirement:
    """Retires writer ids, one after the other, each once: those that somebody names, and on request all of the dead."""

    def __init__(
        self, log_: Log, group: str, outputs: Sequence[TopicPartition], inputs: Sequence[TopicPartition]
    ) -> None:
        """`outputs` is all that a worker of the pipeline writes to, `inputs` all that it commits positions of."""
        self._log = log_
        self._group = group
        self._outputs = outputs
        self._inputs = inputs
        self._lock = asyncio.Lock()
        self._retired: set[str] = set()

    async def retire(self, writer_id: str) -> None:
        """Return when nothing of this writer is open any more, and nothing ever will be.

        Raises:
            Retry: the broker was away, or a transaction did not come to its end.
        """
        if not writer_id.startswith(f"{self._group}."):
            # It stands in a commit record or a file that is not ours; somebody else's writer is none of our business.
            log.warning("the name of a former writer is not of this pipeline: left alone", writer=writer_id)
            return
        async with self._lock:
            if writer_id not in self._retired:
                await _Retiring(self._log, writer_id, self._group, self._outputs, self._inputs).run()
                self._retired.add(writer_id)

    async def sweep(self, alive: Callable[[], frozenset[str]]) -> None:
        """Retire every writer of the pipeline whose life has ended, if we have not done so yet.

        For the one that no commit record names: it died in its first transaction, and the broker forgot to end that. All
        that are known have to be looked at, so this is for when something is held up and nobody is known to hold it.

        Raises:
            Retry: as `retire`.
        """
        names = await self._log.transactions().known(f"{self._group}.")
        notes = {note(name, is_commit=is_commit) for name in names for is_commit in (True, False)}
        for name in sorted(names - notes - self._retired):
            if life_of(name) not in alive():
                await self.retire(name)


class _Retiring:
    """The retirement of one writer id."""

    def __init__(
        self,
        log_: Log,
        writer_id: str,
        group: str,
        outputs: Sequence[TopicPartition],
        inputs: Sequence[TopicPartition],
    ) -> None:
        self._transactions = log_.transactions()
        self._admin: Admin = log_.admin()
        self._id = writer_id
        self._group = group
        self._outputs = outputs
        self._inputs = inputs
        # Who is ending it at this moment, and since when we know; and whether pending positions had their marker.
        self._helper: tuple[Identity, float] | None = None
        self._has_ended_positions = False

    async def run(self) -> None:
        """Look, do what is due, look again."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE_S
        pause_s = PAUSE_FIRST_S
        while True:
            last = await self._transactions.last(self._id)
            if last is None:
                return  # it never wrote, or so long ago that its coordinator has forgotten it
            # Asked for after the state: if somebody is ending it already, he has noted how.
            decision = await self._noted()
            if await self._step(last, decision, loop.time()):
                return
            if loop.time() > give_up_at:
                raise Retry(
                    f'the last transaction of writer "{self._id}" does not come to its end',
                    detail=f"its coordinator says {last.state.value}",
                    hint="look at the brokers' logs; a partition without a leader holds it up",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_LAST_S)

    async def _step(self, last: LastTransaction, decision: bool | None, now_s: float) -> bool:
        """Do what is due; whether nothing is."""
        if last.state in PASSING:
            return False
        if decision is None:
            await self._decide(last)
            return False
        if last.state is TransactionState.ONGOING:
            await self._help(last.producer, decision, now_s)
            return False
        left = await self._transactions.left_open(last.producer, self._outputs, self._group, self._inputs)
        if left.is_guess and self._has_ended_positions:
            left = LeftOpen(last.producer, left.partitions)  # those that are pending now are somebody else's
        if not left.partitions and not left.positions:
            return True
        await self._end(left, decision)
        return False

    async def _decide(self, last: LastTransaction) -> None:
        """Abort what is going on; once something is decided, note it, then fence the id.

        A state that says nothing means that all its transactions were committed: a writer stops at the first that is not.
        """
        if last.state is not TransactionState.ONGOING:
            is_commit = last.state is not TransactionState.COMPLETE_ABORT
            await self._admin.fence(note(self._id, is_commit=is_commit))
        await self._transactions.end(self._id, last.producer, commit=False)

    async def _noted(self) -> bool | None:
        """How it was decided, if somebody has noted that."""
        for is_commit in (True, False):
            if await self._transactions.last(note(self._id, is_commit=is_commit)) is not None:
                return is_commit
        return None

    async def _help(self, producer: Identity, decision: bool, now_s: float) -> None:
        """Finish what somebody else has begun, if he does not do it himself."""
        if self._helper is None or self._helper[0] != producer:
            self._helper = (producer, now_s)
        elif now_s - self._helper[1] >= HELPER_S:
            await self._transactions.end(self._id, producer, commit=decision)

    async def _end(self, left: LeftOpen, decision: bool) -> None:
        if left.partitions:  # positions alone are more often those of a worker that is just committing
            log.warning(
                "the broker forgot to end a transaction: it is ended now",
                writer=self._id,
                outcome="committed" if decision else "aborted",
                partitions=[str(each) for each in sorted(left.partitions)],
            )
        if await self._transactions.end_left(self._id, left, self._group, commit=decision):
            self._has_ended_positions |= left.positions


def note(writer_id: str, *, is_commit: bool) -> str:
    """The transactional id that, by being known to its coordinator, says how a writer's last transaction was decided.

    Nothing is ever written with it. It is as durable as what it speaks of, needs no right that the worker does not have,
    and is forgotten by the brokers about as soon.
    """
    return f"{writer_id}.{'committed' if is_commit else 'aborted'}"
