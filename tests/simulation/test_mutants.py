"""The checkers are checked: every deliberate fault must be noticed within a bounded number of seeds."""

import pytest

from tests.simulation.mutants import MUTANTS, Mutant, mutated
from tests.simulation.simulate import quiet, simulate

SEEDS_MAX = 300


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_broken_promise_is_noticed(mutant: Mutant) -> None:
    with quiet(), mutated(mutant):
        for seed in (mutant.seed, *range(SEEDS_MAX)):
            if simulate(seed).problems:
                return
    pytest.fail(f"nobody noticed in {SEEDS_MAX} seeds: {mutant.name}")
