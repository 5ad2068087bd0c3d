"""Snapshots in memory, for tests."""

from streamkit.snapshots.store import Entry, already_stored, not_stored, require_name


class MemorySnapshots:
    """A SnapshotStore in a dict, which tests may change behind its back."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def put(self, name: str, content: bytes) -> None:
        """As `SnapshotStore.put`."""
        self.contents[require_name(name)] = bytes(content)

    def create(self, name: str, content: bytes) -> None:
        """As `SnapshotStore.create`."""
        if require_name(name) in self.contents:
            raise already_stored(name, "memory")
        self.contents[name] = bytes(content)

    def get(self, name: str) -> bytes:
        """As `SnapshotStore.get`."""
        content = self.contents.get(require_name(name))
        if content is None:
            raise not_stored(name, "memory")
        return content

    def list(self, folder: str) -> list[Entry]:
        """As `SnapshotStore.list`."""
        below = f"{require_name(folder)}/" if folder else ""
        return [
            Entry(name, len(content))
            for name, content in sorted(self.contents.items())
            if name.startswith(below)
        ]

    def delete(self, name: str) -> None:
        """As `SnapshotStore.delete`."""
        self.contents.pop(require_name(name), None)
