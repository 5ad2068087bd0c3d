"""stuck_records: the records, timers and held-back results that held the event loop for longer than they may, counted over restarts.

A step that never returns takes its process with it, and the next one would begin with the same record. So every such loss
is written down before the process ends, in a small file beside the worker's slot; a record that was at fault as often as the
error policy has patience is condemned: it is set aside without being run. A chunk that took too long without anybody's fault
is written down as well, and counts for nothing. Whatever is known and not condemned is run singly (`task/singly.py`), so that
it has all the time that it may take. After a day it is forgotten: by then the code, or whatever it waited for, may be another.

A result that was held back until the end of a span is known by its key and the step that held it back; the next result of that key
is another one, but the step behind has hung on the key, so it is not run either.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
import structlog

from streamkit.graph.policy import ErrorPolicy
from streamkit.model.ids import TopicPartition
from streamkit.runtime.whereabouts import Whereabouts
from streamkit.state.timers import StoredTimer
from streamkit.task.failure_book import Condemned
from streamkit.task.task import Task

log = structlog.get_logger()

# Once may be an accident: a machine that stood still, a service that was away.
TRIES_MIN = 2
KEPT_MS = 24 * 3600 * 1000
# More at a time than a pipeline can have; the latest count.
KEPT_MAX = 1000

Name = tuple[str, int, int, str, str, bytes, int, bytes]


class Loss(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One record, by its place, or one timer or held-back result, by its task; how often it held the loop too long.

    None at all: it was in hand when a chunk that it was part of had lasted too long.
    """

    topic: str
    partition: int
    offset: int
    stage: str
    step: str
    count: int
    at_ms: int
    limit_s: float
    store: str = ""
    key: bytes = b""
    time: int = 0
    # Of a held-back result, which has no store: the step that held it back. Older versions pass over it.
    namespace: bytes = b""

    @property
    def name(self) -> Name:
        """What tells it from others."""
        return (
            self.topic,
            self.partition,
            self.offset,
            self.stage,
            self.store,
            self.key,
            self.time,
            self.namespace,
        )

    @property
    def reason(self) -> Condemned:
        """Why it is set aside."""
        times = "once" if self.count == 1 else f"{self.count} times"
        error = f"held the worker for longer than processing_max_s ({self.limit_s:g} s), {times}"
        return Condemned(self.step, error, "")


class Notebook(Protocol):
    """Where losses are kept, beyond the life of a process; `runtime/slot.py` keeps them on disk."""

    def read_losses(self) -> list[bytes]:
        """Our own first, then those of the other workers of this host."""
        ...

    def write_losses(self, data: bytes) -> None:
        """Replace our own."""
        ...


