"""clock_state: a task's event time as commit records keep it: opened when a task starts, written when a span ends."""

from collections.abc import Mapping

import msgspec

from streamkit.errors import IncompatiblePlan, Misconfigured
from streamkit.graph.stage import Input
from streamkit.model.event_time import Clock
from streamkit.model.ids import MAX_TIME, TopicPartition
from streamkit.progress.channels import Channels, Status
from streamkit.progress.source_clock import SourceClock, SourceState
from streamkit.progress.task_clock import ClockState, TaskClock
from streamkit.task.time_rules import TimeRules

# Under which name the commit record keeps a task's time.
CLOCK = "clock"

_encode = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(ClockState).decode


def open_clock(inputs: Mapping[TopicPartition, Input], rules: TimeRules, state: ClockState) -> TaskClock:
    """The clock of a task as it was committed."""
    elapsed_ms = rules.clocks.elapsed_ms()
    sources = {
        each.topic: SourceClock(each.time, _source_state(each, state), elapsed_ms)
        for each in inputs.values()
        if each.kind == "source" and (rules.is_timed or each.time.time is not Clock.KAFKA)
    }
    channels = {
        each.topic: Channels(rules.writers.count(each.topic))
        for each in inputs.values()
        if each.kind == "shuffle" and rules.is_timed
    }
    return TaskClock(state, sources, channels, rules.clocks.now_ms, rules.clocks.elapsed_ms)


def _source_state(source: Input, state: ClockState) -> SourceState:
    """What was committed of a source; one that was bounded and is not any more goes on behind its end."""
    committed = state.sources.get(source.topic, SourceState())
    if committed.end is None or source.is_bounded:
        return committed
    if state.fired == MAX_TIME:
        raise IncompatiblePlan(
            f'topic "{source.topic}" was read to its end, and with it event time came to its own',
            detail="every record that would be read now is late",
            hint='read it with until="latest" as before, or start under a new pipeline name',
        )
    return msgspec.structs.replace(committed, end=None, status=Status.ACTIVE)


def encode_clock(clock: TaskClock) -> bytes:
    """A clock as it stands in a commit record."""
    return _encode(clock.snapshot())


def decode_clock(data: bytes | None) -> ClockState:
    """What a commit record says about time; a pipeline that had no use for it says nothing.

    Raises:
        Misconfigured: what it says cannot be.
    """
    if data is None:
        return ClockState()
    try:
        state = _decode_state(data)
        statuses = [each.status for each in state.sources.values()]
        for _, some in state.channels.values():
            statuses += some
        for status in (*statuses, state.announced[0]):
            Status(status)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise Misconfigured(
            "a commit record does not say what event time it is",
            detail=str(error),
            hint="only streamkit may write to changelog topics: look at the ACLs; the pipeline can start under a new name",
        ) from error
    return state
