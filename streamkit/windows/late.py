"""Late records: those whose windows are all closed. They are counted, or leave by a port of their own; never lost."""

from streamkit.model.counts import LATE_RECORDS
from streamkit.operators.step import Ports, Push, Scope

# The port by which they leave a window step, as they came.
LATE = "late"


def late_way(outputs: Ports, scope: Scope) -> Push:
    """Where a window step puts a record that is late for all its windows; counted if nobody listens to the port."""

    def count(key: bytes | None, value: object, timestamp: int) -> None:  # noqa: ARG001 - only that it was late is noted
        scope.count(LATE_RECORDS)

    return outputs.get(LATE, count)
