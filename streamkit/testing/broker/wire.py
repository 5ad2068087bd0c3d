"""Ask a broker who it is: one hand-packed Metadata request over a plain socket.

An open port proves little: it may belong to another broker, or to one that is not ready. The answer names the
cluster and the nodes that are alive in it, which is what readiness means here.
"""

import socket
import struct
from typing import NamedTuple

METADATA = 3
METADATA_VERSION = 4  # old enough to have no tagged fields, new enough to tell the cluster's id
RESPONSE_BYTES_MAX = 1 << 20  # an answer without topics is tens of bytes; more is not Kafka


class Seen(NamedTuple):
    """What a broker says of its cluster: the id, and the nodes that are alive."""

    cluster_id: str | None
    nodes: frozenset[int]


def ask(host: str, port: int, timeout_s: float = 1.0) -> Seen | None:
    """Return what the broker at this address says of its cluster, or None while it gives no whole answer."""
    client = b"streamkit-probe"
    body = struct.pack(f">hhih{len(client)}si?", METADATA, METADATA_VERSION, 1, len(client), client, 0, False)
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", _receive(connection, 4))
            if not 0 < size <= RESPONSE_BYTES_MAX:
                return None
            return parse_metadata(_receive(connection, size))
    except (OSError, struct.error, UnicodeDecodeError):
        return None


def listens(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Tell whether somebody takes connections at this address."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError:
        return False
    return True


def parse_metadata(answer: bytes) -> Seen:
    """Read the cluster's id and its nodes from a Metadata response; struct.error if it is cut short."""
    nodes = set()
    position = 8  # after the correlation id and the throttle time
    (count,) = struct.unpack_from(">i", answer, position)
    position += 4
    for _ in range(count):
        (node,) = struct.unpack_from(">i", answer, position)
        _host, position = _string(answer, position + 4)
        _rack, position = _string(answer, position + 4)  # the port stands between them
        nodes.add(node)
    cluster_id, position = _string(answer, position)
    return Seen(cluster_id, frozenset(nodes))


def _string(answer: bytes, position: int) -> tuple[str | None, int]:
    """Read a nullable string; return it with the position after it."""
    (length,) = struct.unpack_from(">h", answer, position)
    start = position + 2
    if length < 0:
        return None, start
    (raw,) = struct.unpack_from(f">{length}s", answer, start)
    return raw.decode(), start + length


def _receive(connection: socket.socket, size: int) -> bytes:
    """Read exactly so many bytes; ConnectionError when the other side stops before."""
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError("the broker closed the connection inside an answer")
        parts += part
    return bytes(parts)
