"""worker: the process. Connects, prepares the plan, takes a slot, runs the worker loop, and ends well.

SIGTERM or Ctrl-C: finish the span, commit, leave the group. A second one: exit at once, which is just a crash, and a
crash is always safe.
"""

import asyncio
import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import structlog

from streamkit.config import Settings
from streamkit.errors import Misconfigured
from streamkit.graph.plan import Plan
from streamkit.kafka.log import KafkaLog
from streamkit.runtime.arrive import wait_for_broker
from streamkit.runtime.assemble import assemble
from streamkit.runtime.disk import DiskThread
from streamkit.runtime.growth import run_until_grown
from streamkit.runtime.host import files_for_state, memory_for_state
from streamkit.runtime.loop import WorkerLoop
from streamkit.runtime.outcome import Outcome, finished
from streamkit.runtime.parts import wall_clock_ms
from streamkit.runtime.persist import Storage
from streamkit.runtime.processes import EXIT_TRY_AGAIN, worker_count, worker_number
from streamkit.runtime.slot import require_folder, take_slot
from streamkit.runtime.status import worker_status
from streamkit.runtime.stop_signals import stop_signals, stopped_when, unless_asked
from streamkit.runtime.watch import watching
from streamkit.state.budget import MemoryBudget
from streamkit.state.memory import MemoryStores
from streamkit.state.rocks import RocksStores
from streamkit.state.store import StateStores
from streamkit.telemetry.metrics import LOOPBACK, serve_metrics

log = structlog.get_logger()


# Records are many small objects without cycles; the default of 700 makes the collector a tenth of the work.
GC_THRESHOLDS = (50_000, 20, 100)


class Ending(msgspec.Struct, frozen=True):
    """How a worker of a bounded pipeline found or left it: finished before it began, or now."""

    outcome: Outcome
    was_finished: bool


async def run_worker(plan: Plan, settings: Settings) -> Ending | None:
    """Run one worker of a pipeline, alone in its process: as `work`, until SIGTERM or Ctrl-C."""
    gc.set_threshold(*GC_THRESHOLDS)
    asked = asyncio.Event()
    # From the first moment on: a worker that is told to stop while it starts ends as well as any other.
    with stop_signals(asked.set, lambda: os._exit(130), settings.drain_timeout_s):
        return await work(plan, settings, asked)


async def work(plan: Plan, settings: Settings, asked: asyncio.Event) -> Ending | None:
    """Run one worker of a pipeline until it is `asked` to stop, or until a bounded pipeline has finished.

    Returns:
        What became of a bounded pipeline; None if it has not finished, or never does.

    Raises:
        BrokerUnreachable: no broker answers.
        Misconfigured, Bug: a person must act.
    """
    require_folder(Path(settings.state_dir) / plan.group)  # before a broker is waited for
    cluster = KafkaLog(settings.brokers, settings.security, request_timeout_s=settings.request_timeout_s)
    if not await wait_for_broker(cluster.connect, settings, asked):
        return None
    try:
        before = await finished(plan, cluster)
        if before is not None:
            return Ending(before, was_finished=True)
        while await _live(plan, settings, cluster, asked):
            pass
        after = None if asked.is_set() else await finished(plan, cluster, has_just_run=True)
        return None if after is None else Ending(after, was_finished=False)
    finally:
        await cluster.close()


async def _live(plan: Plan, settings: Settings, cluster: KafkaLog, asked: asyncio.Event) -> bool:
    """One life of the worker; whether it ended to begin another one, because a source has grown."""
    folder = Path(settings.state_dir) / plan.group
    slot = take_slot(folder)
    try:
        storage = open_storage(settings, folder)
        loop = await unless_asked(asked, assemble(plan, settings, cluster, storage, slot))
        if loop is None:
            return False
        log.info(
            "worker started",
            pipeline=plan.name,
            worker=slot.name,
            guarantee=settings.guarantee,
            pid=os.getpid(),
        )
        async with stopped_when(asked, loop.stop):
            with (
                metrics_of(loop, plan.name, settings),
                watching(loop.watch, lambda: os._exit(EXIT_TRY_AGAIN)),
            ):
                is_grown = await run_until_grown(loop, cluster.admin())
        slot.forget_member()
        log.info("worker stopped", pipeline=plan.name, worker=slot.name, commits=loop.committer.commits)
        return is_grown and not asked.is_set()
    finally:
        slot.release()


@contextlib.contextmanager
def metrics_of(loop: WorkerLoop, pipeline: str, settings: Settings) -> Iterator[None]:
    """Serve the worker's metrics, if the settings name a port; the workers of one parent count on from it.

    Raises:
        Misconfigured: the port is taken.
    """
    if settings.metrics_port is None:
        yield
        return
    port = settings.metrics_port + (worker_number() or 0)
    try:
        stop = serve_metrics(lambda: worker_status(loop, pipeline, wall_clock_ms()), port)
    except OSError as error:
        raise Misconfigured(
            f"port {port} cannot be used for metrics", detail=str(error), hint="choose another `metrics_port`"
        ) from error
    log.info("metrics are served", url=f"http://{LOOPBACK}:{port}/metrics")
    try:
        yield
    finally:
        stop()


def open_storage(settings: Settings, folder: Path) -> Storage:
    """The state of this process: stores of the kind that the settings name, a thread for them, and their memory."""
    bytes_max = settings.memory_bytes
    budget = MemoryBudget(memory_for_state(worker_count()) if bytes_max is None else bytes_max)
    log.info("memory for state", mib=budget.total_bytes >> 20)
    stores: StateStores = MemoryStores()
    if settings.store == "rocksdb":
        stores = RocksStores(
            folder / "tasks", budget.block_cache_bytes, budget.write_buffer_bytes, files_for_state()
        )
    return Storage(stores, DiskThread(), budget)
