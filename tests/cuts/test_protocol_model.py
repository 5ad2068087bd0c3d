"""The protocol of cuts holds in random schedules, and every way of getting it wrong is noticed.

`MODEL_SCHEDULES=100000 pytest tests/cuts/test_protocol_model.py` runs more of them.
"""

import os
from collections import Counter

import pytest

from tests.cuts.model import Bias, Protocol
from tests.cuts.schedule import HOSTILE, LAGGING, LATE, SMOOTH, run
from tests.cuts.wrong_protocols import (
    BarrierPerPartition,
    BarriersBeforeTheTriggerAreOverrun,
    EndsAreNotHeard,
    OldRoundsCount,
    ReleasedAtOnce,
    ReleasedAtRejoin,
    ReleasedByTheFirst,
    UncommittedControl,
)

SCHEDULES = int(os.environ.get("MODEL_SCHEDULES", "2000"))
BIASES = (SMOOTH, LATE, HOSTILE, SMOOTH, LAGGING)

pytestmark = pytest.mark.timeout(60 + SCHEDULES // 50)


def test_in_no_schedule_a_complete_cut_is_none_or_a_task_stands_still_for_ever():
    seen: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        found = run(seed, bias=BIASES[seed % len(BIASES)])
        assert found.problems == [], f"seed {seed}"
        seen += found.counts
    # Otherwise nothing was shown.
    assert seen["complete"] > SCHEDULES // 3
    assert seen["complete with readers"] > SCHEDULES // 20
    assert seen["stopping and complete"] > SCHEDULES // 20
    assert seen["aborted"] > SCHEDULES // 3
    assert seen["complete in a later round"] > SCHEDULES // 200


def test_a_seed_tells_the_same_story_again():
    assert [run(seed, bias=LATE) for seed in range(20)] == [run(seed, bias=LATE) for seed in range(20)]


@pytest.mark.parametrize(
    ("protocol", "bias", "invariant"),
    [
        (ReleasedAtOnce, SMOOTH, "I10a"),
        (ReleasedByTheFirst, SMOOTH, "I10a"),
        (UncommittedControl, SMOOTH, "I10a"),
        (BarrierPerPartition, SMOOTH, "I10a"),
        (BarriersBeforeTheTriggerAreOverrun, LAGGING, "I10a"),
        (ReleasedAtRejoin, LATE, "I10a"),
        # Hardly ever: a zombie must be the last to reach the cut, and write behind the round that released all others.
        (OldRoundsCount, LATE, "I10a"),
        (EndsAreNotHeard, SMOOTH, "I18"),
    ],
)
def test_a_protocol_that_is_wrong_is_caught(protocol: type[Protocol], bias: Bias, invariant: str):
    for seed in range(3000):
        if any(problem.startswith(invariant) for problem in run(seed, protocol(), bias).problems):
            return
    pytest.fail("nobody has noticed", pytrace=False)
