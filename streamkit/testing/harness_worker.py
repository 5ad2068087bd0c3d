"""One place for a worker in a harness: processes come and go in it, its name and its disk stay."""

import asyncio

from streamkit.runtime.loop import WorkerLoop
from streamkit.state.memory import MemoryStores
from streamkit.testing.memory import MemoryLog


class HarnessWorker:
    """One worker: its name, its disk, and the worker loop that is running, if one is."""

    def __init__(self, number: int) -> None:
        self.name = f"worker-{number}"
        self.stores = MemoryStores()
        self.log: MemoryLog | None = None
        self.loop: WorkerLoop | None = None
        self.work: asyncio.Task[None] | None = None
        self._member: str | None = None
        self._losses = b""
        self._writer: str | None = None
        self._lives = 0

    def begin_life(self) -> None:
        """A new process takes this place."""
        self._lives += 1

    @property
    def life_name(self) -> str:
        """The name of the process that is in this place now."""
        return f"{self.name}.{self._lives}"

    def former_writer(self) -> str | None:
        """The writer id of the life before this one."""
        return self._writer

    def remember_writer(self, writer_id: str) -> None:
        """Keep it for the next life."""
        self._writer = writer_id

    def former_member(self) -> str | None:
        """The member id of the life before this one."""
        return self._member

    def remember_member(self, member_id: str) -> None:
        """Keep it for the next life."""
        self._member = member_id

    def read_losses(self) -> list[bytes]:
        """What the lives before this one wrote down."""
        return [self._losses]

    def write_losses(self, data: bytes) -> None:
        """Keep it for the next life."""
        self._losses = data
