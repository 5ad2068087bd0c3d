"""The plan: what a pipeline becomes before anything runs. A value: it can be printed, compared and stored."""

import msgspec

from streamkit.errors import Bug
from streamkit.graph.policy import ErrorPolicy
from streamkit.graph.stage import Stage
from streamkit.model.ids import KEY_GROUPS, TaskId
from streamkit.state.spec import TIMERS


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The stages of one pipeline, every stage after the stages it reads from."""

    name: str
    stages: tuple[Stage, ...]
    on_error: ErrorPolicy
    dead_letter_topic: str
    generation: int = 1
    key_groups: int = KEY_GROUPS

    @property
    def group(self) -> str:
        """The consumer group that the workers of this generation join, and which holds their positions.

        It also names the folder of their local state, and begins the ids of their writers. The first generation has the
        name of the pipeline. No other group begins with "name." then: workers retire what begins with their group and a dot.
        """
        return self.name if self.generation == 1 else f"{self.name}~{self.generation}"

    def stage(self, name: str) -> Stage:
        """The stage of this name.

        Raises:
            Bug: there is none.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise Bug(f'plan "{self.name}" has no stage "{name}"')

    def has_task(self, task: TaskId) -> bool:
        """Whether this (resolved) plan has such a task."""
        return any(
            stage.name == task.stage and task.partition < (stage.partitions or 0) for stage in self.stages
        )

    @property
    def is_timed(self) -> bool:
        """Whether watermarks are needed: some step has timers, or some input ends."""
        stores = (store for stage in self.stages for store in stage.stores)
        inputs = (each for stage in self.stages for each in stage.inputs)
        return any(store.kind in TIMERS for store in stores) or any(each.is_bounded for each in inputs)

    def writers(self) -> dict[str, int]:
        """For every shuffle topic the number of tasks that write to it (the plan must be resolved)."""
        return {
            output.topic: stage.partitions or 0
            for stage in self.stages
            for output in stage.outputs
            if output.kind == "shuffle"
        }

    def sources(self) -> tuple[str, ...]:
        """The topics that come from outside; their partition counts are what `resolve` needs."""
        return tuple(each.topic for stage in self.stages for each in stage.inputs if each.kind == "source")

    def sinks(self) -> tuple[str, ...]:
        """The topics that the pipeline writes for others, each once."""
        topics = (each.topic for stage in self.stages for each in stage.outputs if each.kind == "sink")
        return tuple(dict.fromkeys(topics))

    def shuffles(self) -> dict[str, int | None]:
        """The shuffle topics and their partition counts (None until resolved)."""
        inputs = (each for stage in self.stages for each in stage.inputs if each.kind == "shuffle")
        return {each.topic: each.partitions for each in inputs}

    def changelogs(self) -> dict[str, int | None]:
        """The changelog topics and their partition counts (None until resolved)."""
        return {stage.changelog: stage.partitions for stage in self.stages}
