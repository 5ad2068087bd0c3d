"""An output batch under construction, as strict as the real builder."""

from streamkit.errors import Bug
from streamkit.model.records import Headers

# Kafka's fixed cost of a batch, and the least a record costs beside its key, value and headers.
BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 7
# As in the real writer: under the broker's default limit of a message, which counts the batch as a whole.
BATCH_BYTES_MAX = 900_000

Draft = tuple[int, bytes | None, bytes | None, Headers]


class MemoryBatch:
    """Records on their way out; full at a number of bytes, but the first record always fits."""

    __slots__ = ("bytes_max", "drafts", "size_bytes")

    def __init__(self, bytes_max: int = BATCH_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.drafts: list[Draft] = []
        self.size_bytes = BATCH_OVERHEAD_BYTES

    def append(
        self, index: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> object | None:
        """Add record number `index`; None if it does not fit any more and was not added.

        Raises:
            Bug: the numbers do not run 0, 1, 2, ...
            TypeError: a key, value or timestamp that the real builder would refuse.
        """
        drafts = self.drafts
        if index != len(drafts):
            raise Bug(f"record number {index} of a batch, after {len(drafts)} records")
        if type(timestamp) is not int:
            raise TypeError(f"timestamp is {type(timestamp).__name__}, not int")
        if type(headers) is not list:  # the port allows any sequence, the client's builder does not
            raise TypeError(f"headers are {type(headers).__name__}, not list")
        size = RECORD_OVERHEAD_BYTES + _length("key", key) + _length("value", value)
        for name, content in headers:
            size += 2 + len(name.encode()) + _length("header", content)
        if drafts and self.size_bytes + size > self.bytes_max:
            return None
        # Bytes, not a view of a buffer that its owner may fill again.
        drafts.append(
            (timestamp, None if key is None else bytes(key), None if value is None else bytes(value), headers)
        )
        self.size_bytes += size
        return self

    def size(self) -> int:
        """The bytes that a broker counts."""
        return self.size_bytes


def _length(name: str, content: bytes | None) -> int:
    if content is None:
        return 0
    if not isinstance(content, bytes | bytearray | memoryview):
        raise TypeError(f"{name} is {type(content).__name__}, not bytes")
    return len(content)
