"""calm: when a worker is at rest, so that what it holds can be compared with what the broker has."""

from streamkit.runtime.loop import WorkerLoop
from streamkit.runtime.pulse import is_at_rest
from streamkit.task.task import Life, Task
from streamkit.testing.memory.groups import Group


def is_calm(loop: WorkerLoop, group: Group) -> bool:
    """Whether a worker has nothing to do and has heard of everything that it did."""
    roster = loop.roster
    if not roster.joined or roster.restoring or roster.assignment.member.generation != group.generation:
        return False
    return all(
        task.life is Life.RUNNING
        and task.announced
        and not task.moved
        and task.span == task.committed_span
        and is_at_rest(task)
        and not waits_for_strangers(task)
        and all(group.positions.get(at) == offset for at, offset in task.committed.items())
        for task in roster.tasks.values()
    )


def waits_for_strangers(task: Task) -> bool:
    """Whether event time waits for channels that no task may have: the cluster is being asked about them."""
    writers = task.rules.writers
    return any(len(found.watermarks) > writers.count(topic) for topic, found in task.clock.channels.items())
