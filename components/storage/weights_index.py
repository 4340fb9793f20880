"""The sizes of a SavedModel's weights, from the index beside them, without TensorFlow.

Sources: `table_format.md` of LevelDB, and `tensor_bundle.proto` of TensorFlow, which does not
compress the index.
"""

from collections.abc import Iterator

from components.contract.wire_format import read_varint

_MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER_BYTES = 48
_NUMBER, _DELIMITED, _FIXED = 0, 2, 5
# Fields of `BundleEntryProto`.
_SHARD, _OFFSET, _SIZE = 3, 4, 5


def needed_bytes(index: bytes) -> dict[int, int]:
    """Return the size of each data file, by number, that an index describes.

    Raises:
        ValueError: the index is damaged.
    """
    needed: dict[int, int] = {}
    if not index.endswith(_MAGIC):
        raise ValueError("the index is truncated")
    try:
        _, _, start, size = _numbers(index[-_FOOTER_BYTES:], 4)
        for _, place in _read_block(index, start, size):
            for name, entry in _read_block(index, *_numbers(place, 2)):
                fields = dict(_read_numbers(entry)) if name else {}
                shard = fields.get(_SHARD, 0)
                end = fields.get(_OFFSET, 0) + fields.get(_SIZE, 0)
                needed[shard] = max(needed.get(shard, 0), end)
    except (IndexError, TypeError) as error:
        raise ValueError("the index is damaged") from error
    return needed


def _read_block(table: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values; a key is stored without the bytes that it shares with the last one."""
    block = table[start : start + size]
    end = len(block) - 4 * (1 + int.from_bytes(block[-4:], "little"))
    position, key = 0, b""
    while position < end:
        shared, position = read_varint(block, position)
        rest, position = read_varint(block, position)
        length, position = read_varint(block, position)
        key = key[:shared] + block[position : position + rest]
        position += rest + length
        yield key, block[position - length : position]


def _read_numbers(message: bytes) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the fields of a message and their values, if these are numbers."""
    position = 0
    while position < len(message):
        tag, position = read_varint(message, position)
        field, kind = tag >> 3, tag & 7
        if kind == _FIXED:
            position += 4
            continue
        value, position = read_varint(message, position)
        if kind == _DELIMITED:
            position += value
        elif kind == _NUMBER:
            yield field, value


def _numbers(data: bytes, count: int) -> list[int]:
    numbers, position = [], 0
    for _ in range(count):
        number, position = read_varint(data, position)
        numbers.append(number)
    return numbers
