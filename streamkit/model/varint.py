"""Varints: numbers in seven bits per byte, lowest first, as Kafka's requests and the keys of state have them."""


def uvarint(number: int) -> bytes:
    """`number` as a varint: one byte below 128."""
    if number < 0x80:
        return number.to_bytes(1, "big")
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """The number that `uvarint` wrote at this place, and the place behind it."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
