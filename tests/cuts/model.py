"""A small model of what workers do about cuts: the real ledger and the real line, driven by seeded random schedules.

Two stages: tasks of `up` write records and barriers to the partitions of one shuffle, a task of `down` reads each. Workers
commit in transactions whose records arrive partition by partition, in any order, while rounds change, workers stop in the
middle, wake up as zombies, are fenced, crash, and start from a control log that was compacted meanwhile.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from streamkit.cuts.ledger import Cut, Ledger
from streamkit.cuts.notes import Declined, End, Kind, Note, Reached, Round, Stored, Trigger
from streamkit.model.ids import TaskId
from streamkit.model.signal import Barrier
from streamkit.progress.line import Line, decode_line, encode_line
from tests.cuts.model_log import Fate, Log, Transaction

PARTITIONS = 2
COORDINATES = TaskId("up", 0)
SHUFFLE = "shuffle"


class Sent(NamedTuple):
    """A record, or the barrier, of a task in the shuffle."""

    task: TaskId
    barrier: Barrier | None = None


class Committed(NamedTuple):
    """What is restored of a task: the line of its commit record, and its position."""

    line: bytes | None = None
    position: int = 0


class Task:
    """A task at its owner."""

    def __init__(self, task: TaskId, line: Line, position: int) -> None:
        self.id = task
        self.line = line
        self.position = position
        # The cut at which it stands still. One that is restored behind a cut stays there until it is released.
        self.stopped_at: int | None = line.passed or None


class Protocol:
    """What a worker does at the places where it could go wrong."""

    ledger: type[Ledger] = Ledger
    line: type[Line] = Line
    reads_uncommitted = False
    releases_at_rejoin = False
    holds_before_trigger = True

    def is_released(self, worker: "Worker", task: Task, number: int) -> bool:
        frozen = [each.id for each in worker.tasks.values() if each.stopped_at == number]
        return worker.ledger.is_released(task.id, number, frozen)


class Span:
    """A commit under way: what is still to be written where, and what is true once it has landed."""

    def __init__(self, tasks: frozenset[TaskId]) -> None:
        self.transaction = Transaction(tasks)
        self.queues: dict[Log, list[Sent | Note]] = {}
        self.after: dict[TaskId, Committed] = {}
        self.is_asked = False
        # What has reached a cut in it, and which.
        self.images: dict[TaskId, int] = {}

    def put(self, log: Log, entry: Sent | Note) -> None:
        self.queues.setdefault(log, []).append(entry)


class Bias(NamedTuple):
    """How hostile a schedule is: chances per step."""

    rebalance: float = 0.01
    crash: float = 0.004
    sleep: float = 0.01
    time_out: float = 0.01
    # That a worker stops in the middle of a cut's commit, after its positions were accepted, and is taken for dead.
    zombie: float = 0.02
    # For how many of its turns it does so, at most.
    zombie_sleeps: int = 60
    # That a coordinator lets a cut that cannot complete be for now.
    slowness: float = 0.2
    # That one of the workers does not read control, although there is time.
    lag: float = 0.0


class Group:
    """The consumer group: its round, its members, and who owns which task."""

    def __init__(self) -> None:
        self.round = 0
        self.owners: dict[TaskId, Worker] = {}
        self.members: set[Worker] = set()


class World:
    """All there is."""

    def __init__(
        self, seed: int, protocol: Protocol, bias: Bias, *, tasks: int, workers: int, has_readers: bool
    ) -> None:
        self.chance = Random(seed)
        self.protocol = protocol
        self.bias = bias
        self.has_readers = has_readers
        self.stages = {"up": tasks} | ({"down": PARTITIONS} if has_readers else {})
        self.tasks = [TaskId(stage, each) for stage, count in self.stages.items() for each in range(count)]
        self.control = Log()
        self.shuffle = [Log() for _ in range(PARTITIONS)]
        self.group = Group()
        self.committed: dict[TaskId, Committed] = {}
        self.transactions: list[Transaction] = []
        self.triggers_left = 3
        self.is_calm = False
        self.workers = [Worker(self) for _ in range(workers)]
        self.rebalance(set(self.workers))

    def rebalance(self, members: "set[Worker]") -> None:
        """A new round begins. Whoever is not in it does not know yet."""
        chosen = [worker for worker in self.workers if worker in members]
        self.group.round += 1
        self.group.members = members
        for task in self.tasks:
            if self.group.owners.get(task) not in members or self.chance.random() < 0.2:
                self.group.owners[task] = self.chance.choice(chosen)

    def is_pending(self, task: TaskId) -> bool:
        """Whether an undecided transaction holds positions of this task: who restores it has to wait."""
        return any(
            each.is_accepted and not each.is_settled and task in each.tasks for each in self.transactions
        )

    def mark_one(self) -> None:
        """One marker arrives somewhere."""
        for each in self.transactions:
            if each.fate is not Fate.OPEN and each.unmarked:
                chosen = [log for log in (self.control, *self.shuffle) if log in each.unmarked]
                self.chance.choice(chosen).mark(each)
                break
        self.transactions = [each for each in self.transactions if not each.is_settled]
        self.chance.shuffle(self.transactions)


class Worker:
    """One worker: what it believes, and the commit that it has under way."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asleep = 0
        self.begin_life()

    def begin_life(self) -> None:
        """Start, or start again with nothing in memory."""
        self.round = 0
        self.tasks: dict[TaskId, Task] = {}
        self.waiting: set[TaskId] = set()
        self.ledger = self.world.protocol.ledger()
        self.control_at = 0
        self.span: Span | None = None
        # The images that were made here, also of tasks that are somebody else's by now.
        self.images: dict[TaskId, int] = {}
        # The last transaction; another begins only when its markers are written.
        self.last: Transaction | None = None
        # The coordinator writes only when it has read so far: what was there when it became it, and its own notes.
        self.reads_until = 0

    # -- the group ------------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Learn of the round that the group is in, and of one's tasks."""
        world, group = self.world, self.world.group
        if self not in group.members:
            world.rebalance(group.members | {self})
        is_next = group.round == self.round + 1
        owned = {task for task, owner in group.owners.items() if owner is self}
        kept = {task: each for task, each in self.tasks.items() if task in owned and is_next}
        for each in kept.values():
            each.line.enter(group.round)
            if world.protocol.releases_at_rejoin:
                each.stopped_at = None
        self.round, self.tasks = group.round, kept
        self.waiting = owned - kept.keys()
        self.reads_until = len(world.control.entries)

    def restore_one(self) -> None:
        """Take over a task, as soon as nothing that was accepted for it is undecided."""
        task = self.world.chance.choice(sorted(self.waiting))
        if self.world.is_pending(task):
            return
        found = self.world.committed.get(task, Committed())
        channels = {} if task.stage == "up" else {SHUFFLE: self.world.stages["up"]}
        line = self.world.protocol.line(channels, self.round, decode_line(found.line))
        self.waiting.discard(task)
        self.tasks[task] = Task(task, line, found.position)
        if self.world.protocol.releases_at_rejoin:
            self.tasks[task].stopped_at = None

    def read_control(self) -> None:
        """The next notes, as far as they are committed."""
        lags = self is self.world.workers[-1] and not self.world.is_calm
        if lags and self.world.chance.random() < self.world.bias.lag:
            return
        control, is_hasty = self.world.control, self.world.protocol.reads_uncommitted
        end = len(control.entries) if is_hasty else control.stable_end
        for offset in range(self.control_at, min(end, self.control_at + self.world.chance.randrange(1, 6))):
            self.control_at = offset + 1
            note = control.at(offset)
            if note is not None:
                self.ledger.read(note)

    # -- a span ---------------------------------------------------------------------------------------------------

    def begin_span(self) -> None:
        """Run what is to be run, and begin to commit it."""
        span = Span(frozenset(self.tasks))
        for each in self.tasks.values():
            if each.stopped_at is not None and self.world.protocol.is_released(self, each, each.stopped_at):
                each.stopped_at = None
            if each.stopped_at is None:
                (self._write if each.id.stage == "up" else self._read)(each, span)
            span.after[each.id] = Committed(encode_line(each.line), each.position)
        self._say_what_is_stored(span)
        if COORDINATES in self.tasks and self.control_at >= self.reads_until:
            for note in self._coordinate():
                span.put(self.world.control, note)
        self.span = span
        self.world.transactions.append(span.transaction)

    def _cut_for(self, task: Task) -> Cut | None:
        """The cut that this task is to reach now, if any."""
        cut = self.ledger.open
        is_ours = cut is not None and cut.trigger is not None and cut.trigger.round == self.round
        return cut if is_ours and cut is not None and task.line.passed < cut.number else None

    def _write(self, task: Task, span: Span) -> None:
        chance = self.world.chance
        for _ in range(chance.randrange(3)):
            span.put(chance.choice(self.world.shuffle), Sent(task.id))
        cut = self._cut_for(task)
        if cut is not None and (self.world.is_calm or chance.random() < 0.7):
            barrier = Barrier(cut.number, self.round)
            for log in self.world.shuffle:
                span.put(log, Sent(task.id, barrier))
            self._reach(task, cut, span)

    def _read(self, task: Task, span: Span) -> None:
        log, cut = self.world.shuffle[task.id.partition], self._cut_for(task)
        left = 99 if self.world.is_calm else self.world.chance.randrange(6)
        while left and not self._is_at_line(task, cut) and task.position < log.stable_end:
            sent = log.at(task.position)
            task.position += 1
            left -= 1
            if sent is not None and sent.barrier is not None:
                task.line.hear(SHUFFLE, sent.task.partition, sent.barrier)
        coming = task.line.coming
        if cut is not None and coming and coming.cut == cut.number and task.line.has_reached(coming):
            self._reach(task, cut, span)

    def _is_at_line(self, task: Task, cut: Cut | None) -> bool:
        """Whether the task must not read on, also if it is not known yet what cut this is."""
        coming = task.line.coming
        if coming is None or not task.line.has_reached(coming) or self.ledger.is_over(coming.cut):
            return False
        return cut is not None or self.world.protocol.holds_before_trigger

    def _reach(self, task: Task, cut: Cut, span: Span) -> None:
        task.line.pass_by(cut.number)
        # Nobody reads what `down` writes: it is released when it is frozen.
        task.stopped_at = cut.number if task.id.stage == "up" or cut.is_stopping else None
        positions = {SHUFFLE: {task.id.partition: task.position}}
        span.put(self.world.control, Reached(cut.number, self.round, task.id, 1, "b", positions))
        span.images[task.id] = cut.number

    def _say_what_is_stored(self, span: Span) -> None:
        """Whoever made an image may say so; who restored a task behind the cut has none, unless it still stands there."""
        cut, chance, control = self.ledger.open, self.world.chance, self.world.control
        if cut is None:
            return
        for task in sorted(cut.reached.keys() - cut.stored.keys() - cut.declined.keys()):
            owned = self.tasks.get(task)
            is_mine = self.images.get(task) == cut.number
            is_there = owned is not None and owned.line.passed == cut.number
            if (is_mine or (is_there and cut.is_stopping)) and chance.random() < 0.8:
                span.put(control, Stored(cut.number, self.round, task, 1, (), 0))
            elif is_there and not is_mine and chance.random() < 0.3:
                span.put(control, Declined(cut.number, self.round, task, "restored"))

    def _coordinate(self) -> list[Note]:
        """What the coordinator has to say."""
        world, ledger = self.world, self.ledger
        slowness = 0.0 if world.is_calm else world.bias.slowness
        if ledger.round < self.round:
            return [Round(self.round, "w")]
        notes: list[Note] = []
        for cut in ledger.unended:
            is_over = cut.declined or cut.is_broken(ledger.round)
            is_given_up = world.chance.random() < (1 - slowness if is_over else 0.02)
            if cut.may_complete:
                notes.append(End(cut.number, self.round, is_complete=True))
            elif is_given_up or (world.is_calm and world.chance.random() < 0.2):
                notes.append(End(cut.number, self.round, is_complete=False))
        if not ledger.unended and world.triggers_left:
            world.triggers_left -= 1
            stops = world.chance.random() < 0.15
            kind = Kind.SAVEPOINT if stops else Kind.CHECKPOINT
            notes.append(Trigger(ledger.next_number, self.round, kind, world.stages, "f", is_stopping=stops))
        return notes

    def commit_some(self, span: Span) -> None:
        """One request of a commit is answered."""
        transaction, chance = span.transaction, self.world.chance
        if transaction.fate is not Fate.OPEN:
            self._fail(span)  # somebody has fenced us
            return
        logs = [log for log, queue in span.queues.items() if queue]
        if not span.is_asked and (not logs or chance.random() < 0.4):
            span.is_asked = True
            group = self.world.group
            transaction.is_accepted = self.round == group.round and self in group.members
            if not transaction.is_accepted:
                self._fail(span)
        elif logs:
            log = chance.choice(logs)
            log.append(transaction, span.queues[log].pop(0))
        else:
            transaction.decide(Fate.COMMITTED)
            self.world.committed.update(span.after)
            self.images |= span.images
            self.span, self.last = None, transaction
            self.reads_until = len(self.world.control.entries)

    def _fail(self, span: Span) -> None:
        """The span is taken back: all tasks are restored."""
        if span.transaction.fate is Fate.OPEN:
            span.transaction.decide(Fate.ABORTED)
        self.span, self.last = None, span.transaction
        self.reads_until = len(self.world.control.entries)
        self.waiting |= self.tasks.keys()
        self.tasks = {}

    def step(self) -> None:
        """Do one thing that a worker may do now."""
        is_behind = self.round != self.world.group.round
        if self.span is not None:
            if self.world.chance.random() < 0.2:
                self.read_control()
            else:
                self.commit_some(self.span)
            return
        deeds: list[Callable[[], None]] = [self.read_control, self.read_control]
        if is_behind or self not in self.world.group.members:
            deeds.append(self.join)
        if self.waiting and not is_behind:
            deeds.append(self.restore_one)
        if self.round and (self.last is None or self.last.is_settled):
            deeds.append(self.begin_span)
        self.world.chance.choice(deeds)()
