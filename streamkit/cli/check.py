"""`streamkit check`: everything that must be true before a pipeline can start, one line each. Changes nothing."""

import os
import tempfile
from pathlib import Path

import msgspec
from cyclopts import App
from rich.text import Text

from streamkit.cli.connect import connected
from streamkit.cli.ending import anew
from streamkit.cli.load import load_pipeline
from streamkit.cli.options import (
    DEFAULT_CLUSTER,
    AllowDroppedState,
    Cluster,
    Guaranteed,
    Output,
    StateDir,
    Target,
)
from streamkit.cli.output import cross, show, verdict
from streamkit.config import Settings
from streamkit.errors import Retry, StreamkitError, render
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Log
from streamkit.runtime.foresee import foresee
from streamkit.runtime.outcome import finished
from streamkit.runtime.prepare import Finding, Prepared, finding_of, inspect
from streamkit.runtime.slot import unwritable


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
    guarantee: Guaranteed = None,
    allow_dropped_state: AllowDroppedState = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    output: Output = "table",
) -> int:
    """Look at everything a worker needs: pipeline, broker, topics, committed state and positions, state folder.

    Changes nothing, and joins no group. Internal topics that are missing are no fault: `streamkit run` creates them, and
    they are listed. What `streamkit run` would refuse is shown as the error with which it would end, also in the middle
    of a deploy, while workers of another version run.

    Exits with 1 if a person must do something first.
    """
    settings = cluster.load(
        state_dir=None if state_dir is None else str(state_dir),
        guarantee=guarantee,
        allow_dropped_state=allow_dropped_state or None,
    )
    findings = await look(target, settings)
    report = CheckReport(target, all(each.good for each in findings), findings)
    show(report, output, *(_line(each) for each in report.findings))
    return 0 if report.good else 1


def _line(finding: Finding) -> Text:
    if finding.good:
        return verdict(good=True, what=finding.what, detail=finding.detail)
    return cross(
        render(finding.code, finding.what, where=finding.where, detail=finding.detail, hint=finding.hint)
    )


async def look(target: str, settings: Settings) -> list[Finding]:
    """Look at one thing after the other; what depends on a failed one is not looked at."""
    findings: list[Finding] = []
    plan = _loads(target, findings)
    findings += await _look_at_cluster(target, plan, settings)
    folder = Path(settings.state_dir)
    findings.append(state_folder(folder if plan is None else folder / plan.name))
    return findings


def state_folder(folder: Path) -> Finding:
    """Whether files can be made in the folder, or in the nearest one above it that exists."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return finding_of(unwritable(folder, error))
    free_gib = os.statvfs(existing).f_bavail * os.statvfs(existing).f_frsize / 2**30
    return Finding(f'state folder "{folder}"', good=True, detail=f"writable, {free_gib:,.0f} GiB free")


async def _look_at_cluster(target: str, plan: Plan | None, settings: Settings) -> list[Finding]:
    findings: list[Finding] = []
    try:
        async with connected(settings) as log:
            findings.append(Finding(f"broker {settings.brokers}", good=True, detail="answers"))
            if plan is not None and await finished(plan, log) is not None:
                detail = f"nothing would be read; to run it anew: {anew(target)}"
                findings.append(Finding(f"pipeline {plan.name} has finished", good=True, detail=detail))
            elif plan is not None:
                prepared = await inspect(plan, log.admin(), settings)
                findings += prepared.findings
                findings += await _look_at_commits(prepared, log, settings) if prepared.is_good else []
    except StreamkitError as error:
        findings.append(finding_of(error))
    return findings


async def _look_at_commits(prepared: Prepared, log: Log, settings: Settings) -> list[Finding]:
    """What was committed by the workers before, as far as those to come must agree with it."""
    what = "committed state and positions"
    try:
        refusals = await foresee(prepared, log, settings)
    except Retry as error:
        detail = f"not compared, {error.problem}: `streamkit run` would end a transaction that nobody ends"
        return [Finding(what, good=True, detail=detail)]
    return [finding_of(error) for error in refusals] or [Finding(what, good=True, detail="fit")]


def _loads(target: str, findings: list[Finding]) -> Plan | None:
    """The plan, if the module loads and the pipeline has one; says so either way."""
    try:
        pipeline = load_pipeline(target)
        detail = f"loads, its name is {pipeline.name}"
        findings.append(Finding(f'pipeline "{target}"', good=True, detail=detail))
        plan = pipeline.plan()
    except StreamkitError as error:
        findings.append(finding_of(error))
        return None
    stages = len(plan.stages)
    stores = sum(len(stage.stores) for stage in plan.stages)
    detail = f"{stages} stage{'s' if stages != 1 else ''}, {stores} state store{'s' if stores != 1 else ''}"
    findings.append(Finding("plan", good=True, detail=detail))
    return plan
