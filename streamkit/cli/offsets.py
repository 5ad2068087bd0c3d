"""`streamkit offsets`: where a pipeline stands, and where it begins."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import RenderableType

from streamkit.cli.connect import connected
from streamkit.cli.load import load_pipeline
from streamkit.cli.options import DEFAULT_CLUSTER, Cluster, Output, Target
from streamkit.cli.output import Cell, facts, grid, say, show
from streamkit.errors import Misuse
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Log
from streamkit.operate.offsets_apply import apply_reset
from streamkit.operate.offsets_gap import plan_gap
from streamkit.operate.offsets_plan import (
    COMMITTED,
    ResetPlan,
    plan_anew,
    plan_repair,
    plan_reset,
    require_no_state,
    require_sense,
    require_stopped,
)
from streamkit.operate.offsets_report import OffsetsReport, report_offsets
from streamkit.runtime.declined import STRANDED_HINT
from streamkit.runtime.prepare import no_topic

app = App(
    name="offsets",
    sort_key=6,
    help="Where a pipeline stands in its topics, and where it begins.",
    help_epilogue="",
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ResetTarget:
    """Where a pipeline is to go on."""

    to: Annotated[
        str | None,
        Parameter(
            metavar="PLACE",
            help="`earliest`, `latest`, an offset, a time such as `2026-01-31T08:00:00Z` (UTC unless it says so), or "
            "`committed`: where the stored state says.",
        ),
    ] = None
    accept_gap: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Go on behind records that were deleted unread, with the state as it is.",
        ),
    ] = False
    drop_state: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Begin anew: delete the state and what lies in shuffles, too. Cannot be undone.",
        ),
    ] = False
    topic: Annotated[str | None, Parameter(help="Only this source topic; all of them by default.")] = None


NO_PLACE = ResetTarget()


@app.command(name="show")
async def show_offsets(
    target: Target, /, *, cluster: Cluster = DEFAULT_CLUSTER, output: Output = "table"
) -> None:
    """Show position, end and lag of every input partition, stage by stage.

    A position of `-` means that nothing was committed yet; its lag is the whole topic. Shuffles are counted like any
    input, so lag tells which stage is behind. Exits with 1 if a topic that the pipeline reads does not exist.
    """
    plan = load_pipeline(target).plan()
    async with connected(cluster.load()) as log:
        report = await report_offsets(plan, log.admin())
        there = await log.admin().list_topics() if report.missing else []
    rows: list[list[Cell]] = []
    for stage in report.stages:
        rows += [
            [stage.stage, each.topic, each.partition, each.position, each.end_offset, each.lag_records]
            for each in stage.inputs
        ]
    headers = ("stage", "topic", "partition", "position", "end", "lag")
    show(report, output, _head(report), "", grid(headers, rows), "", _totals(report))
    if report.stranded:
        say(f"no worker can run these tasks: {', '.join(report.stranded)}", style="yellow")
        say(f"hint: {' '.join(STRANDED_HINT.split())}", style="yellow")
    if report.missing:
        raise no_topic(report.missing[0], there)


@app.command(
    help_epilogue="""
Examples:

    streamkit offsets reset services.page_views.pipeline:page_views --to latest
    streamkit offsets reset my_module --to 2026-01-31T08:00:00+01:00 --topic page-views --execute
    streamkit offsets reset my_module --to committed --execute
    streamkit offsets reset my_module --accept-gap
    streamkit offsets reset my_module --to earliest --drop-state --execute
"""
)
async def reset(
    target: Target,
    /,
    *,
    place: ResetTarget = NO_PLACE,
    execute: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Set the positions; without it the plan is shown."),
    ] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    output: Output = "table",
) -> None:
    """Choose where a pipeline begins to read, before its first start.

    Refused once the pipeline has committed state: its state was built from the records before its positions, and moving
    one without the other would count records twice or not at all. Refused while its workers run. The positions of a
    pipeline that keeps no state may be set at any time; records are then read again, or left out, as you say.

    `--to committed` is for afterwards, when somebody moved the group's positions or the cluster lost some of them: it
    sets them to those that were committed with the state, so it is always safe.

    `--accept-gap` is for the day when retention, or somebody, has deleted records that were not read yet. Those are lost, and
    counted in the plan; the positions of the group and those in the stored state then go on together, behind the gap.

    `--drop-state` begins a pipeline anew under its name: its shuffles and changelogs are emptied and its sources read from
    PLACE on, so results come again. It is the way out when the cluster has lost state, or when the number of
    partitions has changed.
    """
    _require_one_place(place)
    plan = load_pipeline(target).plan()
    require_sense(plan, place.to, place.topic)
    settings = cluster.load()
    async with connected(settings) as log:
        await require_stopped(plan, log.admin())
        planned = await _plan(plan, log, place)
        if execute:
            planned = await apply_reset(plan, log, planned, settings.replication)
    show(planned, output, *_drops(planned), _moves(planned))
    if lost := sum(each.lost_records for each in planned.moves):
        say(f"{lost:,} offsets hold records that were never read, and are gone", style="yellow")
    if execute:
        say(f"{len(planned.moves)} positions of group {planned.group} are set", style="green")
    else:
        say("nothing was changed; add --execute to set these positions", style="dim")


def _require_one_place(place: ResetTarget) -> None:
    if place.accept_gap and place.to is not None:
        raise Misuse(
            f"`--to {place.to}` and `--accept-gap` name two places",
            hint="leave one of them out: --accept-gap goes on behind what was deleted, --to PLACE where it says",
        )
    if place.to is None and not place.accept_gap:
        choice = "--to PLACE" if place.drop_state else "either --to PLACE or --accept-gap"
        raise Misuse("no place is given to go on from", hint=f"add {choice}, for example --to earliest")


async def _plan(plan: Plan, log: Log, place: ResetTarget) -> ResetPlan:
    to, topic, admin = place.to, place.topic, log.admin()
    if place.drop_state:
        if to is None or to == COMMITTED or topic is not None:
            raise Misuse(
                "`--drop-state` begins every source anew",
                hint="leave --topic and --accept-gap out, and choose earliest, latest or a time with --to",
            )
        return await plan_anew(plan, admin, to)
    if to is None or to == COMMITTED:
        if topic is not None:
            raise Misuse(
                f"`{'--accept-gap' if to is None else '--to committed'}` is about every input",
                hint="leave --topic out: positions belong together",
            )
        return await (plan_gap(plan, log) if to is None else plan_repair(plan, log))
    await require_no_state(plan, admin)
    return await plan_reset(plan, admin, to, topic)


def _head(report: OffsetsReport) -> RenderableType:
    return facts(
        ("pipeline", report.pipeline),
        ("workers", str(report.members)),
        ("lag", "unknown" if report.lag_records is None else f"{report.lag_records:,} records"),
    )


def _totals(report: OffsetsReport) -> RenderableType:
    rows: list[list[Cell]] = [[stage.stage, len(stage.inputs), stage.lag_records] for stage in report.stages]
    return grid(("stage", "partitions", "lag"), rows)


def _drops(planned: ResetPlan) -> list[RenderableType]:
    return [*(f"- empty {topic}" for topic in planned.drops), *([""] if planned.drops else [])]


def _moves(planned: ResetPlan) -> RenderableType:
    rows: list[list[Cell]] = [
        [each.topic, each.partition, each.before, each.after, each.lost_records] for each in planned.moves
    ]
    if any(each.lost_records for each in planned.moves):
        return grid(("topic", "partition", "position", "new position", "lost"), rows)
    return grid(("topic", "partition", "position", "new position"), [row[:-1] for row in rows])
