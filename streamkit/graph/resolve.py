"""From a plan to one with numbers: how many partitions everything has, once the broker has told about the topics."""

from collections.abc import Mapping

import msgspec

from streamkit.errors import Bug, InvalidPipeline
from streamkit.graph.plan import Plan
from streamkit.graph.stage import Input, Output, Stage
from streamkit.graph.validate import require_count
from streamkit.model.topic_shape import so_many


def resolve(plan: Plan, partition_counts: Mapping[str, int], *, parallelism: int | None = None) -> Plan:
    """The same plan with every partition count filled in.

    A stage has as many tasks as its largest input has partitions. A shuffle has the count that the pipeline gives it,
    else the one that it was created with (if that is given), else as many partitions as the stage that writes it has
    tasks: so a source may grow, and the keys behind the shuffle stay where they are. Counts of sinks are filled in if
    they are given.

    `parallelism` goes before all of these but a count that a `key_by` itself was given. It is for a generation that
    begins: whoever resolves the plan of that generation again must give it again.

    Raises:
        InvalidPipeline: a source topic has no count, there are more partitions than key groups, or `parallelism` cannot
            be had.
    """
    require_count(parallelism, f"parallelism={parallelism}")
    resolved = _Counting(plan, partition_counts, parallelism).plan()
    if parallelism is not None:
        _require_free(resolved, parallelism)
    return resolved


class _Counting:
    """One plan on its way to its counts."""

    def __init__(self, plan: Plan, counts: Mapping[str, int], parallelism: int | None) -> None:
        self._plan = plan
        self._counts = counts
        self._parallelism = parallelism
        self._shuffles: dict[str, int] = {}

    def plan(self) -> Plan:
        # Upstream first, so every shuffle is counted before it is read.
        return msgspec.structs.replace(self._plan, stages=tuple(map(self._stage, self._plan.stages)))

    def _stage(self, stage: Stage) -> Stage:
        inputs = tuple(map(self._input, stage.inputs))
        tasks = max(each.partitions or 0 for each in inputs)
        for output in stage.outputs:
            if output.kind == "shuffle":
                self._shuffles[output.topic] = self._shuffle(output, tasks)
                require_count(self._shuffles[output.topic], f'shuffle "{output.topic}"')
        outputs = tuple(map(self._output, stage.outputs))
        return msgspec.structs.replace(stage, inputs=inputs, outputs=outputs, partitions=tasks)

    def _shuffle(self, output: Output, tasks: int) -> int:
        if self._parallelism is not None and not output.is_fixed:
            return self._parallelism
        return output.partitions or self._counts.get(output.topic, tasks)

    def _input(self, each: Input) -> Input:
        if each.kind == "shuffle":
            if each.topic not in self._shuffles:
                raise Bug(f'shuffle "{each.topic}" is read before a stage writes it')
            return msgspec.structs.replace(each, partitions=self._shuffles[each.topic])
        if self._counts.get(each.topic, 0) < 1:
            raise InvalidPipeline(
                f'topic "{each.topic}" does not exist',
                hint="create it, or correct its name in the pipeline; `streamkit topics list` shows what there is",
            )
        return msgspec.structs.replace(each, partitions=self._counts[each.topic])

    def _output(self, each: Output) -> Output:
        count = self._shuffles[each.topic] if each.kind == "shuffle" else self._counts.get(each.topic)
        return msgspec.structs.replace(each, partitions=count)


def _require_free(plan: Plan, parallelism: int) -> None:
    """Refuse another number of tasks where state cannot be shared out anew, or where nothing would have it."""
    for stage in plan.stages:
        feeding = [each for inputs in stage.fed_by().values() for each in inputs]
        fixed = [each for each in feeding if each.kind == "source" and each.partitions != parallelism]
        if fixed:
            topic, count = fixed[0].topic, so_many(fixed[0].partitions or 0)
            raise InvalidPipeline(
                f'stage "{stage.name}" cannot be shared among {parallelism} tasks',
                detail=f'it keeps state by the partitions of topic "{topic}", which has {count}, and where the producers of'
                " that topic have put the keys",
                hint=f"leave parallelism out, and give each key_by that should have it partitions={parallelism}; or put a"
                " key_by before the steps with state, under other names, which then begin empty",
            )
    shuffles = [each for stage in plan.stages for each in stage.outputs if each.kind == "shuffle"]
    if all(each.is_fixed and each.partitions != parallelism for each in shuffles):
        given = "each key_by has partitions=... of its own" if shuffles else "there is no key_by"
        raise InvalidPipeline(
            f"nothing in the pipeline can be shared among {parallelism} tasks by parallelism",
            detail=f"{given}, and a stage that reads a topic has as many tasks as the topic has partitions",
            hint="change the partitions=... of the key_by"
            if shuffles
            else "add partitions to the topic, or put a key_by before the work that is to be shared",
        )
