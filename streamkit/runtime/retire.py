"""retire: whatever a writer that writes no more has left open is ended, as it was decided.

Kafka can call a transaction complete without having written its marker to every partition (DECISIONS.md). Readers then
wait there for ever; and a marker ends everything that its producer has open on a partition, whatever had been decided
about it. So a writer id that may have left something open never begins another transaction: every life of a worker, and
every recovery from doubt, takes a new one, and the old one is retired here, by its own next life or by whoever takes over
a task of it:

    abort    what is going on under the old id
    look     where something is still open; how that was decided, the coordinator tells
    note     that it was a commit, because the next step makes the coordinator forget it
    fence    the epoch is raised: a holder of the id that is still alive can begin nothing any more
    end      partitions, and positions of the group, on which something is still open get their marker

Mostly nothing is open, and no note is made. Whatever a holder begins before the fence is aborted, note or not: the note is
about what was open before. Several workers may do this at the same time, and each of them may die in the middle: every request is tied to the epoch that
was seen, and whoever finds a note goes on with it.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum

import structlog

from streamkit.errors import Retry
from streamkit.kafka.ports import Admin, Log
from streamkit.kafka.transaction_port import (
    PASSING,
    LastTransaction,
    LeftOpen,
    Producer,
    TransactionState,
)
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


class Note(Enum):
    """What is noted of a writer that committed something which was left open.

    A note is a transactional id, made of the writer's and this: that its coordinator knows it is all that it says. Nothing is
    ever written with it. It is as durable as what it speaks of, needs no right that the worker does not have, and is
    forgotten by the brokers about as soon.
    """

    COMMITTED = "committed"
    FENCED = "fenced"


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
            if writer_id not in self._retired:
                self._retired.add(writer_id)
                log.warning(
                    "the name of a former writer is not of this pipeline: left alone", writer=writer_id
                )
            return
        async with self._lock:
            if writer_id not in self._retired:
                await _Retiring(self._log, writer_id, self._group, self._outputs, self._inputs).run()
                self._retired.add(writer_id)

    async def sweep(self, alive: Callable[[], frozenset[str] | None]) -> None:
        """Retire every writer of the pipeline whose life has ended, if we have not done so yet.

        For the one that no commit record names: it died in its first transaction, and the broker forgot to end that. All
        that are known have to be looked at, so this is for when something is held up and nobody is known to hold it. It ends
        early when `alive` says None: we have lost our place in the group, and know of nobody.

        Raises:
            Retry: as `retire`.
        """
        names = await self._log.transactions().known(f"{self._group}.")
        notes = {f"{name}.{each.value}" for name in names for each in Note}
        for name in sorted(names - notes - self._retired):
            if (lives := alive()) is None:
                return
            if life_of(name) not in lives:
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
        # Who is ending it at this moment, and since when we know; and where markers of ours are by now.
        self._helper: tuple[Producer, float] | None = None
        self._has_ended_positions = False
        self._ended: frozenset[TopicPartition] = frozenset()
        self._has_told = False
        # Whether we have raised the epoch; and the identity under which that was refused.
        self._is_fenced = False
        self._unfenced: Producer | None = None

    async def run(self) -> None:
        """Look, do what is due, look again."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE_S
        pause_s = PAUSE_FIRST_S
        while True:
            last = await self._transactions.last(self._id)
            if last is None:
                return  # it never wrote, or so long ago that its coordinator has forgotten it
            if await self._step(last, loop.time()):
                return
            if loop.time() > give_up_at:
                raise Retry(
                    f'the last transaction of writer "{self._id}" does not come to its end',
                    detail=f"its coordinator says {last.state.value}",
                    hint="look at the brokers' logs; a partition without a leader holds it up",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_LAST_S)

    async def _step(self, last: LastTransaction, now_s: float) -> bool:
        """Do what is due; whether nothing is."""
        if last.state in PASSING:
            return False
        # Asked for after the state: if somebody is ending it already, he has noted how.
        is_noted = await self._is_known(Note.COMMITTED)
        is_ready = is_noted and await self._is_known(Note.FENCED)
        if last.state is TransactionState.ONGOING:
            await self._stop(last.producer, now_s, is_helper=is_ready)
            return False
        left = await self._left(last.producer)
        if not left.partitions and not left.positions:
            if self._is_fenced or is_ready or last.producer == self._unfenced:
                return True
            await self._fence(last.producer)
        elif not is_noted and self._is_aborted(last.state):
            await self._end(left, commit=False)
        elif not is_ready:
            await self._prepare_commit(last.producer)
        else:
            await self._end(left, commit=True)
        return False

    def _is_aborted(self, state: TransactionState) -> bool:
        """How the last transaction was decided.

        A state that says nothing means that all its transactions were committed: a writer stops at the first that is not.
        """
        return self._is_fenced or state is TransactionState.COMPLETE_ABORT

    async def _is_known(self, note: Note) -> bool:
        return await self._transactions.last(f"{self._id}.{note.value}") is not None

    async def _left(self, producer: Producer) -> LeftOpen:
        left = await self._transactions.left_open(producer, self._outputs, self._group, self._inputs)
        if left.guessed and not self._has_told:
            self._has_told = True
            log.warning(
                "a transaction is open in a topic that may not be read: all that may be ours there is ended",
                writer=self._id,
                partitions=[str(each) for each in sorted(left.guessed)],
                hint="to see who it is, give our user READ on the topic; kafka-transactions.sh find-hanging shows it too",
            )
        # What is held where we have guessed, and have ended ours, is somebody else's: he may hold it for ever.
        partitions = left.partitions - (left.guessed & self._ended)
        positions = left.positions and not (left.is_guess and self._has_ended_positions)
        return LeftOpen(producer, partitions, positions, left.is_guess, left.guessed)

    async def _stop(self, producer: Producer, now_s: float, *, is_helper: bool) -> None:
        """Something is going on: of somebody who ends what was left open, or else of the holder, and that is aborted."""
        if is_helper:
            await self._help(producer, now_s)
        else:
            await self._transactions.end(self._id, producer, commit=False)

    async def _fence(self, producer: Producer) -> bool:
        """Raise the epoch; below transaction version 2 that is refused, and only the group's generation fences."""
        if not self._is_fenced and producer != self._unfenced:
            self._is_fenced = await self._transactions.end(self._id, producer, commit=False)
            self._unfenced = None if self._is_fenced else producer
            return self._is_fenced
        return True

    async def _prepare_commit(self, producer: Producer) -> None:
        """Note that what was left open is committed, before the coordinator forgets it; then fence, and note that too."""
        await self._admin.fence(f"{self._id}.{Note.COMMITTED.value}")
        if await self._fence(producer):
            await self._admin.fence(f"{self._id}.{Note.FENCED.value}")

    async def _help(self, producer: Producer, now_s: float) -> None:
        """Finish what somebody else has begun, if he does not do it himself."""
        if self._helper is None or self._helper[0] != producer:
            self._helper = (producer, now_s)
        elif now_s - self._helper[1] >= HELPER_S:
            await self._transactions.end(self._id, producer, commit=True)

    async def _end(self, left: LeftOpen, *, commit: bool) -> None:
        known = left.partitions - left.guessed  # where we may not ask, it was most likely not ours
        if known:  # positions alone are more often those of a worker that is just committing
            log.warning(
                "the broker forgot to end a transaction: it is ended now",
                writer=self._id,
                outcome="committed" if commit else "aborted",
                partitions=[str(each) for each in sorted(known)],
            )
        if await self._transactions.end_left(self._id, left, self._group, commit=commit):
            self._has_ended_positions |= left.positions
            self._ended |= left.partitions
