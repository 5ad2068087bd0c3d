"""duplicate_names: two workers of one name in the group, which happens when their state folders do not know of each other.

A name is host and slot, and a slot is taken in a state folder (`runtime/slot.py`): two containers of one host name, or two
checkouts on one host, each take slot 0. They do not disturb each other, for every life has a writer id of its own, but
logs and metrics cannot tell them apart, and a person looks for one worker where there are two.
"""

import structlog

log = structlog.get_logger()


class DuplicateNames:
    """Looks for workers of our name whenever the group says who is alive, and tells of each once."""

    def __init__(self, life: str) -> None:
        """`life` is our name in this life, as `Slot.life_name` makes it: the worker's name, then what no other life has."""
        self._life = life
        self._told: set[str] = set()

    def look(self, live_writers: frozenset[str]) -> None:
        """Tell of those that are new."""
        name = _name(self._life)
        twins = {each for each in live_writers if each != self._life and _name(each) == name}
        for twin in sorted(twins - self._told):
            log.warning(
                "another worker has our name",
                name=name,
                ours=self._life,
                other=twin,
                hint="give each a name by STREAMKIT_WORKER, or let those of one host share a --state-dir; if the other "
                "one was killed just now and its state folder is gone, the group forgets it within session_timeout_s",
            )
        self._told |= twins


def _name(life: str) -> str:
    return life.rpartition(".")[0]
