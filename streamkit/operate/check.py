"""What must be true before a worker of a pipeline can start, looked at one thing after the other. Changes nothing."""

import os
import tempfile
from pathlib import Path

import msgspec

from streamkit.config import Settings
from streamkit.errors import Retry, StreamkitError
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Log
from streamkit.model.finding import Finding, finding_of
from streamkit.operate.foresee import foresee
from streamkit.runtime.outcome import finished
from streamkit.runtime.prepare import Prepared, inspect
from streamkit.runtime.slot import unwritable


class CheckReport(msgspec.Struct, frozen=True):
    """What was looked at, in order. `good` if a worker could start now."""

    target: str
    good: bool
    findings: list[Finding]


def plan_finding(plan: Plan) -> Finding:
    """How large the plan is: that there is one is the first thing a worker needs."""
    stages = len(plan.stages)
    stores = sum(len(stage.stores) for stage in plan.stages)
    detail = f"{stages} stage{'s' if stages != 1 else ''}, {stores} state store{'s' if stores != 1 else ''}"
    return Finding("plan", good=True, detail=detail)


async def check_cluster(plan: Plan, log: Log, settings: Settings, *, anew: str) -> list[Finding]:
    """Topics, committed state and positions, as far as the workers to come must agree with them.

    What a worker would refuse is the error with which it would end. `anew` is what begins a finished pipeline anew.
    """
    findings: list[Finding] = []
    try:
        if await finished(plan, log) is not None:
            detail = f"nothing would be read; to run it anew: {anew}"
            findings.append(Finding(f"pipeline {plan.name} has finished", good=True, detail=detail))
        else:
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


def check_folder(folder: Path) -> Finding:
    """Whether files can be made in the state folder, or in the nearest one above it that exists."""
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
