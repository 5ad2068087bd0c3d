"""What a test may ask of a harness: a wrong name or number is an error that says what is right, and never an empty answer."""

from collections.abc import Iterable, Sized
from typing import Any

from streamkit.errors import Misconfigured
from streamkit.graph.pipeline import Pipeline
from streamkit.graph.plan import Plan
from streamkit.model.topic import Topic
from streamkit.windows.step import WindowStep


def require_plan(pipeline: Pipeline) -> Plan:
    """The plan of what is a pipeline.

    Raises:
        Misconfigured: it is something else.
    """
    if not isinstance(pipeline, Pipeline):
        raise Misconfigured(
            f"the harness runs a pipeline, and got {pipeline!r}",
            hint="give it what sk.pipeline(...) returned",
        )
    return pipeline.plan()


def name_of(topic: Topic[Any]) -> str:
    """The name of what is a topic: its types are needed, so that a name alone is not enough.

    Raises:
        Misconfigured: it is something else.
    """
    if not isinstance(topic, Topic):
        raise Misconfigured(
            f"a topic is wanted here, and not {topic!r}", hint="give it what sk.topic(...) returned"
        )
    return topic.name


def require_worker(workers: Sized, number: int) -> None:
    """Refuse the number of a worker that the harness does not have.

    Raises:
        Misconfigured: with the numbers that there are.
    """
    if not 0 <= number < len(workers):
        raise Misconfigured(
            f"there is no worker {number}", hint=f"the harness has {len(workers)}, counted from 0"
        )


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
