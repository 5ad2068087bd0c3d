"""Which plan a worker runs: stored with every commit, compared at every restore."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from streamkit.graph.fingerprint import describe_plan, fingerprint
from streamkit.graph.plan import Plan

NOTHING: Mapping[str, list[str]] = MappingProxyType({})
_encode = msgspec.json.Encoder(order="sorted").encode


class PlanIdentity(msgspec.Struct, frozen=True):
    """A resolved plan, as far as its stored state depends on it."""

    generation: int
    fingerprint: str
    description: dict[str, Any]

    def encode(self, dropped: Mapping[str, list[str]] = NOTHING) -> bytes:
        """The description as it is stored beside the state, with the stores of each stage that were given up."""
        return _encode(self.description | ({"dropped": dropped} if dropped else {}))


def identify(plan: Plan) -> PlanIdentity:
    """The identity of a resolved plan."""
    return PlanIdentity(plan.generation, fingerprint(plan), describe_plan(plan))
