"""TIFF files of any layout, written tag by tag, and the pixels that a person sees in them.

Source: TIFF 6.0, sections 2 to 6 (tags), 14 (predictor), 15 (tiles), 18 (alpha), 21 (YCbCr).
"""

import struct
import zlib
from collections.abc import Mapping
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[Any]
Page = tuple[dict[int, Any], list[bytes]]
"""Tag → its values, and the parts of the picture."""

COMPRESSIONS: dict[str, tuple[int, Any]] = {
    "none": (1, bytes),
    "lzw": (5, imagecodecs.lzw_encode),
    "deflate": (8, zlib.compress),
    "packbits": (32773, imagecodecs.packbits_encode),
    "lzma": (34925, imagecodecs.lzma_encode),
    "zstd": (50000, imagecodecs.zstd_encode),
}
WHITE_IS_ZERO, GRAY, RGB, PALETTE, CMYK, YCBCR = 0, 1, 2, 3, 5, 6


def write_tiff(*pages: Page, order: str = "<") -> bytes:
    """Write a file of the pages that `page` makes; those in a tag 330 are written before theirs."""
    file = bytearray((b"II*\0" if order == "<" else b"MM\0*") + bytes(4))

    def add(page: Page, link: int | None) -> int:
        tags, parts = dict(page[0]), page[1]
        if 330 in tags:
            tags[330] = [add(child, None) for child in tags[330]]
        places = []
        for part in parts:
            places.append(len(file))
            file.extend(part + bytes(len(part) % 2))
        offsets, counts = (324, 325) if 322 in tags else (273, 279)
        tags |= {offsets: places, counts: [len(part) for part in parts]}
        entries = b""
        for tag, value in sorted(tags.items()):
            values = [value] if isinstance(value, int) else value
            long = max(values, default=0) > 65535 or tag in (273, 279, 324, 325, 330)
            kind, count = 4 if long else 3, len(values)
            data = struct.pack(f"{order}{count}{'I' if long else 'H'}", *values)
            if len(data) > 4:
                place, data = len(file), data + bytes(len(data) % 2)
                file.extend(data)
                data = struct.pack(f"{order}I", place)
            entries += struct.pack(f"{order}HHI", tag, kind, count) + data.ljust(4, b"\0")
        place = len(file)
        if link is not None:
            file[link : link + 4] = struct.pack(f"{order}I", place)
        file.extend(struct.pack(f"{order}H", len(tags)) + entries + bytes(4))
        return place

    link = 4
    for page in pages:
        add(page, link)
        link = len(file) - 4
    return bytes(file)


def page(
    samples: Samples,
    photometric: int,
    *,
    bits: int = 8,
    planar: int = 1,
    compression: str = "none",
    tile: int = 0,
    order: str = "<",
    predictor: int = 1,
    tags: Mapping[int, Any] | None = None,
) -> Page:
    """Encode integers [height, width, samples], in strips of 7 rows or in tiles, with all tags."""
    height, width, count = samples.shape
    rows, columns = (tile, tile) if tile else (7, width)
    parts = []
    for plane in np.split(samples, count, axis=2) if planar == 2 else [samples]:
        for top in range(0, height, rows):
            for left in range(0, width, columns):
                part = plane[top : top + rows, left : left + columns].astype(np.int64)
                if tile:
                    below, beside = tile - part.shape[0], tile - part.shape[1]
                    part = np.pad(part, ((0, below), (0, beside), (0, 0)), mode="edge")
                if predictor == 2:
                    part = np.concatenate([part[:, :1], np.diff(part, axis=1)], axis=1)
                parts.append(COMPRESSIONS[compression][1](pack(part % 2**bits, bits, order)))
    written = {
        256: width,
        257: height,
        258: [bits] * count,
        259: COMPRESSIONS[compression][0],
        262: photometric,
        277: count,
        284: planar,
        317: predictor,
        **({322: tile, 323: tile} if tile else {278: rows}),
        **(tags or {}),
    }
    return written, parts


def pack(values: Samples, bits: int, order: str) -> bytes:
    """Pack integers [rows, columns, samples], the first sample into the highest bits of a byte."""
    if bits == 16:
        return values.astype(f"{order}u2").tobytes()
    rows = values.reshape(len(values), -1)
    single = rows[..., None] >> np.arange(bits - 1, -1, -1) & 1
    return np.packbits(single.reshape(len(values), -1), axis=1).tobytes()
