"""Checksums of files as stores list them: CRC-32C or MD5, in base64."""

import base64
import hashlib
from collections.abc import Callable

import google_crc32c


def checksum_matches(data: bytes, checksum: str) -> bool:
    """Compare data with the checksum of a listing; one of an unknown kind always matches."""
    kind, _, expected = checksum.partition(":")
    return kind not in _DIGESTS or digest(data, kind) == expected


def digest(data: bytes, kind: str) -> str:
    """Return the checksum of data, crc32c or md5, in base64, as stores list it."""
    return base64.b64encode(_DIGESTS[kind](data)).decode()


_DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    "crc32c": lambda data: google_crc32c.value(data).to_bytes(4, "big"),
    "md5": lambda data: hashlib.md5(data, usedforsecurity=False).digest(),
}
