"""restore: a task's state, rebuilt from what this host has and the tail of the changelog.

The order is what makes it safe:

    retire     the writer of a former owner that is dead is retired by its name, so its open transaction ends now
    positions  the group's positions are stable: nothing is pending on them any more
    end        the changelog's end, open transactions included, is taken only now
    copy       committed changelog records go into the store up to that end, whole spans only (`runtime/tail.py`)
    agree      commit record and group positions name the same place, or we stop

The names of former owners stand in commit records: the last committed one, and those of transactions still open.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import msgspec
import structlog

from streamkit.errors import Retry, StateCorrupt, StateInUse
from streamkit.kafka.ports import Log, Reader
from streamkit.model.ids import Position, TaskId, TopicPartition
from streamkit.runtime.agree import Committed, Terms, agree, decode_plan, forgotten, require_records
from streamkit.runtime.damage import SlowRestore
from streamkit.runtime.given_up import GivenUp
from streamkit.runtime.internal_topics import TOMBSTONES_KEPT_MS
from streamkit.runtime.last_commits import find_last_commit
from streamkit.runtime.lost_state import has_committed, is_last_copy, span_of, state_lost
from streamkit.runtime.persist import Persistence
from streamkit.runtime.retire import Retirement, life_of
from streamkit.runtime.tail import RestoreProgress, Tail
from streamkit.state.changelog import CommitRecord
from streamkit.state.keys import COMMIT_KEY, PLAN_KEY
from streamkit.state.store import StateStore
from streamkit.state.task_state import TaskState
from streamkit.task.clock_state import CLOCK, decode_clock
from streamkit.task.task import Restored, Task

log = structlog.get_logger()

# Why local state is discarded that a person has given up: the changelog is empty, and the positions are not a commit's.
BEGUN_ANEW = "the pipeline was begun anew"

# Rows gathered before they are written to the store: one sorted write of this many costs least per row; values may be
# large.
ROWS_PER_WRITE = 20_000
BYTES_PER_WRITE = 16 * 1024 * 1024
# How long positions may stay pending before we look again who holds them.
POSITIONS_WAIT_S = 0.5
# Kafka keeps tombstones at least twice as long: what was deleted since a store was written is still told by the tail.
LOCAL_STATE_MS_MAX = TOMBSTONES_KEPT_MS // 2
# A worker that loses a task closes its store within this time, unless it has stopped.
FORMER_OWNER_S = 2.0
# After this long it is not a worker that is just committing, and no commit record names it.
UNNAMED_S = 5.0
# A transaction of a live worker ends by itself; after this long something is wrong with it.
PATIENCE_S = 120.0


class Ownership(msgspec.Struct, frozen=True):
    """Who owns the task, who is alive at this moment, and how a writer is retired whose life has ended."""

    group: str
    live_writers: Callable[[], frozenset[str]]
    retirement: Retirement
    terms: Terms
    state_apply_interval_s: float
    given_up: GivenUp
    # Whether local state must not be used, asked once: it could not be read (`runtime/damage.py`).
    is_distrusted: Callable[[], bool] = lambda: False
    # Called for each task whose local state is of a pipeline that was begun anew since.
    tell_begun_anew: Callable[[], None] = lambda: None


class Restoring:
    """Restores one task; `run` is the whole story."""

    def __init__(self, task: Task, log_: Log, persistence: Persistence, ownership: Ownership) -> None:
        self._task = task
        self._log = log_
        self._admin = log_.admin()
        self._persistence = persistence
        self._ownership = ownership
        self._begun_ms = self._clock_ms()

    async def run(self) -> Restored:
        """Bring the task's state and positions up to the last commit.

        Raises:
            Retry: the broker was away, or a live worker's transaction did not end; try again.
            IncompatiblePlan: the stored state belongs to another version of the pipeline.
            StateLost: the group says that there was state, and the changelog has none; nothing local is discarded.
            StateCorrupt: what is there now is not to be used; discard it and try again.
            Disagreement: commit record and group positions name different places; look again, then give up.
        """
        name = local_name(self._task.id)
        self._begun_ms = self._clock_ms()
        store = await self._take_store(name)
        try:
            if (misfit := await self._misfit(store)) is not None:
                if misfit == BEGUN_ANEW:
                    self._ownership.tell_begun_anew()
                else:
                    log.warning("local state is discarded", task=str(self._task.id), because=misfit)
                self._persistence.do(store.close)
                self._persistence.discard(name)
                store = await self._persistence.open(name)
            reader = self._log.reader(committed=True)
            try:
                return await self._bring_up(reader, store, name)
            finally:
                await reader.close()
        except BaseException:
            self._persistence.do(store.close)
            raise

    async def _misfit(self, store: StateStore) -> str | None:
        """Why the local store cannot be brought up to date by the tail of the changelog; None if it can.

        It must not know more than is there, and not be so old that the tail has forgotten what was deleted since.
        """
        if store.changelog_offset == 0:
            self._ownership.is_distrusted()  # it has been discarded already
            return None
        changelog = self._task.changelog
        end = (await self._admin.end_offsets([changelog], committed=False))[changelog]
        if store.changelog_offset > end:
            return await self._why_ahead(store, end)
        if self._ownership.is_distrusted():
            return "it could not be read"
        record = last_commit(store)
        if record is None or is_too_old(record.at_ms, self._task.rules.clocks.now_ms()):
            return "it is too old, or was never complete"
        return None

    async def _why_ahead(self, store: StateStore, end: int) -> str:
        """Why the local store knows more than its changelog holds; refuses to discard what nothing else holds any more.

        Raises:
            StateLost: the changelog is empty, or shorter than what it held when the group's positions were committed.
        """
        positions = await self._stable_positions()
        is_empty = end == 0 and has_committed(positions.values(), self._ownership.terms.guarantee)
        if is_empty or is_last_copy(last_commit(store), positions):
            changelog = self._task.changelog
            raise state_lost(changelog.topic, [changelog], is_there=True)
        is_set = len(positions) == len(self._task.inputs) and not any(map(span_of, positions.values()))
        return BEGUN_ANEW if end == 0 and is_set else "it is ahead of its changelog"

    async def _take_store(self, name: str) -> StateStore:
        """Open the store; a former owner on this host that is still closing it gets a moment."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + FORMER_OWNER_S
        while loop.time() < give_up_at:
            try:
                return await self._persistence.open(name, beside=False)
            except StateInUse:
                await asyncio.sleep(0.02)
        return await self._persistence.open(name)

    async def _bring_up(self, reader: Reader, store: StateStore, name: str) -> Restored:
        changelog = self._task.changelog
        local_birth = birth_of(store)
        stable = (await self._admin.end_offsets([changelog], committed=True))[changelog]
        tail = Tail(store.changelog_offset, await self._sure_to(reader, store.changelog_offset, stable))
        reader.seek(changelog, tail.at)
        await self._copy(reader, store, tail, stable)
        record = last_commit(store)
        if record is not None:
            await self._retire_dead([record])
        positions = await self._stable_positions()
        end = (await self._admin.end_offsets([changelog], committed=False))[changelog]
        await self._copy(reader, store, tail, end)
        self._require_quick()
        record = last_commit(store)
        if local_birth is not None and record is not None and record.birth != local_birth:
            raise StaleStore(name)
        restored = self._restored(store, record, positions, tail.strays)
        places = restored.positions
        require_records(places, await self._admin.end_offsets(places, committed=False) if places else {})
        return restored

    def _clock_ms(self) -> tuple[int, int]:
        clocks = self._task.rules.clocks
        return clocks.now_ms(), clocks.elapsed_ms()

    def _require_quick(self) -> None:
        """Refuse what was read too long ago: it may have been deleted since, and the tombstone be gone as well.

        By both clocks, for the one that only measures stands still while a machine sleeps.

        Raises:
            SlowRestore: there has to be another restore, from the start.
        """
        took_ms = max(now - begun for now, begun in zip(self._clock_ms(), self._begun_ms, strict=True))
        if took_ms > LOCAL_STATE_MS_MAX:
            raise SlowRestore(took_ms // 1000)

    async def _sure_to(self, reader: Reader, start: int, end: int) -> int:
        """Up to where (exclusive) a commit record is known to follow: a short tail waits for it in memory instead."""
        if end - start <= ROWS_PER_WRITE:
            return start
        last = await find_last_commit(reader, self._task.changelog, start, end)
        return start if last is None else last[0] + 1

    async def _copy(self, reader: Reader, store: StateStore, tail: Tail, end: int) -> None:
        """Copy committed changelog records into the store, whole spans only, until all up to `end` was read."""
        loop = asyncio.get_running_loop()
        moved_at = loop.time()
        progress = RestoreProgress(str(self._task.id), tail.at, end)
        while tail.at < end:
            fetched = await reader.poll(POSITIONS_WAIT_S)
            if fetched:
                moved_at = loop.time()
            else:
                await self._see_who_holds_it(loop.time() - moved_at)
            for batch in fetched:
                tail.add(batch)
            if len(tail.rows) >= ROWS_PER_WRITE or tail.rows_bytes >= BYTES_PER_WRITE:
                await self._write(store, tail)
                progress.tell(tail.at)
        if tail.rows or tail.whole_to != store.changelog_offset:
            await self._write(store, tail)

    async def _write(self, store: StateStore, tail: Tail) -> None:
        await self._persistence.run(partial(store.apply, tail.rows, tail.whole_to))
        tail.taken()

    async def _see_who_holds_it(self, waited_s: float) -> None:
        """Retire the dead writers whose transactions hold the changelog back; those of the living end by themselves.

        Raises:
            Retry: nothing has helped for a long time.
        """
        found = await self._open_commits()
        await self._retire_dead(found)
        if waited_s > UNNAMED_S:
            await self._ownership.retirement.sweep(self._ownership.live_writers)
        if waited_s > PATIENCE_S:
            raise Retry(
                f"an open transaction holds {self._task.changelog} back",
                detail=f"its writer is {found[0].writer_id}" if found else "",
                hint="`kafka-transactions.sh find-hanging` shows a transaction that a broker forgot to end",
            )

    async def _stable_positions(self) -> dict[TopicPartition, Position]:
        """The group's positions of the task's inputs, with their spans, once no transaction holds one pending."""
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        inputs = list(self._task.inputs)
        while True:
            try:
                return await self._admin.positions(self._ownership.group, inputs, timeout_s=POSITIONS_WAIT_S)
            except Retry:
                waited_s = loop.time() - begun_at
                if waited_s > PATIENCE_S:
                    raise
                await self._retire_dead(await self._open_commits())
                if waited_s > UNNAMED_S:
                    await self._ownership.retirement.sweep(self._ownership.live_writers)

    async def _open_commits(self) -> list[CommitRecord]:
        """The commit records from the changelog's stable end on: the first is of a transaction that is still open."""
        changelog = self._task.changelog
        start = (await self._admin.end_offsets([changelog], committed=True))[changelog]
        end = (await self._admin.end_offsets([changelog], committed=False))[changelog]
        found: list[CommitRecord] = []
        if start >= end:
            return found
        reader = self._log.reader(committed=False)
        try:
            reader.seek(changelog, start)
            at = start
            while at < end:
                fetched = await reader.poll(POSITIONS_WAIT_S)
                if not fetched:
                    break
                for batch in fetched:
                    found += [
                        CommitRecord.decode(record.value)
                        for record in batch.own_records()
                        if record.key == COMMIT_KEY
                    ]
                    at = batch.next_offset
        finally:
            await reader.close()
        return found

    async def _retire_dead(self, records: Iterable[CommitRecord]) -> None:
        """Retire the writers of these commit records that are not of a living worker."""
        alive = self._ownership.live_writers()
        names = {record.writer_id for record in records}
        for name in sorted(name for name in names if life_of(name) not in alive):
            await self._ownership.retirement.retire(name)

    def _restored(
        self,
        store: StateStore,
        record: CommitRecord | None,
        noted: Mapping[TopicPartition, Position],
        strays: frozenset[bytes],
    ) -> Restored:
        """Check that everything agrees, and put it together."""
        task, ownership = self._task, self._ownership
        plan = ownership.terms.plan
        stored = decode_plan(store.get(PLAN_KEY))
        positions = agree(Committed(task.changelog, record, stored, noted), ownership.terms)
        state = TaskState(
            store,
            task.stage.stores,
            apply_interval_s=ownership.state_apply_interval_s,
            strays=strays,
        )
        if strays:
            log.info("rows without their commit record are passed over", task=str(task.id), rows=len(strays))
        if record is None:
            return Restored(state, positions, 0, uuid.uuid4().hex)
        if record.fingerprint != plan.fingerprint and not ownership.given_up.tell(stored, plan):
            log.info(
                "the pipeline has changed in a way that keeps its state",
                task=str(task.id),
                fingerprint=plan.fingerprint,
            )
        clock = decode_clock(record.extra.get(CLOCK))
        return Restored(
            state, positions, record.span, record.birth, clock, plan.encode(forgotten(stored, plan))
        )


class StaleStore(StateCorrupt):
    """The local state belongs to an earlier changelog of the same name; it must be discarded and restored anew."""

    code = "SK320"

    def __init__(self, name: str) -> None:
        super().__init__(f'local state "{name}" belongs to a changelog that was deleted')


def local_name(task: TaskId) -> str:
    """Under which name this host keeps the state of a task."""
    return f"{task.stage}-{task.partition}"


def last_commit(store: StateStore) -> CommitRecord | None:
    """The last commit record that is in the store."""
    value = store.get(COMMIT_KEY)
    return None if value is None else CommitRecord.decode(value)


def is_too_old(at_ms: int, now_ms: int) -> bool:
    """Whether the changelog may have forgotten by now what was deleted since."""
    # A time as far in the future is of a clock that nobody should believe.
    return abs(now_ms - at_ms) > LOCAL_STATE_MS_MAX


def birth_of(store: StateStore) -> str | None:
    """The birth of the changelog that the store was copied from; None for an empty store."""
    record = last_commit(store)
    return None if record is None else record.birth
