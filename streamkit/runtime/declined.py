"""declined: tasks that a worker leaves to others, because their state is of a version of the pipeline that it would lose.

Versions live side by side while a deploy goes through the workers. A task that a worker of the new version has run may
come to one of the old version, when the new one dies: the old one leaves it alone, tells the group, and goes on with its
other tasks. Somebody must come who can run it; if nobody does, a person must hear of it.

    a worker that runs tasks, or whose version others run    declines, and waits
    any other                                                is itself the one that does not fit: it ends at once

A worker that comes where nobody is at work ends at once too, also if it has begun to run tasks that fit: until it has
restored all that it came for, it is not one that runs.
"""

from collections.abc import Container, Iterable

import structlog

from streamkit.errors import IncompatiblePlan
from streamkit.model.ids import TaskId

log = structlog.get_logger()

# A deploy that fails is taken back, or helped on, within this time. Until then the tasks of this worker go on.
STRANDED_S = 300.0
# A worker with nothing to do has nothing to lose by ending; a worker that was killed is back within this time.
STRANDED_IDLE_S = 30.0
STRANDED_HINT = (
    "start a worker of the version that ran them last; or stop all workers, and start them with --allow-dropped-state,\n"
    "which gives up for good what this version does not have"
)


def is_newcomer(plan: str, plans: Container[str]) -> bool:
    """Whether nobody at work runs our plan: if state does not fit it, it is ours that is wrong."""
    return plan not in plans


class Declined:
    """What this worker has declined, and since when nobody else has taken it."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, IncompatiblePlan] = {}
        # False while the group does not know of all of them.
        self.is_told = True
        self._stranded: list[TaskId] = []
        self._since_s = 0.0

    def add(self, task: TaskId, error: IncompatiblePlan) -> None:
        """Leave a task to others."""
        if task not in self.tasks:
            self.is_told = False
            log.warning("a task is left to workers of another version", task=str(task), why=error.detail)
        self.tasks[task] = error

    def heard(self, stranded: Iterable[TaskId], now_s: float) -> None:
        """A round is over, and these tasks have nobody who can run them."""
        self.is_told = True
        before, self._stranded = self._stranded, sorted(task for task in stranded if task in self.tasks)
        if self._stranded and not before:
            self._since_s = now_s
            log.error(
                "no worker can run these tasks: they wait for one of the version that ran them last",
                tasks=[str(task) for task in self._stranded],
                at_most_s=STRANDED_S,
                hint=" ".join(STRANDED_HINT.split()),
            )

    def require_runner(self, now_s: float, *, is_working: bool) -> None:
        """Give up the hope that somebody comes who can run what we cannot.

        Raises:
            IncompatiblePlan: nobody has come for too long.
        """
        if self._stranded and now_s - self._since_s > (STRANDED_S if is_working else STRANDED_IDLE_S):
            raise self.tasks[self._stranded[0]]
