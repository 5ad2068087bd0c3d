"""Which plan a worker runs: stored with every commit, compared at every restore."""

from typing import Any

import msgspec

from streamkit.graph.fingerprint import describe_plan, fingerprint
from streamkit.graph.plan import Plan

_encode = msgspec.json.Encoder(order="sorted").encode


class PlanIdentity(msgspec.Struct, frozen=True):
    """A resolved plan, as far as its stored state depends on it."""

    generation: int
    fingerprint: str
    description: dict[str, Any]

    def encode(self) -> bytes:
        """The description as it is stored beside the state."""
        return _encode(self.description)


def identify(plan: Plan) -> PlanIdentity:
    """The identity of a resolved plan."""
    return PlanIdentity(plan.generation, fingerprint(plan), describe_plan(plan))
