"""assemble: a worker loop from a plan, a log, a disk and a name. The worker, the harness and the simulation all do it here."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from streamkit.config import Settings
from streamkit.graph.fingerprint import fingerprint
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Log, MemberOptions, WriterOptions
from streamkit.model.commit import Guarantee
from streamkit.runtime.assign import stages_of
from streamkit.runtime.early import require_welcome
from streamkit.runtime.loop import WorkerLoop
from streamkit.runtime.parts import Parts, wall_clock_ms
from streamkit.runtime.persist import Storage
from streamkit.runtime.prepare import Prepared, prepare
from streamkit.runtime.retries import Backoff, retried
from streamkit.runtime.stuck_records import Notebook, StuckRecords
from streamkit.runtime.writer_names import Memory, WriterNames


class WorkerIdentity(Memory, Notebook, Protocol):
    """Who a worker is, over restarts, and what it has written down; `runtime/slot.py` keeps it on disk."""

    @property
    def life_name(self) -> str:
        """The name of this life of the worker: no other life, of this worker or of another, ever had or will have it."""
        ...

    def former_member(self) -> str | None:
        """The group member id of a former holder of this name that is surely dead."""
        ...

    def remember_member(self, member_id: str) -> None:
        """Keep our member id for whoever has this name after us."""
        ...


async def make_ready(plan: Plan, settings: Settings, log: Log) -> Prepared:
    """Prepare the cluster for the plan; again, later each time, while what is in the way may pass: a broker may be busy.

    Raises:
        Misconfigured: a person must change something first.
    """
    welcome = partial(require_welcome, log_=log, settings=settings)
    prepared = partial(prepare, plan, log.admin(), settings, welcome)
    return await retried("preparing the cluster", Backoff(settings), prepared)


async def assemble(
    plan: Plan,
    settings: Settings,
    log: Log,
    storage: Storage,
    identity: WorkerIdentity,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> WorkerLoop:
    """Prepare the cluster for the plan and put a worker loop together.

    Raises:
        Misconfigured: a topic is missing or has another shape than the pipeline needs.
    """
    prepared = await make_ready(plan, settings, log)
    life = f"{plan.group}.{identity.life_name}"
    writer = WriterOptions(
        writer_id=life,
        guarantee=Guarantee(settings.guarantee),
        transaction_timeout_s=settings.transaction_timeout_s,
        request_timeout_s=settings.request_timeout_s,
    )
    member = MemberOptions(
        group=plan.group,
        writer_id=life,
        stages=stages_of(prepared.plan),
        session_timeout_s=settings.session_timeout_s,
        rebalance_timeout_s=settings.rebalance_timeout_s,
        remembered=identity.former_member(),
        topics=tuple(sorted({each.topic for stage in plan.stages for each in stage.inputs})),
        on_member_id=identity.remember_member,
        plan=fingerprint(prepared.plan),
    )
    return WorkerLoop(
        Parts(
            plan=prepared.plan,
            log=log,
            writer=log.writer(writer),
            names=WriterNames(life, identity),
            membership=log.membership(member),
            storage=storage,
            settings=settings,
            partition_counts=prepared.partition_counts,
            limits=prepared.limits,
            now_ms=now_ms,
            losses=StuckRecords(identity, plan.on_error, now_ms),
        )
    )
