"""What a step declares about its state: names, types and schema versions."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

# The kinds of stores that hold timers.
TIMERS = ("event_timers", "processing_timers")


class StoreSpec(msgspec.Struct, frozen=True):
    """One named piece of keyed state of one stage.

    `name` is unique within the pipeline and decides where the state lives: renaming it is losing it. `kind` is one of
    those in `state/kinds.py`, and decides how it is kept. `version` is written into every value; `upcasters[n]` turns a
    decoded value (plain builtins) of version n into version n + 1.
    """

    name: str
    kind: str
    value_type: Any
    map_key_type: Any = None
    version: int = 1
    upcasters: Mapping[int, Callable[[Any], Any]] = {}
