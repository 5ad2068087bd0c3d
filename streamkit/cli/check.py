"""`streamkit check`: everything that must be true before a pipeline can start, one line each. Changes nothing."""

import os
import tempfile
from pathlib import Path

import msgspec
from cyclopts import App

from streamkit.cli.connect import connected
from streamkit.cli.load import load_pipeline
from streamkit.cli.options import DEFAULT_CLUSTER, Cluster, Output, StateDir, Target
from streamkit.cli.output import show, verdict
from streamkit.config import Settings
from streamkit.errors import StreamkitError
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Admin
from streamkit.runtime.prepare import Finding, inspect


class CheckReport(msgspec.Struct, frozen=True):
    """What was looked at, in order. `good` if a worker could start now."""

    target: str
    good: bool
    findings: list[Finding]


app = App(
    name="check",
    sort_key=3,
    help_epilogue="""
Examples:

    streamkit check services.page_views.pipeline:page_views
    streamkit check my_module --output json | jq '.findings[] | select(.good | not)'
""",
)


@app.default
async def check(
    target: Target,
    /,
    *,
    state_dir: StateDir = None,
    cluster: Cluster = DEFAULT_CLUSTER,
    output: Output = "table",
) -> int:
    """Look at everything a worker needs: the pipeline, the broker, each topic, the state folder.

    Changes nothing. Internal topics that are missing are no fault: `streamkit run` creates them, and they are listed.
    Exits with 1 if a person must do something first.
    """
    findings = await look(target, cluster.load(state_dir=state_dir and str(state_dir)))
    report = CheckReport(target, all(each.good for each in findings), findings)
    lines = [
        verdict(good=each.good, what=each.what, detail=each.detail, hint=each.hint)
        for each in report.findings
    ]
    show(report, output, *lines)
    return 0 if report.good else 1


async def look(target: str, settings: Settings) -> list[Finding]:
    """Look at one thing after the other; what depends on a failed one is not looked at."""
    findings: list[Finding] = []
    plan = _loads(target, findings)
    findings += await _look_at_cluster(plan, settings)
    findings.append(state_folder(Path(settings.state_dir)))
    return findings


async def look_at_topics(plan: Plan, admin: Admin, settings: Settings) -> list[Finding]:
    """Each topic that the plan reads or writes, then what `run` would create."""
    return list((await inspect(plan, admin, settings)).findings)


def state_folder(folder: Path) -> Finding:
    """Whether files can be made in the folder, or in the nearest one above it that exists."""
    what = f'state folder "{folder}"'
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return Finding(
            f"{what} cannot be written to",
            good=False,
            detail=error.strerror or str(error),
            hint="set --state-dir or STREAMKIT_STATE_DIR to a folder of this user",
        )
    free_gib = os.statvfs(existing).f_bavail * os.statvfs(existing).f_frsize / 2**30
    return Finding(what, good=True, detail=f"writable, {free_gib:,.0f} GiB free")


async def _look_at_cluster(plan: Plan | None, settings: Settings) -> list[Finding]:
    what = f"broker {settings.brokers}"
    try:
        async with connected(settings) as log:
            answered = Finding(what, good=True, detail="answers")
            return [answered, *(await look_at_topics(plan, log.admin(), settings) if plan else [])]
    except StreamkitError as error:
        return [_bad(what, error)]


def _loads(target: str, findings: list[Finding]) -> Plan | None:
    """The plan, if the module loads and the pipeline has one; says so either way."""
    what = f'pipeline "{target}"'
    try:
        pipeline = load_pipeline(target)
        findings.append(Finding(what, good=True, detail=f"loads, its name is {pipeline.name}"))
        what = "plan"
        plan = pipeline.plan()
    except StreamkitError as error:
        findings.append(_bad(what, error))
        return None
    stages = len(plan.stages)
    stores = sum(len(stage.stores) for stage in plan.stages)
    detail = f"{stages} stage{'s' if stages != 1 else ''}, {stores} state store{'s' if stores != 1 else ''}"
    findings.append(Finding(what, good=True, detail=detail))
    return plan


def _bad(what: str, error: StreamkitError) -> Finding:
    detail = "\n".join(each for each in (error.problem, error.where, error.detail) if each)
    return Finding(what, good=False, detail=detail, hint=error.hint)
