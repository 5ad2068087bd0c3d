"""worker: the process. Connects, prepares the plan, takes a slot, runs the agent, and ends well.

SIGTERM or Ctrl-C: finish the span, commit, leave the group. A second one: exit at once, which is just a crash, and a
crash is always safe.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import structlog

from streamkit.config import Settings
from streamkit.errors import StreamkitError
from streamkit.graph.plan import Plan
from streamkit.kafka.log import KafkaLog
from streamkit.kafka.ports import Guarantee, Log, MemberOptions, StageTasks, WriterOptions
from streamkit.runtime.agent import Agent, Parts
from streamkit.runtime.prepare import prepare
from streamkit.runtime.slot import Slot, take_slot
from streamkit.state.memory import MemoryStores
from streamkit.state.rocks import RocksStores
from streamkit.state.store import StateStores

log = structlog.get_logger()


async def run_worker(plan: Plan, settings: Settings) -> None:
    """Run one worker of a pipeline until it is told to stop.

    Raises:
        BrokerUnreachable: no broker answers.
        Misconfigured, Bug: a person must act.
    """
    cluster = KafkaLog(settings.brokers, settings.security, request_timeout_s=settings.request_timeout_s)
    await cluster.connect()
    folder = Path(settings.state_dir) / plan.name
    slot = take_slot(folder)
    try:
        stores = open_stores(settings, folder)
        agent = await make_agent(plan, settings, cluster, stores, slot)
        with _until_signal(agent.stop):
            log.info("worker started", pipeline=plan.name, worker=slot.name, guarantee=settings.guarantee)
            await agent.run()
        slot.forget_member()
        stores.close()
        log.info("worker stopped", pipeline=plan.name, worker=slot.name, commits=agent.commits)
    finally:
        slot.release()
        await cluster.close()


async def make_agent(plan: Plan, settings: Settings, cluster: Log, stores: StateStores, slot: Slot) -> Agent:
    """Prepare the cluster and put an agent together."""
    prepared = await prepare(plan, cluster.admin(), settings.replication)
    writer_id = f"{plan.name}.{slot.name}"
    options = WriterOptions(
        writer_id=writer_id,
        guarantee=Guarantee(settings.guarantee),
        transaction_timeout_s=settings.transaction_timeout_s,
        request_timeout_s=settings.request_timeout_s,
    )
    member = MemberOptions(
        group=plan.name,
        writer_id=writer_id,
        stages=tuple(StageTasks(stage.name, stage.partitions or 0) for stage in prepared.plan.stages),
        session_timeout_s=settings.session_timeout_s,
        rebalance_timeout_s=settings.rebalance_timeout_s,
        remembered=slot.former_member(),
    )
    parts = Parts(
        plan=prepared.plan,
        fingerprint=prepared.fingerprint,
        log=cluster,
        writer=cluster.writer(options),
        membership=cluster.membership(member),
        stores=stores,
        settings=settings,
        partition_counts=prepared.partition_counts,
        on_joined=slot.remember_member,
    )
    return Agent(parts)


def open_stores(settings: Settings, folder: Path) -> StateStores:
    """The state stores of this process, of the kind that the settings name."""
    if settings.store == "memory":
        return MemoryStores()
    return RocksStores(folder / "tasks", settings.state_cache_bytes, settings.state_write_buffer_bytes)


@contextlib.contextmanager
def _until_signal(stop: Callable[[], None]) -> "contextlib.Iterator[None]":
    """Call `stop` at the first SIGTERM or SIGINT; the second one ends the process on the spot."""
    loop = asyncio.get_running_loop()
    seen = 0

    def on_signal(name: str) -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            os._exit(130)
        log.info("stopping: the open span is committed first", signal=name)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number.name)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def describe_failure(error: BaseException) -> str:
    """What to print when a worker ends with an error."""
    return error.render() if isinstance(error, StreamkitError) else repr(error)
