"""Deliberate faults in the protocol, one at a time: whoever checks the runtime must notice each of them.

Every mutant breaks one promise of the runtime, of the writer or of the broker. `seed` is where it was caught first;
`tests/simulation/test_mutants.py` begins there, and searches if it moved. What fair chance brings about too seldom to
be found again has a bias.

One has no seed: a restore that goes by who was alive when it began. Seldom does a writer die while a restore waits for it
(three times in 300 plain seeds), and then somebody else ends what it left: its own next life, or a restore that begins later
and finds the same name in the last commit of another task. `tests/runtime/test_who_is_alive.py` leaves nobody else.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tests.simulation import mutations_of_clients as clients
from tests.simulation import mutations_of_endings as endings
from tests.simulation import mutations_of_failures as failures
from tests.simulation import mutations_of_growth as growth
from tests.simulation import mutations_of_lists as lists
from tests.simulation import mutations_of_runtime as runtime
from tests.simulation import mutations_of_shuffles as shuffles
from tests.simulation import mutations_of_strangers as strangers
from tests.simulation import mutations_of_time as time
from tests.simulation import mutations_of_work as work
from tests.simulation.families import Family
from tests.simulation.scenario import FAIR, Bias

Patch = Callable[[Any, str, Any], None]


class Mutant(msgspec.Struct, frozen=True):
    """One broken promise."""

    name: str
    apply: Callable[[Patch], None]
    seed: int
    bias: Bias = FAIR


# Commits in doubt, again and again.
STORMS = Bias(
    kinds=("storm",),
    traps=("writer.produce", "writer.positions", "writer.end"),
    acts=(8, 12),
    settings={"request_timeout_s": 0.15},
)
# The same, with the next span always at work.
STORMY_SPANS = msgspec.structs.replace(STORMS, settings={"commit_interval_s": 0.0003, "slice_records": 1})
# The same, for one worker that is at work again at once.
LATE_POSITIONS = Bias(
    kinds=("storm",),
    traps=("writer.produce", "writer.positions", "writer.end"),
    acts=(12, 20),
    workers_max=1,
    settings={
        "request_timeout_s": 0.15,
        "commit_interval_s": 0.0003,
        "slice_records": 1,
        "restart_delay_first_s": 0.001,
    },
)
# Workers that miss a round.
ABSENCES = Bias(
    kinds=("freeze", "freeze_at", "freeze_at", "join"),
    traps=("member.join", "member.sync"),
    acts=(8, 12),
    settings={"session_timeout_s": 0.3},
)
# Spans that find nothing in the cache, while the one before is on its way.
FORGETFUL = Bias(acts=(0, 1), settings={"memory_bytes": 0, "commit_interval_s": 0.0003, "slice_records": 1})
# The same, while rows that are committed are on their way to disk.
SLOW_DISKS = msgspec.structs.replace(
    FORGETFUL, settings={**FORGETFUL.settings, "state_apply_interval_s": 0.0}
)
# Results that wait for the end of a span which then has to be dropped.
HELD_BACK = Bias(shapes=("latest",), acts=(8, 12))
# Timers beside records that fail; nothing else goes wrong.
TIMED_FAILURES = Bias(shapes=("timers",), acts=(0, 1))
# Deaths between two batches, and again right after the next start; nothing is on disk.
DEATHS = Bias(
    shapes=("keyed",),
    kinds=("kill_at",),
    traps=("writer.produce", "writer.produce", "writer.positions"),
    acts=(20, 30),
    workers_max=1,
    settings={"state_apply_interval_s": 100.0, "slice_records": 1, "commit_interval_s": 0.01},
)
# A broker that starts anew again and again, and forgets.
FORGOTTEN = Bias(is_forgetful=True)
# A cleaner that has dropped tombstones when hosts come back.
CLEANED = Bias(is_cleaned=True)
# Shuffles that stay within a worker: one that is left alone, and several that are not.
ALONE = Bias(shapes=("two_shuffles",), workers_max=1, acts=(0, 1), settings={"local_shuffle": True})
TOGETHER = Bias(
    shapes=("two_shuffles",),
    workers_max=2,
    kinds=("kill", "kill_at", "storm", "join"),
    acts=(4, 8),
    settings={"local_shuffle": True, "slice_records": 1},
)
# Nobody hurts: what goes wrong is the work's own doing. And so many slow records at a time that they outlast their limit.
UNDISTURBED = Bias(workers_max=2, acts=(0,))
BACKLOGS = msgspec.structs.replace(UNDISTURBED, settings={"slice_records": 100, "session_timeout_s": 0.3})
MUTANTS = (
    Mutant("positions outside the transaction", clients.positions_outside_the_transaction, 0),
    Mutant("membership unchecked", clients.membership_unchecked, 1, ABSENCES),
    Mutant("failed produce ignored", clients.failed_produce_ignored, 28),
    Mutant("lost end reply is success", clients.lost_end_reply_is_success, 13, STORMS),
    Mutant("dead writer reused", clients.dead_writer_reused, 75),
    Mutant("pending positions not waited for", clients.pending_positions_not_waited_for, 120),
    Mutant("aborted records are shown", clients.aborted_records_are_shown, 0),
    Mutant("open transactions are read past", clients.open_transactions_are_read_past, 0),
    Mutant("state applied before commit", runtime.state_applied_before_commit, 1),
    Mutant("tasks kept over a missed generation", runtime.tasks_kept_over_a_missed_generation, 4, ABSENCES),
    Mutant("restore end before the fence", runtime.restore_end_before_the_fence, 60),
    Mutant("restore reads uncommitted", runtime.restore_reads_uncommitted, 5),
    Mutant("restore ignores the tail", runtime.restore_ignores_the_tail, 1),
    Mutant("overlay kept on rewind", runtime.overlay_kept_on_rewind, 1),
    Mutant("outbox kept on rewind", runtime.outbox_kept_on_rewind, 1),
    Mutant("span kept on rewind", runtime.span_kept_on_rewind, 0),
    Mutant("operators not bound anew on rewind", runtime.operators_not_bound_anew, 36, HELD_BACK),
    Mutant("changelog gets a stale value", runtime.changelog_gets_a_stale_value, 0),
    Mutant("commit record misses an input", runtime.commit_record_misses_an_input, 2),
    Mutant("position behind by one", runtime.position_behind_by_one, 3),
    Mutant("position ahead by one", runtime.position_ahead_by_one, 3),
    Mutant("first offset ignored", runtime.first_offset_ignored, 18),
    Mutant("landed before the commit", runtime.landed_before_the_commit, 2),
    Mutant("landed at the open span's positions", runtime.landed_at_the_open_positions, 2, STORMY_SPANS),
    Mutant("condemned record dropped silently", runtime.condemned_record_dropped, 1),
    Mutant("failing record leaves its effects", runtime.failing_record_leaves_its_effects, 1),
    Mutant("dead letter outside the span", runtime.dead_letter_outside_the_span, 6),
    Mutant("store claims more than it has", runtime.store_claims_more_than_it_has, 0),
    Mutant("frozen rows not read", runtime.frozen_rows_not_read, 9, FORGETFUL),
    Mutant("rows on their way not read", runtime.rows_on_their_way_not_read, 0, SLOW_DISKS),
    Mutant("tombstones not restored", runtime.tombstones_not_restored, 1),
    Mutant("old local state believed", runtime.old_local_state_believed, Family.TIMED + 39, CLEANED),
    Mutant("stray rows restored", runtime.stray_rows_restored, Family.LOOSE + 29, DEATHS),
    Mutant("tasks for those who do not know them", clients.tasks_for_anybody, Family.DEPLOYED),
    Mutant("empty changelog believed", runtime.empty_changelog_believed, 29),
    Mutant("changelogs beside the results", runtime.changelogs_beside_the_results, Family.LOOSE + 20),
    Mutant("generation kept in doubt", runtime.generation_kept_in_doubt, Family.LOOSE + 428, LATE_POSITIONS),
    Mutant("at most once from the record", runtime.at_most_once_from_the_record, Family.LOOSE + 7, STORMS),
    Mutant("same id goes on", endings.same_id_goes_on, 2, FORGOTTEN),
    Mutant("id outlives its broker", endings.id_outlives_its_broker, 42, FORGOTTEN),
    Mutant("healed as commit", endings.healed_as_commit, 192, FORGOTTEN),
    Mutant("healed as abort", endings.healed_as_abort, 0, FORGOTTEN),
    Mutant("decision asked for after the fence", endings.decision_asked_for_after_the_fence, 0, FORGOTTEN),
    Mutant("note outlives what it was about", endings.note_outlives_what_it_was_about, Family.SLOW + 302),
    Mutant("positions not looked at", endings.positions_not_looked_at, 0, FORGOTTEN),
    Mutant("refused data is tried again", runtime.refused_data_is_tried_again, Family.REFUSING),
    Mutant("another record is condemned", runtime.another_record_is_condemned, Family.REFUSING),
    Mutant("spans overlap in a search", runtime.spans_overlap_in_a_search, Family.REFUSING),
    Mutant("handed over on rewind", shuffles.handed_over_on_rewind, 27),
    Mutant("committed before they are run", shuffles.committed_before_they_are_run, 19, TOGETHER),
    Mutant("topics are overtaken", shuffles.topics_are_overtaken, 235),
    Mutant("own commits are overtaken", shuffles.own_commits_are_overtaken, 0, ALONE),
    Mutant("doors stay open", shuffles.doors_stay_open, 39),
    Mutant("receiver does not commit", shuffles.receiver_does_not_commit, 0),
    Mutant("slowest input not waited for", time.slowest_input_not_waited_for, Family.TIMED + 17),
    Mutant("slowest channel not waited for", time.slowest_channel_not_waited_for, Family.TIMED),
    Mutant("promises too much", time.promises_too_much, Family.TIMED + 3),
    Mutant("time not restored", time.time_not_restored, Family.TIMED),
    Mutant("time kept on rewind", time.time_kept_on_rewind, Family.TIMED + 16, TIMED_FAILURES),
    Mutant("signals ahead of their records", time.signals_ahead_of_their_records, Family.TIMED + 12),
    Mutant("timers not committed", time.timers_not_committed, Family.TIMED + 1),
    Mutant("fired timers not removed", time.fired_timers_not_removed, Family.TIMED + 1),
    Mutant("timers kept on rewind", time.timers_kept_on_rewind, Family.TIMED + 1),
    Mutant("timers loaded once", time.timers_loaded_once, Family.TIMED + 1),
    Mutant("timers fire late", time.timers_fire_late, Family.TIMED),
    Mutant("announced before it is told", time.announced_before_it_is_told, Family.TIMED),
    Mutant("undone record keeps its state", failures.undone_record_keeps_its_state, Family.FAILING),
    Mutant("undone record keeps its output", failures.undone_record_keeps_its_output, Family.FAILING + 6),
    Mutant("undone record keeps its timers", failures.undone_record_keeps_its_timers, Family.FAILING),
    Mutant("undone record takes others along", failures.undone_record_takes_others_along, Family.FAILING),
    Mutant(
        "unstorable state is not found", failures.state_that_cannot_be_stored_is_not_found, Family.FAILING + 3
    ),
    Mutant("tried again on the spot", failures.tried_again_on_the_spot, Family.FAILING),
    Mutant("attempts are never counted", failures.attempts_are_never_counted, Family.FAILING),
    Mutant("letters cannot be written", failures.letters_of_some_errors_cannot_be_written, Family.FAILING),
    Mutant("intervals by the wall clock", time.intervals_by_the_wall_clock, Family.TIMED + 85),
    Mutant("wakes without a word", time.wakes_without_a_word, Family.SLEEPY + 2),
    Mutant("channels not committed", time.channels_not_committed, Family.TIMED + 11),
    Mutant("turns bounded by count alone", work.turns_bounded_by_count_alone, Family.SLOW + 4, BACKLOGS),
    Mutant("heartbeats wait for the loop", work.heartbeats_wait_for_the_loop, Family.SLOW, UNDISTURBED),
    Mutant("tried for ever", work.tried_for_ever, Family.SLOW + 5, UNDISTURBED),
    Mutant("never singly", work.never_singly, Family.SLOW + 318),
    Mutant("never narrower", work.never_narrower, Family.DEPLOYED + 483),
    Mutant("growth not noticed", growth.growth_not_noticed, Family.GROWING + 3),
    Mutant("a reduce is clean", strangers.reduce_is_clean, Family.HOSTILE + 2),
    Mutant("aggregators are clean", strangers.aggregators_are_clean, Family.HOSTILE + 3),
    Mutant("future is believed", strangers.future_is_believed, Family.HOSTILE + 11),
    Mutant("end is believed", strangers.end_is_believed, Family.HOSTILE + 11),
    Mutant("any channel is believed", strangers.any_channel_is_believed, Family.HOSTILE + 44),
    Mutant("strangers are waited for", strangers.strangers_are_waited_for, Family.HOSTILE + 11),
    Mutant("foreign records are not skipped", strangers.foreign_records_are_not_skipped, Family.HOSTILE),
    Mutant("garbage has no letter", strangers.garbage_has_no_letter, Family.HOSTILE + 2),
    Mutant("garbage is waited at", strangers.garbage_is_waited_at, Family.HOSTILE),
    Mutant("garbage is read once", strangers.garbage_is_read_once, Family.HOSTILE),
    Mutant("garbage takes others along", strangers.garbage_takes_others_along, Family.HOSTILE),
    Mutant("offsets are believed", strangers.offsets_are_believed, Family.HOSTILE + 8),
    Mutant(
        "offsets behind not looked at",
        strangers.offsets_behind_a_slice_are_not_looked_at,
        Family.HOSTILE + 25,
    ),
    Mutant("lies are not looked for", strangers.lies_are_not_looked_for, Family.HOSTILE + 47),
    Mutant("shorter lists keep their rows", lists.shorter_lists_keep_their_rows, Family.LISTS),
    Mutant("emptied lists count their rows", lists.emptied_lists_count_their_rows, Family.LISTS),
    Mutant("lists kept on rewind", lists.lists_kept_on_rewind, Family.LISTS),
    Mutant("undone record keeps its list", lists.undone_record_keeps_its_list, Family.LISTS),
)


@contextlib.contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """The world with one broken promise."""
    undo: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, value: Any) -> None:
        undo.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    try:
        mutant.apply(patch)
        yield
    finally:
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)
