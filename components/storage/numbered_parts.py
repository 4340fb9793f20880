"""A file of parts that workers read one by one, by their numbers.

Beam pickles an element about eight times on its way to a worker, and a job's graph ends at 2 GB: it
moves the numbers of the parts instead.
"""

import itertools
import struct
from collections.abc import Iterable

from components.contract.artifact_files import open_file

# The parts, the offset of each and the end of the last, and the number of parts.
_NUMBER = struct.Struct("<Q")


def write_parts(path: str, parts: Iterable[bytes]) -> None:
    """Write parts to a file, a path or URL, one by one."""
    sizes = []
    with open_file(path, "wb") as file:
        for part in parts:
            sizes.append(len(part))
            file.write(part)
        offsets = itertools.accumulate(sizes, initial=0)
        file.write(b"".join(map(_NUMBER.pack, (*offsets, len(sizes)))))


def read_part(path: str, number: int) -> bytes:
    """Read the part with this number, counted from 0."""
    with open_file(path, "rb") as file:
        file.seek(-_NUMBER.size, 2)
        [count] = _NUMBER.unpack(file.read(_NUMBER.size))
        file.seek(-_NUMBER.size * (count + 2 - number), 2)
        start, end = struct.unpack("<2Q", file.read(2 * _NUMBER.size))
        file.seek(start)
        content: bytes = file.read(end - start)
        return content
