"""pulse: what happens because time passes, and not because a record came.

Processing-time timers fire, generators look at the clock, silent inputs are found idle, and what is left to fire after a
busy moment goes on. A partition is idle only if it is silent and the log itself says that there is nothing left to read.
"""

from collections.abc import Callable, Iterator

import structlog

from streamkit.kafka.ports import Admin
from streamkit.model.ids import MIN_TIME, TaskId, TopicPartition
from streamkit.progress.channels import Status
from streamkit.progress.pace import TURN_MS
from streamkit.progress.source_clock import SourceClock
from streamkit.runtime.assign import Roster
from streamkit.runtime.periodic_checks import PeriodicCheck
from streamkit.runtime.unknown_channels import UnknownChannels
from streamkit.task.engine import Engine
from streamkit.task.failures import Verdict
from streamkit.task.task import Task

log = structlog.get_logger()

# Ten times a second: finer than people notice, and seldom enough to cost nothing.
BEAT_S = 0.1
# The log is asked about silent partitions at most this often.
ASK_S = 1.0

Silent = dict[TopicPartition, tuple[Task, SourceClock]]


def is_at_rest(task: Task) -> bool:
    """Whether a commit has told downstream all that there is to tell about time."""
    clock = task.clock
    is_told = task.committed_clock.announced == (clock.status, clock.fired)
    is_mute = not task.shuffles or clock.fired == MIN_TIME
    is_done = clock.fired == clock.watermark and not task.moved and not task.has_finished_unsaid
    return not task.rules.is_timed or ((is_mute or is_told) and is_done)


class Pulse:
    """Beats while the loop runs; does nothing for tasks that have no use for time."""

    def __init__(self, roster: Roster, admin: Admin, engine: Engine) -> None:
        self._roster = roster
        self._admin = admin
        self._engine = engine
        self._clocks = engine.rules.clocks
        self._strangers = UnknownChannels(engine.rules.writers, admin, roster)
        self._next_beat_s = 0.0
        self._next_task: TaskId | None = None
        self._check = PeriodicCheck("idle partitions")
        # Whether timers are left that fire with the next beat, which then comes at once.
        self.is_hurried = False

    def beat(self, now_s: float, is_full: Callable[[], bool] = lambda: False) -> tuple[Task, Verdict] | None:
        """Let time pass in every running task; returns a task in which a timer failed, and what to do about it.

        When the span is full, the tasks that are left have to wait for the next beat, which then comes at once.

        Raises:
            Bug: nobody can tell any more which partitions are idle.
        """
        if now_s < self._next_beat_s and not self.is_hurried:
            return None
        self._next_beat_s = now_s + BEAT_S
        self.is_hurried = False
        elapsed_ms = self._clocks.elapsed_ms()
        for task in self._in_turn():
            passed = self._engine.pass_time(task)
            if passed.verdict is not None:
                return task, passed.verdict
            if not passed.is_done:
                self.is_hurried = True
            if is_full() or self._clocks.elapsed_ms() - elapsed_ms >= TURN_MS:
                self.is_hurried = True  # the others follow with the next beat
                break
        self._find_idle(now_s)
        self._strangers.look(now_s)
        return None

    def _in_turn(self) -> Iterator[Task]:
        """The running tasks, those first that had to wait last time."""
        tasks = [task for task in self._roster.running() if task.rules.is_timed]
        first = next((at for at, task in enumerate(tasks) if task.id == self._next_task), 0)
        tasks = tasks[first:] + tasks[:first]
        for at, task in enumerate(tasks):
            self._next_task = tasks[(at + 1) % len(tasks)].id
            yield task

    def _find_idle(self, now_s: float) -> None:
        if not self._check.is_due(now_s):
            return
        elapsed_ms = self._clocks.elapsed_ms()
        silent: Silent = {
            partition: (task, source)
            for task in self._roster.running()
            if task.rules.is_timed
            for partition in task.inputs
            if (source := task.clock.sources.get(partition.topic)) is not None
            and source.is_silent(elapsed_ms)
        }
        if silent:
            self._check.begin(self._ask(silent), now_s, ASK_S)

    async def _ask(self, silent: Silent) -> None:
        """Ask the log whether silent partitions hold anything that we have not read, open transactions included."""
        ends = await self._admin.end_offsets(list(silent), committed=False)
        for partition, (task, source) in silent.items():
            is_caught_up = task.positions.get(partition, -1) >= ends[partition]
            if is_caught_up and source.is_silent(self._clocks.elapsed_ms()):
                source.status = Status.IDLE
                log.info("partition is idle: event time does not wait for it", partition=str(partition))

    async def stop(self) -> None:
        """End what is under way."""
        await self._strangers.stop()
        await self._check.stop()
