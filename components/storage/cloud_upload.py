"""Upload to Cloud Storage safely: bound to a generation, and verified by a checksum."""

import json
from typing import Any

from gcsfs.core import GCSFileSystem, quote
from gcsfs.retry import ChecksumError, HttpError

from components.storage.folder_listing import digest

PIECE = 8 * 2**20
"""Larger uploads go in pieces of this many bytes, of which only the last one is ever resent."""


class LostSessionError(Exception):
    """An upload in pieces has expired, or has finished without our knowing: start again."""


async def send(fs: GCSFileSystem, path: str, data: bytes, generation: str) -> dict[str, Any]:
    """Upload an object, whose checksum the store verifies; return its metadata."""
    bucket, _, name = path.partition("/")
    target = f"{fs._location}/upload/storage/v1/b/{quote(bucket)}/o"
    properties = {"name": name, "crc32c": digest(data, "crc32c")}
    upload = _send_in_pieces if len(data) > PIECE else _send_at_once
    try:
        return await upload(fs, target, properties, data, generation)
    except HttpError as error:
        if "CRC32C" in str(error):
            raise ChecksumError(str(error)) from error
        raise


async def _send_at_once(
    fs: GCSFileSystem, target: str, properties: dict[str, str], data: bytes, generation: str
) -> dict[str, Any]:
    # Contains the checksum of the content, so the content cannot contain it.
    mark = f"part-{digest(data, 'crc32c').encode().hex()}-{len(data)}"
    head = (
        f"--{mark}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n"
        f"{json.dumps(properties)}\r\n--{mark}\r\nContent-Type: application/octet-stream\r\n\r\n"
    )
    found: dict[str, Any] = await fs._call(
        "POST",
        target,
        uploadType="multipart",
        ifGenerationMatch=generation,
        headers={"Content-Type": f"multipart/related; boundary={mark}"},
        data=head.encode() + data + f"\r\n--{mark}--\r\n".encode(),
        json_out=True,
    )
    return found


async def _send_in_pieces(
    fs: GCSFileSystem, target: str, properties: dict[str, str], data: bytes, generation: str
) -> dict[str, Any]:
    """Upload resumably: a piece sent twice counts once.

    Source: "Resumable uploads" in the documentation of Cloud Storage.
    """
    headers, _ = await fs._call(
        "POST",
        target,
        uploadType="resumable",
        ifGenerationMatch=generation,
        headers={"X-Upload-Content-Length": str(len(data))},
        json=properties,
    )
    session, start = headers["Location"], 0
    while True:
        piece = data[start : start + PIECE]
        span = f"bytes {start}-{start + len(piece) - 1}/{len(data)}"
        try:
            headers, answer = await fs._call(
                "PUT", session, headers={"Content-Range": span}, data=piece
            )
        except FileNotFoundError:
            raise LostSessionError(session) from None
        if answer:
            found: dict[str, Any] = json.loads(answer)
            return found
        # The store may have received only a part of the piece.
        start = int(headers["Range"].rpartition("-")[2]) + 1 if "Range" in headers else 0
