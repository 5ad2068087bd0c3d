"""A plan for topics as a person reads it: one line for each change, the marks of a diff in front."""

import msgspec
from rich.console import RenderableType
from rich.text import Text

from streamkit.cli.output import verdict
from streamkit.model.finding import Finding
from streamkit.model.topic_shape import so_many
from streamkit.operate.topics_plan import Applied, Growth, TopicsPlan


def plan_lines(plan: TopicsPlan) -> list[RenderableType]:
    """The plan, a line per change; one line if there is nothing to do."""
    lines: list[RenderableType] = []
    for creation in plan.create:
        lines.append(
            _line("+", "green", f"create {creation.topic}", _shape(creation.partitions, creation.replication))
        )
        lines += [
            Text(f"    {name} = {value}", style="dim") for name, value in sorted(creation.config.items())
        ]
    for change in plan.configure:
        before = "the broker's default" if change.before is None else change.before
        lines.append(
            _line("~", "yellow", f"set    {change.topic}", f"{change.entry}: {before} -> {change.after}")
        )
    for growth in plan.grow:
        lines += _growth_lines(growth)
    for refused in plan.refused:
        lines.append(_line("✗", "red", f"refuse {refused.topic}", refused.problem))
        lines.append(Text(f"    hint: {refused.hint}", style="cyan"))
    if plan.unchanged:
        count = len(plan.unchanged)
        noun = "topic is" if count == 1 else "topics are"
        lines.append(Text(f"= {count} {noun} as declared", style="dim"))
    if not lines:
        lines.append(Text("= no topic is declared", style="dim"))
    return lines


def _growth_lines(growth: Growth) -> list[Text]:
    lines = [_line("~", "yellow", f"grow   {growth.topic}", f"{growth.before} -> {growth.after} partitions")]
    if growth.warning:
        lines.append(Text(f"    warning: {growth.warning}", style="yellow"))
    if growth.note:
        lines.append(Text(f"    {growth.note}", style="dim"))
    return lines


def applied_lines(applied: Applied) -> list[Text]:
    """What was done, what failed and what was not tried, a line each."""
    lines = [verdict(good=True, what=what) for what in applied.done]
    if applied.failed:
        lines.append(verdict(good=False, what=applied.failed))
    return lines + [verdict(good=None, what=what, detail="not tried") for what in applied.left]


def failure(applied: Applied, error: Finding) -> Finding:
    """The error of the change that failed, with what became of the others."""
    done = len(applied.done)
    counted = (
        f"{done} change{'s were' if done != 1 else ' was'} made before it, {len(applied.left)} not tried"
    )
    again = "then run the same command again: it does what is left"
    return msgspec.structs.replace(
        error,
        detail="\n".join(each for each in (error.detail, counted) if each),
        hint=f"{error.hint}; {again}" if error.hint else f"fix this, {again}",
    )


def _line(mark: str, style: str, what: str, detail: str) -> Text:
    return Text.assemble((f"{mark} ", f"bold {style}"), what, (f"  {detail}", "dim"))


def _shape(partitions: int, replication: int | None) -> str:
    replicas = "" if replication is None else f", {replication} replica{'s' if replication > 1 else ''}"
    return f"{so_many(partitions)}{replicas}"
