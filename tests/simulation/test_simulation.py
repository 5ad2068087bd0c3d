"""Whole pipelines through crashes, zombies and lost replies: seeds that must hold, and a replay to the letter."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.families import Family
from tests.simulation.forging import KINDS
from tests.simulation.garbage import GARBLED
from tests.simulation.scenario import TRAPS
from tests.simulation.simulate import quiet, simulate

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 500
TIMED_SEEDS = 200
SLEEPY_SEEDS = 50
LOOSE_SEEDS = 150
DEPLOYED_SEEDS = 100
FAILING_SEEDS = 100
SLOW_SEEDS = 60
SLOW_CHUNK = 20
# A chunk that outlasts its limit, of records of which none does.
SLOW_CHUNKS = (318,)
# A commit of so many batches that it outlasts its transaction.
SLOW_COMMITS = (53,)
REFUSING_SEEDS = 100
GROWING_SEEDS = 100
HOSTILE_SEEDS = 100
LIST_SEEDS = 50
CHUNK = 50
faults: Counter[str] = Counter()


def hold(seeds: range) -> None:
    with quiet():
        for seed in seeds:
            verdict = simulate(seed)
            faults.update(verdict.faults)
            assert not verdict.problems, (
                f"{verdict.problems[0]}\nreplay: python -m tests.simulation.run --seed {seed} --verbose"
            )


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_every_invariant_holds_under_every_fault(start: int) -> None:
    hold(range(start, start + CHUNK))


@pytest.mark.parametrize("start", range(Family.TIMED, Family.TIMED + TIMED_SEEDS, CHUNK))
def test_event_time_holds_under_every_fault(start: int) -> None:
    test_every_invariant_holds_under_every_fault(start)


@pytest.mark.parametrize("start", range(Family.SLEEPY, Family.SLEEPY + SLEEPY_SEEDS, CHUNK))
def test_who_wakes_up_is_waited_for_under_every_fault(start: int) -> None:
    test_every_invariant_holds_under_every_fault(start)
    assert faults["signal of an idle channel"] > 0


@pytest.mark.parametrize("start", range(Family.LOOSE, Family.LOOSE + LOOSE_SEEDS, CHUNK))
def test_at_least_once_loses_nothing_and_at_most_once_repeats_nothing(start: int) -> None:
    test_every_invariant_holds_under_every_fault(start)


@pytest.mark.parametrize("start", range(Family.DEPLOYED, Family.DEPLOYED + DEPLOYED_SEEDS, CHUNK))
def test_two_versions_live_side_by_side_under_every_fault(start: int) -> None:
    test_every_invariant_holds_under_every_fault(start)


@pytest.mark.parametrize("start", range(Family.FAILING, Family.FAILING + FAILING_SEEDS, CHUNK))
def test_many_records_that_fail_hold_under_every_fault(start: int) -> None:
    test_every_invariant_holds_under_every_fault(start)


@pytest.mark.parametrize("start", range(Family.SLOW, Family.SLOW + SLOW_SEEDS, SLOW_CHUNK))
def test_records_that_take_time_end_and_keep_no_worker_from_its_work(start: int) -> None:
    hold(range(start, start + SLOW_CHUNK))


@pytest.mark.parametrize("number", SLOW_CHUNKS)
def test_a_chunk_that_nobody_is_to_blame_for_is_not_run_for_ever(number: int) -> None:
    hold(range(Family.SLOW + number, Family.SLOW + number + 1))


@pytest.mark.parametrize("number", SLOW_COMMITS)
def test_a_commit_that_outlasts_its_transaction_is_not_made_for_ever(number: int) -> None:
    hold(range(Family.DEPLOYED + number, Family.DEPLOYED + number + 1))


@pytest.mark.parametrize("start", range(Family.REFUSING, Family.REFUSING + REFUSING_SEEDS, CHUNK))
def test_what_the_broker_refuses_is_set_aside_and_nothing_else(start: int) -> None:
    before = faults["refused"]
    test_every_invariant_holds_under_every_fault(start)
    assert faults["refused"] > before


@pytest.mark.parametrize("start", range(Family.GROWING, Family.GROWING + GROWING_SEEDS, CHUNK))
def test_sources_that_grow_are_read_whole_under_every_fault(start: int) -> None:
    test_every_invariant_holds_under_every_fault(start)
    assert faults["begun anew for a source that has grown"] > 0


@pytest.mark.parametrize("start", range(Family.HOSTILE, Family.HOSTILE + HOSTILE_SEEDS, CHUNK))
def test_what_strangers_write_is_set_aside_and_carries_no_event_time_away(start: int) -> None:
    kinds = [f"garbage {kind}" for kind in GARBLED] + [f"forged {kind}" for kind in KINDS]
    before = Counter(faults)
    test_every_invariant_holds_under_every_fault(start)
    assert [kind for kind in kinds if faults[kind] == before[kind]] == []


@pytest.mark.parametrize("start", range(Family.LISTS, Family.LISTS + LIST_SEEDS, CHUNK))
def test_lists_and_side_outputs_hold_under_every_fault(start: int) -> None:
    test_every_invariant_holds_under_every_fault(start)


def test_every_fault_of_the_campaign_really_struck() -> None:
    if sum(faults.values()) == 0:  # this test was picked alone
        test_every_invariant_holds_under_every_fault(0)
        test_every_invariant_holds_under_every_fault(CHUNK)
        assert faults["kill"] > 0
        return
    kinds = ["kill", "freeze", "cut", "storm", "stop", "join", "compact", "lose_disk", "lose_topic"]
    kinds += ["tombstones dropped"]
    fates = [
        f"{fate} {what}"
        for fate in ("request_lost", "reply_lost", "request_late")
        for what in ("writer.produce", "writer.positions", "writer.end", "member.heartbeat", "reader.fetch")
    ]
    traps = [f"trap {what} {when}" for what in sorted(set(TRAPS)) for when in ("before", "after")]
    work = ["work slow", "work long", "work stuck", "work stuck_late", "ended by its watch"]
    missing = [name for name in (*kinds, *fates, *traps, *work) if faults[name] == 0]
    assert missing == []


def test_a_seed_replays_to_the_letter_in_other_processes() -> None:
    seeds = (3, 7, 11, 55)
    program = (
        "from tests.simulation.simulate import quiet, simulate\n"
        "with quiet():\n"
        f"    print([(v.trace, v.steps, v.virtual_s) for v in map(simulate, {seeds})])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "12345")
    }
    assert len(printed) == 1
