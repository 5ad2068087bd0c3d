"""Names that a test may use of a pipeline: a wrong one is an error that lists the right ones, and never an empty answer."""

from collections.abc import Iterable

from streamkit.errors import Misconfigured
from streamkit.graph.plan import Plan
from streamkit.windows.step import WindowStep


def require_source(plan: Plan, topic: str) -> None:
    """Refuse to send to, or to promise time for, what the pipeline does not read.

    Raises:
        Misconfigured: with the topics that it reads.
    """
    if topic not in plan.sources():
        raise _unknown(plan, f'does not read topic "{topic}"', "it reads", plan.sources())


def require_topic(plan: Plan, topic: str) -> None:
    """Refuse a topic that the pipeline neither reads nor writes.

    Raises:
        Misconfigured: with the topics that it reads and writes.
    """
    known = [*plan.sources(), *plan.sinks(), *plan.shuffles(), *plan.changelogs(), plan.dead_letter_topic]
    if topic not in known:
        own = (*plan.sources(), *plan.sinks())
        raise _unknown(plan, f'neither reads nor writes topic "{topic}"', "its topics are", own)


def require_windows(plan: Plan, step: str) -> None:
    """Refuse a step that has no windows which could be looked into.

    Raises:
        Misconfigured: with the steps that have some.
    """
    steps = [each.step for stage in plan.stages for each in stage.steps]
    names = [
        each.name for each in steps if isinstance(each, WindowStep) and each.contents_store.kind == "window"
    ]
    if step in names:
        return
    if step in [each.name for each in steps]:
        problem = f'has a step "{step}", but it keeps no windows that can be looked into'
    else:
        problem = f'has no step "{step}"'
    raise _unknown(plan, problem, "steps with windows are", names)


def _unknown(plan: Plan, problem: str, what: str, known: Iterable[str]) -> Misconfigured:
    listed = ", ".join(dict.fromkeys(known)) or "none"
    return Misconfigured(f'pipeline "{plan.name}" {problem}', hint=f"{what}: {listed}")
