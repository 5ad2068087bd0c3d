"""Broken promises about what strangers write, and about functions that work in place, each as a patch."""

from typing import Any

import msgspec

from streamkit.model.records import FetchedBatch, Unreadable
from streamkit.model.signal import EndOfInput
from streamkit.operators.keyed import Aggregate, Reduce
from streamkit.runtime.unknown_channels import UnknownChannels
from streamkit.task import heads, signal_checks
from streamkit.task.failures import Failures, Verdict
from streamkit.task.fetched import FetchedRecords
from streamkit.task.ingest import FetchedIntake
from streamkit.task.letters import Letters


def reduce_is_clean(patch: Any) -> None:
    """What the function of a reduce did before it raised stays."""
    patch(Reduce, "fails_clean", True)


def aggregators_are_clean(patch: Any) -> None:
    """What an aggregator did before it raised stays."""
    patch(Aggregate, "fails_clean", property(lambda _self: True))


def future_is_believed(patch: Any) -> None:
    """A signal may promise any event time."""
    doubt = signal_checks._doubt

    def broken(sent: Any, topic: str, rules: Any) -> str | None:
        return doubt(sent, topic, msgspec.structs.replace(rules, future_max_ms=1 << 70))

    patch(signal_checks, "_doubt", broken)


def end_is_believed(patch: Any) -> None:
    """An input may end that never does."""
    doubt = signal_checks._doubt

    def broken(sent: Any, topic: str, rules: Any) -> str | None:
        return None if isinstance(sent.signal, EndOfInput) else doubt(sent, topic, rules)

    patch(signal_checks, "_doubt", broken)


def any_channel_is_believed(patch: Any) -> None:
    """A signal may name any number as that of its task."""
    patch(signal_checks, "_read", lambda data, _topic: signal_checks.decode_signal(data))


def strangers_are_waited_for(patch: Any) -> None:
    """Event time waits for a task that does not exist, whatever the cluster says."""
    patch(UnknownChannels, "_refuse", lambda _self, _topic: None)


def foreign_records_are_not_skipped(patch: Any) -> None:
    """The setting that passes over foreign records is not heard."""
    listener = heads.listener

    def broken(topic: str, clock: Any, rules: Any, advance: Any) -> Any:
        return listener(topic, clock, msgspec.structs.replace(rules, skip_foreign=False), advance)

    patch(heads, "listener", broken)


def garbage_has_no_letter(patch: Any) -> None:
    """What cannot be read is passed over in silence."""
    patch(Letters, "of_stretch", lambda *_given: None)


def garbage_is_waited_at(patch: Any) -> None:
    """A task tries again and again what nobody can read."""
    judge = Failures.judge_stretch

    def broken(self: Failures, task: Any, partition: Any, stretch: Unreadable) -> Verdict:
        judge(self, task, partition, stretch)
        return Verdict.WAIT

    patch(Failures, "judge_stretch", broken)


def garbage_is_read_once(patch: Any) -> None:
    """Nobody reads a batch again that the quick parser has refused."""
    begin = FetchedRecords.__init__

    def broken(self: FetchedRecords, batch: FetchedBatch, end: int) -> None:
        begin(self, msgspec.structs.replace(batch, again=None), end)

    patch(FetchedRecords, "__init__", broken)


def garbage_takes_others_along(patch: Any) -> None:
    """All that was fetched behind what cannot be read is passed over with it."""
    set_aside = FetchedIntake._set_stretch_aside

    def broken(self: FetchedIntake, stretch: Unreadable, failures: Failures) -> Verdict | None:
        verdict = set_aside(self, stretch, failures)
        if verdict is None:
            self._finish()
        return verdict

    patch(FetchedIntake, "_set_stretch_aside", broken)


def offsets_are_believed(patch: Any) -> None:
    """A record may name any offset as its own."""
    patch(FetchedRecords, "_is_plausible", lambda *_given, **_named: True)


def offsets_behind_a_slice_are_not_looked_at(patch: Any) -> None:
    """The last record of a slice may name the offset of one that comes later."""
    is_plausible = FetchedRecords._is_plausible

    def broken(self: FetchedRecords, records: Any, position: int, *, is_each: bool) -> bool:
        ahead, self._ahead = self._ahead, []
        found = is_plausible(self, records, position, is_each=is_each)
        self._ahead = ahead
        return found

    patch(FetchedRecords, "_is_plausible", broken)


def lies_are_not_looked_for(patch: Any) -> None:
    """Where a record fails, its offset is believed, and so are those of the records beside it."""
    patch(FetchedRecords, "lies", lambda _self: False)
