"""signal_checks: what a task believes of the signals in its shuffles. Only streamkit should write there; some of it can be checked.

A signal that promises more than any source could have is not believed: event time would be carried away, for good. One that
cannot be read at all stops the worker, because a newer release may have sent it for a reason, unless the settings say that
strangers' records are to be passed over.
"""

from collections.abc import Callable
from typing import assert_never

import structlog

from streamkit.codec.signals import SentSignal, decode_signal
from streamkit.errors import Misconfigured
from streamkit.model.counts import DOUBTED_SIGNALS, FOREIGN_RECORDS
from streamkit.model.ids import KEY_GROUPS
from streamkit.model.signal import Barrier, EndOfInput, Idle, Watermark
from streamkit.progress.task_clock import TaskClock
from streamkit.task.time_rules import TimeRules

log = structlog.get_logger()

# By how much the clocks of two hosts may differ: as much as a broker allows a writer's to be ahead of its own.
SKEW_MS = 3_600_000


def listener(
    topic: str, clock: TaskClock, rules: TimeRules, advance: Callable[[], None]
) -> Callable[[bytes | None], None]:
    """What is called with every record without a key in this shuffle."""
    channels = clock.channels.get(topic)

    def on_signal(data: bytes | None) -> None:
        try:
            sent = _read(data, topic)
            signal = sent.signal
            if isinstance(signal, Barrier):
                raise _draws_no_cuts(signal, topic)
        except Misconfigured as error:
            if not rules.skip_foreign:
                raise
            _pass_over(clock, FOREIGN_RECORDS, topic, error.detail or error.problem)
            return
        if channels is None:
            return  # an earlier version of the pipeline had a use for it
        doubt = _doubt(sent, topic, rules)
        if doubt is not None:
            _pass_over(clock, DOUBTED_SIGNALS, topic, doubt)
            return
        # The stage upstream may have grown, and its worker heard of it before us.
        channels.grow(sent.channel + 1)
        channels.accept(sent.channel, signal)
        advance()

    return on_signal


def _read(data: bytes | None, topic: str) -> SentSignal:
    sent = decode_signal(data)
    if not 0 <= sent.channel < KEY_GROUPS:
        raise Misconfigured(
            f'topic "{topic}" holds a signal of task {sent.channel}, and there can be {KEY_GROUPS}',
            hint="only streamkit may write to shuffle topics: look at the ACLs; STREAMKIT_SKIP_FOREIGN=true passes over it",
        )
    return sent


def _draws_no_cuts(barrier: Barrier, topic: str) -> Misconfigured:
    """A barrier that is passed over in silence would leave a task out of the cut, so it is met as any newer signal is."""
    return Misconfigured(
        f'topic "{topic}" holds a barrier of cut {barrier.cut}, and this release draws no cuts',
        hint="only streamkit may write to shuffle topics: look at the ACLs; if a newer release did, run that one.\n"
        "STREAMKIT_SKIP_FOREIGN=true passes over it",
    )


def _doubt(sent: SentSignal, topic: str, rules: TimeRules) -> str | None:
    """Why no task can have sent this; None if one can."""
    if not rules.writers.admits(topic, sent.channel):
        return f"it is of task {sent.channel}, and there are {rules.writers.count(topic)}"
    match sent.signal:
        case EndOfInput():
            return None if rules.may_end else "it says that an input has ended, and none of them ever ends"
        case Watermark(event_time_ms=time) | Idle(event_time_ms=time):
            ahead_ms = time - rules.clocks.now_ms() - rules.future_max_ms - SKEW_MS
            return (
                f"it promises an event time {ahead_ms} ms further ahead than is allowed"
                if ahead_ms > 0
                else None
            )
        case Barrier():
            return None  # it promises no event time
        case _:
            assert_never(sent.signal)


def _pass_over(clock: TaskClock, what: str, topic: str, reason: str) -> None:
    """Count it; say so the first time, and then more and more seldom."""
    clock.counts[what] += 1
    number = clock.counts[what]
    if number & (number - 1) == 0:
        log.warning("a record of a shuffle was passed over", topic=topic, reason=reason, so_far=number)
