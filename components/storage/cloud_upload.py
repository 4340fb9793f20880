"""Uploads to Cloud Storage that may be made twice: bound to a generation, and with a checksum."""

from __future__ import annotations

import base64
import json
from typing import Any

import google_crc32c
from gcsfs.core import GCSFileSystem, quote
from gcsfs.retry import ChecksumError, HttpError

PIECE = 8 * 2**20
"""Above so many bytes an upload goes in pieces, of which only the last one is sent again."""


class LostSessionError(Exception):
    """An upload in pieces is over, expired, or finished without our knowing: begin anew."""


async def send(fs: GCSFileSystem, path: str, data: bytes, generation: str) -> dict[str, Any]:
    """Upload an object, whose checksum the store compares; return its description."""
    bucket, _, name = path.partition("/")
    target = f"{fs._location}/upload/storage/v1/b/{quote(bucket)}/o"
    properties = {"name": name, "crc32c": crc32c_of(data)}
    way = _send_in_pieces if len(data) > PIECE else _send_at_once
    try:
        return await way(fs, target, properties, data, generation)
    except HttpError as error:
        if "CRC32C" in str(error):
            raise ChecksumError(str(error)) from error
        raise


async def _send_at_once(
    fs: GCSFileSystem, target: str, properties: dict[str, str], data: bytes, generation: str
) -> dict[str, Any]:
    # A boundary that no content has, as it says what the checksum of the content is.
    mark = f"part-{crc32c_of(data).encode().hex()}-{len(data)}"
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
    """Upload resumably: a piece that is sent twice counts once.

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
        # As much as has arrived.
        start = int(headers["Range"].rpartition("-")[2]) + 1 if "Range" in headers else 0


def crc32c_of(data: bytes) -> str:
    """Return the checksum of an object, as Cloud Storage writes it."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