class StuckRecords:
    """Counts losses, and says which records they condemn."""

    def __init__(self, notebook: Notebook, policy: ErrorPolicy, now_ms: Callable[[], int]) -> None:
        self._notebook = notebook
        self._tries = max(TRIES_MIN, policy.retries + 1)
        self._now_ms = now_ms

    def note(self, where: Whereabouts, limit_s: float, is_past: Callable[[TopicPartition, int], bool]) -> int:
        """Count one more loss and write it down; `is_past` knows what needs no counting any more. Returns the count."""
        return self._write([self._loss(where, limit_s, count=1)], is_past)

    def note_chunk(
        self, where: Whereabouts, limit_s: float, is_past: Callable[[TopicPartition, int], bool]
    ) -> None:
        """Write down where a chunk was that took too long, and of which nothing alone is to blame."""
        new = [self._loss(where, limit_s, count=0)]
        if where.timer is not None and where.partition is not None:
            # Each record of the chunk may have made some timers due.
            record = msgspec.structs.replace(where, timer=None, store="")
            new.append(self._loss(record, limit_s, count=0))
        self._write(new, is_past)

    def _write(self, new: list[Loss], is_past: Callable[[TopicPartition, int], bool]) -> int:
        """Add to what is known; returns the count of the last."""
        own, others = self._read()
        for loss in new:
            before = own.pop(loss.name, None)
            count = loss.count + (before.count if before is not None else 0)
            own[loss.name] = msgspec.structs.replace(loss, count=count)
        names = {loss.name for loss in new}
        kept = [
            each
            for each in own.values()
            if each.name in names
            or each.offset < 0
            or not is_past(TopicPartition(each.topic, each.partition), each.offset)
        ]
        try:
            self._notebook.write_losses(msgspec.json.encode(kept[-KEPT_MAX:]))
        except OSError as error:
            log.warning("a loss could not be written down", error=str(error))
        last = new[-1].name
        return own[last].count + (others[last].count if last in others else 0)

    def _loss(self, where: Whereabouts, limit_s: float, count: int) -> Loss:
        timer, task = where.timer or StoredTimer(b"", 0, b""), where.task
        at = None if where.timer is not None else where.partition
        at = at or TopicPartition("", task.partition if task is not None else -1)
        return Loss(
            topic=at.topic,
            partition=at.partition,
            offset=where.offset if at.topic else -1,
            stage=task.stage if task is not None else "",
            step=where.step,
            count=count,
            at_ms=self._now_ms(),
            limit_s=limit_s,
            store=where.store,
            key=timer.key or where.key or b"",
            time=timer.time,
            namespace=timer.namespace or where.held_by.encode(),
        )

    def remind(self, task: Task) -> None:
        """Tell a new task all that is known of it."""
        self.condemn(task)
        self.slow_down(task)

    def condemn(self, task: Task) -> None:
        """Tell a new task which of its records, timers and held-back results are not to be run any more."""
        for loss in self._all():
            at = TopicPartition(loss.topic, loss.partition)
            if loss.count < self._tries:
                continue
            if not loss.topic and (loss.stage, loss.partition) == tuple(task.id):
                self._condemn_by_name(task, loss)
            elif loss.offset >= 0 and at in task.inputs:
                task.book.condemn_record(at, loss.offset, loss.reason)

    def _condemn_by_name(self, task: Task, loss: Loss) -> None:
        if loss.store:
            timer = StoredTimer(loss.key, loss.time, loss.namespace)
            task.book.condemn((loss.store, timer), loss.reason)
        elif loss.namespace:
            task.book.condemn_result(loss.namespace.decode(), loss.key, loss.reason)

    def slow_down(self, task: Task) -> None:
        """Tell a new task what it has to run singly: all that is known of it, and not condemned."""
        for loss in self._all():
            at = TopicPartition(loss.topic, loss.partition)
            if loss.count >= self._tries:
                continue
            if loss.offset >= 0 and at in task.inputs:
                task.singly.records_until(at, loss.offset, loss.at_ms + KEPT_MS)
                log.info(
                    "records are run one at a time, for a chunk of them took too long",
                    up_to=f"{at}@{loss.offset}",
                )
            elif not loss.topic and (loss.stage, loss.partition) == tuple(task.id):
                task.singly.timers = task.singly.timers or bool(loss.store)
                task.singly.results = task.singly.results or not loss.store

    @property
    def was_handed(self) -> bool:
        """Whether a record was at fault that had been handed over: read from its topic, it has a place to be counted."""
        return any(loss.topic and loss.offset < 0 for loss in self._all())

    def _all(self) -> Iterable[Loss]:
        own, others = self._read()
        for name, loss in own.items():
            more = others.pop(name, None)
            yield loss if more is None else msgspec.structs.replace(loss, count=loss.count + more.count)
        yield from others.values()

    def _read(self) -> tuple[dict[Name, Loss], dict[Name, Loss]]:
        """Our own losses and those of the others, added up; without those that are too old to count."""
        first, *rest = self._notebook.read_losses() or [b""]
        own = {loss.name: loss for loss in self._decode(first)}
        others: dict[Name, Loss] = {}
        for data in rest:
            for loss in self._decode(data):
                before = others.get(loss.name)
                count = loss.count + (before.count if before is not None else 0)
                others[loss.name] = msgspec.structs.replace(loss, count=count)
        return own, others

    def _decode(self, data: bytes) -> list[Loss]:
        if not data:
            return []
        try:
            losses = msgspec.json.decode(data, type=list[Loss])
        except msgspec.MsgspecError as error:
            log.warning("what was written down of earlier losses cannot be read", error=str(error))
            return []
        oldest_ms = self._now_ms() - KEPT_MS
        return [loss for loss in losses if loss.at_ms >= oldest_ms]
