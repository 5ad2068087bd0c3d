"""`streamkit watermarks`: how far event time has come, and who holds it back."""

import time
from datetime import UTC, datetime

from cyclopts import App
from rich.console import RenderableType

from streamkit.cli.connect import connected
from streamkit.cli.load import load_pipeline
from streamkit.cli.options import DEFAULT_CLUSTER, Cluster, Output, Target
from streamkit.cli.output import Cell, facts, grid, say, show
from streamkit.operate.time_report import TimeReport, report_time

app = App(
    name="watermarks",
    sort_key=7,
    help_epilogue="""
Examples:

    streamkit watermarks services.page_views.pipeline:page_views
    streamkit watermarks my_module --output json
""",
)


@app.default
async def watermarks(
    target: Target, /, *, cluster: Cluster = DEFAULT_CLUSTER, output: Output = "table"
) -> None:
    """Show for each task how far event time has come, and which input holds it back, and for how long.

    A task waits for the slowest of its active inputs: a partition of a source topic, or a task of the stage before. `root`
    follows that to where it begins. An idle input holds nobody back. `for` is how long the watermark has stood still. What is shown was read from the last commits.
    """
    plan = load_pipeline(target).plan()
    async with connected(cluster.load()) as log:
        report = await report_time(plan, log, int(time.time() * 1000))
    show(report, output, _head(report), "", _tasks(report))
    if not plan.is_timed:
        say(
            "no step of this pipeline asks for event time, and no input ends: there are no watermarks",
            style="dim",
        )
    elif not report.tasks:
        say("nothing was committed yet: is the pipeline running?", style="dim")


def _head(report: TimeReport) -> RenderableType:
    times = [each.event_time_ms for each in report.tasks if each.event_time_ms is not None]
    return facts(("pipeline", report.pipeline), ("event time", _moment(min(times)) if times else None))


def _tasks(report: TimeReport) -> RenderableType:
    rows: list[list[Cell]] = [
        [
            f"{each.stage}/{each.partition}",
            each.status,
            None if each.event_time_ms is None else _moment(each.event_time_ms),
            _duration(each.delay_ms),
            each.held_back_by,
            None if each.root == each.held_back_by else each.root,
            _duration(each.still_for_ms),
        ]
        for each in report.tasks
    ]
    return grid(("task", "status", "event time", "behind the clock", "held back by", "root", "for"), rows)


def _moment(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(time_ms)


def _duration(duration_ms: int | None) -> str | None:
    """Two units at most: what a person would say."""
    if duration_ms is None:
        return None
    seconds = duration_ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left_s = divmod(int(seconds), 60)
    hours, left_min = divmod(minutes, 60)
    days, left_h = divmod(hours, 24)
    if days:
        return f"{days} d {left_h} h"
    return f"{hours} h {left_min} min" if hours else f"{minutes} min {left_s} s"
