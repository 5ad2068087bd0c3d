"""The transactional ids of a worker: one for each life, and another one after every doubt."""

from typing import Protocol

from streamkit.runtime.duplicate_names import DuplicateNames


class Memory(Protocol):
    """What outlives the process; `runtime/slot.py` keeps it on disk."""

    def former_writer(self) -> str | None:
        """The writer id that a former holder of our name, surely dead, had last."""
        ...

    def remember_writer(self, writer_id: str) -> None:
        """Keep our writer id for whoever has our name after us."""
        ...


class WriterNames:
    """Names that nobody has ever used, and the one that was in use before."""

    def __init__(self, life: str, memory: Memory) -> None:
        """`life` is the name of this life of the worker, which no other has."""
        self._life = life
        self._memory = memory
        self._count = 0
        self.duplicates = DuplicateNames(life)
        # The one that has to be retired before the next one is taken: at first that of our former life.
        self.former = memory.former_writer()

    def next(self) -> str:
        """A new name; whoever comes after us will know of it before it is used."""
        self._count += 1
        self.former = f"{self._life}.{self._count}"
        self._memory.remember_writer(self.former)
        return self.former
