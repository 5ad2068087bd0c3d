"""damage: state that cannot be read, and who mends it.

    first   it may be the disk: the task's local state is discarded, and restored whole from its changelog
    again   the same, after longer pauses
    then    a person must look: the changelog holds it, or the disk damages whatever it is given

Counted by task and by the day: what happens to a healed disk months later is another story. Whether the task came forward in
between is not asked, because others of its records do while one cannot be run.
"""

import asyncio
from collections.abc import Iterable
from types import FrameType

import structlog

from streamkit.errors import Misconfigured, StateCorrupt
from streamkit.model.ids import TaskId
from streamkit.runtime.lost_state import BEGIN_ANEW
from streamkit.state.task_state import TaskState
from streamkit.task.chain import failing_step
from streamkit.task.ingest import Intake
from streamkit.task.task import Life, Task

log = structlog.get_logger()

# The first may be chance, the second was a fresh store already; the third is for a disk that has a bad day.
DAMAGES_MAX = 3
# Damages that lie further apart have nothing to do with each other.
DAMAGES_S = 24 * 3600.0


class StateDamaged(Misconfigured):
    """State cannot be read although it was restored from its changelog more than once."""

    code = "SK570"


class SlowRestore(StateCorrupt):
    """A restore took so long that the changelog may have forgotten deletions meanwhile: begin anew with an empty store."""

    code = "SK330"

    def __init__(self, took_s: int) -> None:
        super().__init__(
            f"restoring took {took_s} s, longer than the changelog is sure to keep what was deleted in it",
            hint="the worker stood still, or its disk is too slow for its state: look at both, then start it again",
        )


class Damages:
    """Counts how often the state of each task could not be read while it ran."""

    def __init__(self) -> None:
        self._found: dict[TaskId | None, list[float]] = {}
        # Those whose local state must not be used when they are restored next.
        self._distrusted: set[TaskId] = set()

    def take(self, task: TaskId) -> bool:
        """Whether the local state of a task that is being restored must be discarded; asked once, by who discards it.

        Not before: if the changelog is gone, what is left on the disk is the only copy, and stays.
        """
        is_distrusted = task in self._distrusted
        self._distrusted.discard(task)
        return is_distrusted

    def found(self, error: StateCorrupt, tasks: Iterable[Task]) -> None:
        """The state of one of these tasks could not be read: whoever restores it next begins without its local state.

        Raises:
            StateDamaged: that has not helped.
        """
        task = task_in_hand(error, tasks)
        which = None if task is None else task.id
        now_s = asyncio.get_running_loop().time()
        times = [at for at in self._found.get(which, []) if now_s - at < DAMAGES_S]
        if len(times) >= DAMAGES_MAX:
            raise for_good(error, task) from error
        self._found[which] = [*times, now_s]
        if which is not None:
            self._distrusted.add(which)
        log.warning(
            "state cannot be read: restoring all of it from the changelog",
            task=str(which),
            step=failing_step(error),
            error=str(error),
            times=len(times) + 1,
        )


def for_good(error: StateCorrupt, task: Task | None) -> StateDamaged:
    """What a person is told when restoring has not helped."""
    changelog = "the changelog" if task is None else str(task.changelog)
    cure = (
        "the disk of this host does not keep what it is given (state_dir names another one), or something else than\n"
        f"streamkit has written to {changelog} (see its ACLs). If it stays:\n{BEGIN_ANEW}"
    )
    places = [f"task {task.id}" if task else "", error.where]
    return StateDamaged(
        error.problem,
        where=", ".join(place for place in places if place),
        detail=f"{error.detail}\nrestored from {changelog} {DAMAGES_MAX} times, and found again".lstrip(),
        hint=error.hint if isinstance(error, SlowRestore) else cure,
    )


def task_in_hand(error: BaseException, tasks: Iterable[Task]) -> Task | None:
    """The task that was at work when this was raised, read off the frames that it came through."""
    found: Task | None = None
    by_state = {id(task.state): task for task in tasks if task.life in (Life.RUNNING, Life.WAITING)}
    trace = error.__traceback__
    while trace is not None:
        found = _task_of(trace.tb_frame, by_state) or found
        trace = trace.tb_next
    return found


def _task_of(frame: FrameType, by_state: dict[int, Task]) -> Task | None:
    for name in ("self", "task", "state"):
        match frame.f_locals.get(name):
            case Task() as task:
                return task
            case Intake() as intake:
                return intake.task
            case TaskState() as state:
                return by_state.get(id(state))
            case _:
                pass
    return None
