"""Every metric, in one place. They are made when somebody asks; a record never pays for them.

Names are `streamkit_<noun>_<unit>[_total]`. Served on the loopback address only.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamkit.model.counts import (
    DEAD_LETTERS,
    DOUBTED_SIGNALS,
    FOREIGN_RECORDS,
    LATE_RECORDS,
    OPEN_WINDOWS,
)
from streamkit.telemetry.status import TaskStatus, WorkerStatus

LOOPBACK = "127.0.0.1"
_TASK = ("pipeline", "stage", "partition")

# name of a total -> metric, what it says
_TOTALS = {
    DEAD_LETTERS: ("streamkit_records_set_aside", "Dead letters, and skipped records."),
    DOUBTED_SIGNALS: ("streamkit_doubted_signals", "Watermarks in shuffles that no task can have sent."),
    FOREIGN_RECORDS: ("streamkit_foreign_records", "Records in shuffles that streamkit did not write."),
    LATE_RECORDS: ("streamkit_late_records", "Records that came after their windows had closed."),
}
_LEVELS = {
    OPEN_WINDOWS: ("streamkit_open_windows", "Windows that hold something and have not closed, by key."),
}


class WorkerMetrics(Collector):
    """A worker's status as metrics."""

    def __init__(self, status: Callable[[], WorkerStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """All metrics of this moment."""
        status = self._status()
        commits = CounterMetricFamily("streamkit_commits", "Commits that have landed.", labels=["pipeline"])
        commits.add_metric([status.pipeline], status.commits)
        yield commits
        local = GaugeMetricFamily(
            "streamkit_local_shuffle_partitions",
            "Partitions of shuffles that are handed over in memory.",
            labels=["pipeline"],
        )
        local.add_metric([status.pipeline], status.local_partitions)
        yield local
        blocked = GaugeMetricFamily(
            "streamkit_blocked_partitions",
            "Output partitions whose readers wait for a transaction that does not end.",
            labels=["pipeline"],
        )
        blocked.add_metric([status.pipeline], status.blocked_partitions)
        yield blocked
        tasks = GaugeMetricFamily("streamkit_tasks", "Tasks by their life.", labels=["pipeline", "life"])
        lives = [task.life for task in status.tasks]
        for life in sorted(set(lives)):
            tasks.add_metric([status.pipeline, life], lives.count(life))
        yield tasks
        yield from self._per_task(status)

    def _per_task(self, status: WorkerStatus) -> Iterator[Metric]:
        event_time = GaugeMetricFamily(
            "streamkit_event_time_seconds", "The watermark, in seconds since 1970.", labels=_TASK
        )
        delay = GaugeMetricFamily(
            "streamkit_watermark_delay_seconds", "How far event time is behind the clock.", labels=_TASK
        )
        timers = GaugeMetricFamily(
            "streamkit_timers_near", "Timers in memory: those that come next.", labels=_TASK
        )
        for task in status.tasks:
            labels = _labels(status, task)
            timers.add_metric(labels, task.timers_near)
            if task.event_time_ms is not None and task.delay_ms is not None:
                event_time.add_metric(labels, task.event_time_ms / 1000)
                delay.add_metric(labels, task.delay_ms / 1000)
        yield from (event_time, delay, timers)
        for what, (name, meaning) in _TOTALS.items():
            total = CounterMetricFamily(name, meaning, labels=_TASK)
            for task in status.tasks:
                total.add_metric(_labels(status, task), task.totals.get(what, 0))
            yield total
        for what, (name, meaning) in _LEVELS.items():
            level = GaugeMetricFamily(name, meaning, labels=_TASK)
            for task in status.tasks:
                level.add_metric(_labels(status, task), task.totals.get(what, 0))
            yield level


def serve_metrics(status: Callable[[], WorkerStatus], port: int) -> Callable[[], None]:
    """Answer `GET /metrics` on this port of the loopback address, from a thread; returns what ends it.

    Raises:
        OSError: the port is taken.
    """
    registry = CollectorRegistry()
    registry.register(WorkerMetrics(status))
    server, thread = start_http_server(port, addr=LOOPBACK, registry=registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


def _labels(status: WorkerStatus, task: TaskStatus) -> list[str]:
    return [status.pipeline, task.stage, str(task.partition)]
