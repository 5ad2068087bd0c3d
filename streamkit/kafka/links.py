"""The connections by which a writer id has worked: it does not outlive any of them.

A broker that is lost may have forgotten to end a transaction (`runtime/retire.py`). The loss of a connection is how a
client hears of it.
"""

from collections.abc import Iterable

from streamkit.kafka.connection import Connection, Purpose


class Links:
    """The connections that the transactions of one id have used."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._used: dict[tuple[int, Purpose], object | None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no transaction has ended yet, so that none can have been forgotten."""
        return not self._used

    @property
    def is_whole(self) -> bool:
        """Whether all of them are still up."""
        link = self._connection.link
        return all(known is not None and link(*at) is known for at, known in self._used.items())

    def remember(self, used: Iterable[tuple[int | None, Purpose]]) -> None:
        """A transaction has ended that used these brokers, by these lanes; one whose connection is gone counts as lost."""
        for node, lane in used:
            if node is not None and (node, lane) not in self._used:
                self._used[node, lane] = self._connection.link(node, lane)

    def forget(self) -> None:
        """Begin with a new id."""
        self._used.clear()
