"""Numbers of variable length, as protocol buffers write them: seven bits per byte."""

_MOST_BITS = 64


def encode_varint(value: int) -> bytes:
    """Encode a number that is not negative."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(message: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the number at a position and the position after it.

    Raises:
        IndexError: the message ends within the number.
        ValueError: the number has more than 64 bits.
    """
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if byte < 0x80:
            return value, position
        if shift > _MOST_BITS:
            raise ValueError("a number does not end")
