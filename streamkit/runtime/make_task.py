"""make_task: new tasks, tied to the parts of the worker that they use."""

from collections.abc import Mapping

from streamkit.graph.stage import Input, Stage
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.runtime.losses import Losses
from streamkit.task.careful import Careful
from streamkit.task.emit import Outbox
from streamkit.task.failures import Failures
from streamkit.task.span_end import SpanEnd
from streamkit.task.task import Task
from streamkit.task.time_rules import TimeRules


class TaskMaker:
    """Makes the tasks of one worker."""

    def __init__(
        self, rules: TimeRules, outbox: Outbox, failures: Failures, span_end: SpanEnd, losses: Losses
    ) -> None:
        self._rules = rules
        self._outbox = outbox
        self._failures = failures
        self._span_end = span_end
        self._losses = losses

    def make(self, task_id: TaskId, stage: Stage, inputs: Mapping[TopicPartition, Input]) -> Task:
        """A task that has yet to be restored."""
        task = Task(task_id, stage, inputs, self._rules, self._failures.put_timer_aside, self._make_careful)
        task.tell = self._span_end.tell
        self._losses.condemn(task)
        self._losses.slow_down(task)
        return task

    def _make_careful(self, task: Task) -> Careful:
        lanes = [self._outbox.lane(each.topic, each.partitions or 0) for each in task.stage.outputs]
        changelog = self._outbox.lane(task.changelog.topic, task.stage.partitions or 0)
        held = [held for held, _ in task.chain.held]
        return Careful(task.state, task.clock, held, lanes, changelog.row_bytes_max)
