"""The checkers are checked: every deliberate fault must be noticed within a bounded number of seeds."""

import pytest

from tests.simulation import attempts
from tests.simulation.families import family_of
from tests.simulation.mutants import MUTANTS, Mutant, mutated
from tests.simulation.simulate import quiet, simulate

SEEDS_MAX = 300


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_broken_promise_is_noticed(mutant: Mutant) -> None:
    with quiet():
        start = family_of(mutant.seed)
        for seed in (mutant.seed, *range(start, start + SEEDS_MAX)):
            if is_noticed(mutant, seed):
                return
    pytest.fail(f"nobody noticed in {SEEDS_MAX} seeds: {mutant.name}")


def is_noticed(mutant: Mutant, seed: int) -> bool:
    """Whether a seed fails with the mutant, and only with it."""
    with mutated(mutant):
        if not simulate(seed, mutant.bias).problems:
            return False
    return not simulate(seed, mutant.bias).problems


def test_a_record_that_is_run_in_circles_is_noticed_by_the_count_of_its_runs_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (mutant,) = [each for each in MUTANTS if each.name == "tried again on the spot"]
    with quiet():
        assert is_noticed(mutant, mutant.seed)
        monkeypatch.setattr(attempts, "RUNS_MAX", 1_000_000)
        assert not is_noticed(mutant, mutant.seed)
