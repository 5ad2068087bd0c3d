"""`streamkit check`: everything that must be true before a pipeline can start, one line each. Changes nothing."""

from pathlib import Path

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
from streamkit.cli.output import caution, cross, show, verdict
from streamkit.config import Settings
from streamkit.errors import StreamkitError
from streamkit.graph.plan import Plan
from streamkit.graph.unread import unread_sides
from streamkit.model.finding import Finding, finding_of
from streamkit.operate.check import CheckReport, check_cluster, check_folder, plan_finding

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
    if finding.warns:
        return caution(finding.what)
    if finding.good:
        return verdict(good=True, what=finding.what, detail=finding.detail)
    return cross(finding.render())


async def look(target: str, settings: Settings) -> list[Finding]:
    """Look at one thing after the other; what depends on a failed one is not looked at."""
    findings: list[Finding] = []
    plan = _loads(target, findings)
    findings += await _look_at_cluster(target, plan, settings)
    folder = Path(settings.state_dir)
    findings.append(check_folder(folder if plan is None else folder / plan.group))
    return findings


async def _look_at_cluster(target: str, plan: Plan | None, settings: Settings) -> list[Finding]:
    findings: list[Finding] = []
    try:
        async with connected(settings) as log:
            findings.append(Finding(f"broker {settings.brokers}", good=True, detail="answers"))
            if plan is not None:
                findings += await check_cluster(plan, log, settings, anew=anew(target))
    except StreamkitError as error:
        findings.append(finding_of(error))
    return findings


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
    findings.append(plan_finding(plan))
    findings += [Finding(each, good=True, warns=True) for each in unread_sides(plan)]
    return plan
