"""given up: state that this version of a pipeline has no step for any more, and that a person has allowed to be lost.

Whoever sets `--allow-dropped-state` must be able to see what that was: each worker tells it once, and `streamkit check`
tells beforehand what would be lost.
"""

import structlog

from streamkit.graph.fingerprint import Description, given_up
from streamkit.task.identity import PlanIdentity

log = structlog.get_logger()


class GivenUp:
    """Tells of each store once, however many tasks had a part of it."""

    def __init__(self, event: str = "state is given up for good") -> None:
        self._event = event
        self._told: set[str] = set()

    def tell(self, stored: Description | None, plan: PlanIdentity) -> bool:
        """Say what of a stored plan's state is lost by this plan, unless it was said; whether anything is."""
        lost = [] if stored is None else given_up(stored, plan.description)
        if not self._told.issuperset(lost):
            log.warning(
                self._event, lost=[each for each in lost if each not in self._told], by="allow_dropped_state"
            )
            self._told.update(lost)
        return bool(lost)
