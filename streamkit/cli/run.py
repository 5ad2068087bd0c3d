"""`streamkit run`: the workers of a pipeline, one in this process or several under it."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import structlog
import uvloop
from cyclopts import App, Parameter
from cyclopts.validators import Number

from streamkit.cli.connect import connected
from streamkit.cli.ending import tell_end
from streamkit.cli.load import load_pipeline
from streamkit.cli.options import DEFAULT_CLUSTER, AllowDroppedState, Cluster, Guaranteed, StateDir, Target
from streamkit.cli.output import OutputFormat, say_error
from streamkit.config import Settings
from streamkit.errors import Misconfigured, StreamkitError
from streamkit.graph.plan import Plan
from streamkit.kafka.log import KafkaLog
from streamkit.model.broker_address import PORT_MAX
from streamkit.runtime.arrive import wait_for_broker
from streamkit.runtime.assemble import make_ready
from streamkit.runtime.cautions import log_cautions
from streamkit.runtime.outcome import Outcome, finished, is_bounded
from streamkit.runtime.processes import Processes, end_with_parent, exit_code, worker_number
from streamkit.runtime.slot import take_slot
from streamkit.runtime.worker import Ending, run_worker
from streamkit.telemetry.logs import configure_logs

log = structlog.get_logger()

# More on one host than anybody has cores for: a typing error, not a wish.
WORKERS_MAX = 256


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Running:
    """How a worker runs; the rest of the settings is in the file or the environment."""

    state_dir: StateDir = None
    guarantee: Guaranteed = None
    commit_interval: Annotated[
        float | None,
        Parameter(
            metavar="SECONDS",
            show_default=lambda _: Settings().commit_interval_s,
            help="Longest time between two commits. `[env var: STREAMKIT_COMMIT_INTERVAL_S]`",
        ),
    ] = None
    metrics_port: Annotated[
        int | None,
        Parameter(
            metavar="PORT",
            help="Serve Prometheus metrics at this port of 127.0.0.1; with several workers each takes the next one. "
            "`[env var: STREAMKIT_METRICS_PORT]`",
        ),
    ] = None
    allow_dropped_state: AllowDroppedState = False

    def load(self, cluster: Cluster) -> Settings:
        """The settings of this worker."""
        return cluster.load(
            allow_dropped_state=self.allow_dropped_state or None,
            state_dir=None if self.state_dir is None else str(self.state_dir),
            guarantee=self.guarantee,
            commit_interval_s=self.commit_interval,
            metrics_port=self.metrics_port,
        )


DEFAULT_RUNNING = Running()


app = App(
    name="run",
    sort_key=1,
    help_epilogue="""
Examples:

    streamkit run services.page_views.pipeline:page_views
    streamkit run services.page_views.pipeline:page_views --workers 4 --brokers kafka:9092
    STREAMKIT_LOGS=quiet streamkit run my_module --settings production.toml
""",
)


@app.default
def run(
    target: Target,
    /,
    *,
    workers: Annotated[
        int,
        Parameter(
            env_var="STREAMKIT_WORKERS",
            validator=Number(gte=1, lte=WORKERS_MAX),
            help="Worker processes on this host; more than one are kept running by a parent.",
        ),
    ] = 1,
    running: Running = DEFAULT_RUNNING,
    cluster: Cluster = DEFAULT_CLUSTER,
    output: Annotated[
        OutputFormat, Parameter(name=["--output", "-o"], help="`json` makes every log line JSON.")
    ] = "table",
) -> int:
    """Run a pipeline until Ctrl-C or SIGTERM.

    The first one finishes the open span, commits it and leaves the group; the second one ends at once, which is safe
    too. Start it on several hosts, or with `--workers`, and the tasks are shared among all of them.
    """
    if output == "json":
        configure_logs("json")
    settings = running.load(cluster)
    _require_ports(settings, workers)
    number = worker_number()
    if number is not None:
        return _run_child(target, settings, number)
    plan = load_pipeline(target).plan()
    if workers > 1:
        before = asyncio.run(_make_ready(plan, settings))
        if before is not None:
            return tell_end(plan, target, Ending(before, was_finished=True), output)
    log.info("pipeline loaded", pipeline=plan.name, source=target, stages=len(plan.stages))
    log_cautions(plan)
    log.info("settings", brokers=settings.brokers, guarantee=settings.guarantee, state=settings.state_dir)
    log.info("press Ctrl-C to commit and quit", workers=workers)
    if workers == 1:
        ending = _run_here(plan, settings)
        return 0 if ending is None else tell_end(plan, target, ending, output)
    command = _child_command(target, running, cluster, output)
    return asyncio.run(_run_children(plan, target, Processes(command, workers, settings), settings, output))


def _require_ports(settings: Settings, workers: int) -> None:
    """Each worker takes the next port: the last one needs one, too."""
    if settings.metrics_port is not None and settings.metrics_port + workers - 1 > PORT_MAX:
        raise Misconfigured(
            f"metrics_port is {settings.metrics_port}, and {workers} workers take the ports from there on",
            detail=f"the last port is {PORT_MAX}",
            hint=f"let it be {PORT_MAX + 1 - workers} at most, or run fewer workers",
        )


def _run_here(plan: Plan, settings: Settings) -> Ending | None:
    try:
        return uvloop.run(run_worker(plan, settings))
    except StreamkitError:
        raise
    except Exception:
        # Nobody expected it: the log must say where it came from.
        log.exception("worker failed", pipeline=plan.name)
        raise


def _run_child(target: str, settings: Settings, number: int) -> int:
    """A worker under a parent: ends with it, and tells by its exit code whether to start it again."""
    end_with_parent(settings.drain_timeout_s)
    structlog.contextvars.bind_contextvars(process=number)
    try:
        _run_here(load_pipeline(target).plan(), settings)
    except StreamkitError as error:
        say_error(error, debug=False)
        return exit_code(error)
    return 0


async def _make_ready(plan: Plan, settings: Settings) -> Outcome | None:
    """Fail once, here, for what would make every worker fail; create once what every worker would.

    Returns what became of a bounded pipeline that has finished already.
    """
    take_slot(Path(settings.state_dir) / plan.group).release()
    cluster = KafkaLog(settings.brokers, settings.security, request_timeout_s=settings.request_timeout_s)
    try:
        await wait_for_broker(cluster.connect, settings)
        await make_ready(plan, settings, cluster)
        return await finished(plan, cluster)
    finally:
        await cluster.close()


async def _run_children(
    plan: Plan, target: str, processes: Processes, settings: Settings, output: OutputFormat
) -> int:
    """Several workers; the end of a bounded pipeline is told once, for all of them."""
    code = await processes.run()
    if code or processes.was_stopped or not is_bounded(plan):
        return code
    async with connected(settings) as cluster:
        outcome = await finished(plan, cluster, has_just_run=True)
    return 0 if outcome is None else tell_end(plan, target, Ending(outcome, was_finished=False), output)


def _child_command(target: str, running: Running, cluster: Cluster, output: OutputFormat) -> list[str]:
    given = {
        "--brokers": cluster.brokers,
        "--settings": cluster.settings,
        "--state-dir": running.state_dir,
        "--guarantee": running.guarantee,
        "--commit-interval": running.commit_interval,
        "--metrics-port": running.metrics_port,
        "--output": output,
    }
    flags = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    flags += ["--allow-dropped-state"] if running.allow_dropped_state else []
    return [sys.executable, "-m", "streamkit.cli.main", "run", target, *flags, "--workers", "1"]
