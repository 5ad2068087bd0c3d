"""The status of a worker, for metrics and for people. Asked for from other threads, so it only reads."""

from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.runtime.loop import WorkerLoop
from streamkit.task.task import Life, Task
from streamkit.telemetry.status import TaskStatus, WorkerStatus


def worker_status(loop: WorkerLoop, pipeline: str, now_ms: int) -> WorkerStatus:
    """What there is to say about a worker at this moment."""
    return WorkerStatus(
        pipeline=pipeline,
        commits=loop.committer.commits,
        local_partitions=loop.local.partitions,
        blocked_partitions=loop.blocked.count,
        tasks=[_task_status(task, now_ms) for task in list(loop.roster.tasks.values())],
    )


def _task_status(task: Task, now_ms: int) -> TaskStatus:
    committed = task.committed_clock
    is_known = committed.fired not in (MIN_TIME, MAX_TIME)
    return TaskStatus(
        stage=task.id.stage,
        partition=task.id.partition,
        life=task.life.value,
        event_time_ms=committed.fired if is_known else None,
        delay_ms=max(0, now_ms - committed.fired) if is_known else None,
        timers_near=task.clock.timers_near() if task.life is Life.RUNNING else 0,
        totals=dict(committed.counts),
    )
