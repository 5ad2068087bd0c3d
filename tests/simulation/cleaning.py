"""A log cleaner that drops tombstones once they are old, and local state that comes back when they are gone.

Such a history has a long silence in the middle: whatever happens after it is moved behind it. Some hosts go before it and
come back after it, with what lies on their disks.
"""

import contextlib
from collections.abc import Iterator
from random import Random

import msgspec

from streamkit.runtime import restore
from tests.simulation.families import Family, family_of
from tests.simulation.scenario import Action, ActionKind, Bias, Scenario, stream

# How many of the seeds have such a cleaner.
SHARE = 0.25
# A day, here. Half of it is longer than a worker waits before it looks who holds its changelog back; and a silence that
# is longer than this all is still too short for a source to be idle.
KEPT_S = 14.0


def with_cleaner(scenario: Scenario, bias: Bias) -> Scenario:
    """The same scenario, in some seeds with a cleaner and a silence.

    Nobody sets clocks then, by more than tombstones are kept here: nobody could say how old anything is.
    """
    chance = stream(scenario.seed, "cleaner")
    is_chosen = bias.is_cleaned or chance.random() < SHARE
    if not is_chosen or family_of(scenario.seed) not in (Family.PLAIN, Family.TIMED):
        return scenario
    end_s = max(load.at_s for load in scenario.loads)
    falls_s = chance.choice((chance.uniform(0.1, end_s), end_s + 1.0))
    lasts_s = KEPT_S * chance.uniform(0.4, 1.7)
    wakes_s = falls_s + lasts_s

    def moved(at_s: float) -> float:
        return at_s if at_s < falls_s else at_s + lasts_s

    replace = msgspec.structs.replace
    actions = [replace(action, at_s=moved(action.at_s)) for action in scenario.actions]
    actions += _absences(chance, falls_s, wakes_s)
    actions += [_act(at_s, "compact") for at_s in _times(chance, falls_s, wakes_s, (2, 4))]
    actions += [_act(at_s, "compact") for at_s in _times(chance, wakes_s - 0.5, wakes_s + 0.5, (1, 2))]
    return replace(
        scenario,
        loads=tuple(replace(load, at_s=moved(load.at_s)) for load in scenario.loads),
        actions=tuple(sorted(actions, key=lambda action: action.at_s)),
        clock_steps=(),
        tombstones_kept_s=KEPT_S,
    )


def _absences(chance: Random, falls_s: float, wakes_s: float) -> Iterator[Action]:
    """Processes that are dead or frozen over the silence, and disks that are left before it and found again after it."""
    for at_s in _times(chance, 0.0, falls_s, (1, 2, 4)):
        lasts_s = wakes_s - at_s + chance.uniform(-0.2, 1.0)
        kind: ActionKind = chance.choice(("kill", "kill", "freeze", "freeze_at", "lose_disk"))
        yield _act(
            at_s,
            kind,
            worker=chance.randrange(8),
            lasts_s=0.1 if kind == "lose_disk" else lasts_s,
            trap=chance.choice(("reader.fetch", "reader.fetch", "admin.end_offsets", "admin.positions")),
        )
    for at_s in _times(chance, wakes_s, wakes_s + 1.0, (0, 1, 2)):
        kind = chance.choice(("kill", "lose_disk", "lose_disk"))
        yield _act(at_s, kind, worker=chance.randrange(8), lasts_s=chance.uniform(0.02, 0.5))


def _times(chance: Random, start_s: float, end_s: float, counts: tuple[int, ...]) -> list[float]:
    return [chance.uniform(start_s, end_s) for _ in range(chance.choice(counts))]


def _act(
    at_s: float, kind: ActionKind, *, worker: int = 0, lasts_s: float = 0.0, trap: str = "reader.fetch"
) -> Action:
    return Action(at_s, kind, worker, lasts_s, trap, True, (0.0, 0.0, 0.0))


@contextlib.contextmanager
def local_state_lasts(scenario: Scenario) -> Iterator[None]:
    """Workers believe local state for half the time that tombstones are kept, as everywhere."""
    before = restore.LOCAL_STATE_MS_MAX
    if scenario.tombstones_kept_s is not None:
        restore.LOCAL_STATE_MS_MAX = int(scenario.tombstones_kept_s * 1000) // 2
    try:
        yield
    finally:
        restore.LOCAL_STATE_MS_MAX = before
