"""From a plan to one with numbers: how many partitions everything has, once the broker has told about the topics."""

from collections.abc import Mapping

import msgspec

from streamkit.errors import Bug, InvalidPipeline
from streamkit.graph.plan import Plan
from streamkit.graph.stage import Input, Output, Stage
from streamkit.graph.validate import require_count


def resolve(plan: Plan, partition_counts: Mapping[str, int]) -> Plan:
    """The same plan with every partition count filled in.

    A stage has as many tasks as its largest input has partitions. A shuffle has the count that the pipeline gives it,
    else the one that it was created with (if that is given), else as many partitions as the stage that writes it has
    tasks: so a source may grow, and the keys behind the shuffle stay where they are. Counts of sinks are filled in if
    they are given.

    Raises:
        InvalidPipeline: a source topic has no count, or there are more partitions than key groups.
    """
    shuffles: dict[str, int] = {}
    stages: list[Stage] = []
    for stage in plan.stages:  # upstream first, so every shuffle is counted before it is read
        inputs = tuple(_counted(each, shuffles, partition_counts) for each in stage.inputs)
        tasks = max(each.partitions or 0 for each in inputs)
        for output in stage.outputs:
            if output.kind == "shuffle":
                shuffles[output.topic] = output.partitions or partition_counts.get(output.topic, tasks)
                require_count(shuffles[output.topic], f'shuffle "{output.topic}"')
        outputs = tuple(_measured(each, shuffles, partition_counts) for each in stage.outputs)
        stages.append(msgspec.structs.replace(stage, inputs=inputs, outputs=outputs, partitions=tasks))
    return msgspec.structs.replace(plan, stages=tuple(stages))


def _counted(each: Input, shuffles: Mapping[str, int], counts: Mapping[str, int]) -> Input:
    if each.kind == "shuffle":
        if each.topic not in shuffles:
            raise Bug(f'shuffle "{each.topic}" is read before a stage writes it')
        return msgspec.structs.replace(each, partitions=shuffles[each.topic])
    if counts.get(each.topic, 0) < 1:
        raise InvalidPipeline(
            f'topic "{each.topic}" does not exist',
            hint="create it, or correct its name in the pipeline; `streamkit topics list` shows what there is",
        )
    return msgspec.structs.replace(each, partitions=counts[each.topic])


def _measured(each: Output, shuffles: Mapping[str, int], counts: Mapping[str, int]) -> Output:
    count = shuffles[each.topic] if each.kind == "shuffle" else counts.get(each.topic)
    return msgspec.structs.replace(each, partitions=count)
