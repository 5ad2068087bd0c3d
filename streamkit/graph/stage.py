"""A stage: the longest chain of steps without a shuffle, with what it reads, writes and remembers.

Plain data. Whoever runs a stage binds its steps from the last to the first: every step comes before the ones that
follow it, so the order of `Stage.steps`, reversed, is an order of binding.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from streamkit.codec.codec import Codec
from streamkit.codec.values import internal_codec, key_codec, value_codec
from streamkit.model.event_time import TimeRule
from streamkit.operators.step import MAIN, Step
from streamkit.state.spec import StoreSpec

# Which task has the state of a key. groups: the one that owns the key's group, however many tasks there are. source: the
# one that reads the partition in which the topic's producers put the key, which we cannot move.
Placement = Literal["groups", "source"]


def placement_of(kinds: Iterable[str]) -> Placement:
    """The placement of state, by the kinds of the inputs whose records come to it: one source is enough to fix it."""
    return "source" if "source" in kinds else "groups"


class Target(NamedTuple):
    """Where records go on to: a step of the stage, by its id, and one of the inputs of that step."""

    step: int
    port: str = MAIN


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that a stage reads, and where its records enter.

    Partition i of every input belongs to task i of the stage. `partitions` is None until the plan is resolved, unless
    the pipeline fixes the count of a shuffle. No other stage of the pipeline reads this topic.
    """

    topic: str
    kind: Literal["source", "shuffle"]
    value_type: Any
    key_type: Any
    entry: tuple[Target, ...]
    partitions: int | None = None
    # Of a source: what time its records tell, and whether reading ends where the log ended when it began.
    time: TimeRule = TimeRule()
    is_bounded: bool = False

    def value_codec(self) -> Codec:
        """How the values of this topic are read: the user's format for a source, ours for a shuffle."""
        make = value_codec if self.kind == "source" else internal_codec
        return make(self.value_type)

    def key_codec(self) -> Codec:
        """How the keys of this topic are read."""
        return key_codec(self.key_type)


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that a stage writes. A shuffle is partitioned by key group, a sink by Kafka's own partitioner.

    `partitions` is None until the plan is resolved, and stays None for a sink whose count was not given. `is_fixed` tells
    that the `key_by` itself was given the count of its shuffle.
    """

    topic: str
    kind: Literal["sink", "shuffle"]
    partitions: int | None = None
    is_fixed: bool = False


class StageStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step at its place: `id` is its index in `Stage.steps`, `downstream` where its results go, in order.

    `sides` has the same for each of its other outputs, if anybody listens there.
    `fails_clean` tells whether a record that raises in this very step has left nothing behind: no state, no output,
    no push into another branch. Such a record can be set aside on the spot; after any other the span is read again, with care.
    `is_of_many` tells whether what the step is called with may be made of more than the record in hand.
    """

    id: int
    step: Step
    downstream: tuple[Target, ...]
    sides: Mapping[str, tuple[Target, ...]] = {}
    fails_clean: bool = False
    is_of_many: bool = False


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One cut-out of the graph. A task is one stage x one partition.

    `partitions`, the number of tasks, is the largest partition count among the inputs; None until resolved.
    `changelog` is there for every stage: a stage without stores keeps only its commit records in it. `carry_headers`
    names the headers that go on with what is made of a record.
    """

    name: str
    inputs: tuple[Input, ...]
    steps: tuple[StageStep, ...]
    outputs: tuple[Output, ...]
    stores: tuple[StoreSpec, ...]
    changelog: str
    carry_headers: tuple[str, ...] = ()
    partitions: int | None = None

    @property
    def placement(self) -> Placement:
        """Whether the state of this stage can be shared among another number of tasks.

        By the inputs of its steps with state: behind a `key_by` it can, of `read_keyed` it cannot. A source that is united
        with keyed records behind the last such step changes nothing; where one store cannot be shared out anew, the stage
        cannot. A stage without state is placed as all its inputs would be.
        """
        feeding = [each for inputs in self.fed_by().values() for each in inputs]
        return placement_of([each.kind for each in feeding or self.inputs])

    def fed_by(self) -> dict[str, tuple[Input, ...]]:
        """For each store the inputs whose records come to it.

        A stage may read several shuffles, each with a count of its own. The state of a key is where its records are: in
        task group * count // KEY_GROUPS, where the count is that of the store's shuffle and not of the stage's tasks.
        """
        reached = [_reached(self.steps, each.entry) for each in self.inputs]
        return {
            store.name: tuple(
                each for each, steps in zip(self.inputs, reached, strict=True) if step.id in steps
            )
            for step in self.steps
            for store in step.step.stores
        }


def _reached(steps: tuple[StageStep, ...], entry: Iterable[Target]) -> set[int]:
    """The steps that records which enter there may come to, by whichever port."""
    reached = {target.step for target in entry}
    for step in steps:  # every step stands before the ones that follow it
        if step.id in reached:
            for targets in (step.downstream, *step.sides.values()):
                reached.update(target.step for target in targets)
    return reached
