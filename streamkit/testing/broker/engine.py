"""Talk to a Docker engine in the few words we need, with the standard library alone.

Run as a program it is the container's watch: it waits for the end of its standard input, a pipe from the owner,
and then removes the container. Hence it imports nothing of streamkit.
"""

import contextlib
import http.client
import os
import socket
import sys
from urllib.parse import quote, urlsplit

DEFAULT_HOST = "unix:///var/run/docker.sock"
PROBE_LIMIT_S = 0.8  # tests without Docker should not wait for it
REMOVE_LIMIT_S = 30.0


def status(method: str, path: str, limit_s: float = PROBE_LIMIT_S) -> int | None:
    """Send a request and return the HTTP status, or None if no engine answers within the limit."""
    host = urlsplit(os.environ.get("DOCKER_HOST") or DEFAULT_HOST)
    if host.scheme not in ("unix", "tcp", "http"):
        return None
    name, port = host.hostname or "localhost", host.port or 2375
    with contextlib.closing(http.client.HTTPConnection(name, port, timeout=limit_s)) as connection:
        try:
            if host.scheme == "unix":
                connection.sock = _unix_socket(host.path, limit_s)
            connection.request(method, path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None


def _unix_socket(path: str, limit_s: float) -> socket.socket:
    """Connect to the engine's socket file, which HTTPConnection does not know how to do."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(limit_s)
    try:
        connected.connect(path)
    except OSError:
        connected.close()
        raise
    return connected


def has_image(name: str) -> bool | None:
    """Tell whether the engine holds an image; None if no engine answers."""
    found = status("GET", f"/images/{quote(name, safe='/:')}/json")
    return None if found is None else found == http.client.OK


def remove_container(container_id: str) -> None:
    """End a container and remove it with its volumes, whatever its state."""
    status("DELETE", f"/containers/{container_id}?force=true&v=true", REMOVE_LIMIT_S)


if __name__ == "__main__":
    sys.stdin.read()
    remove_container(sys.argv[1])
