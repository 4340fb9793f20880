"""Thumbnails on a terminal that shows colors: two pixels in each character."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from components.images.thumbnails import make_thumbnail
from pipeline_def.local.display.rows import INDENT

_LARGEST, _SMALLEST, _SPACE = 32, 8, 2
_COLORFUL = ("truecolor", "256")
_UPPER_HALF = "▀"


def print_thumbnails(console: Console, title: str, images: Sequence[bytes]) -> None:
    """Print images side by side, if the terminal shows colors and has room for them."""
    room = (console.width - INDENT) // max(len(images), 1) - _SPACE
    if console.is_terminal and console.color_system in _COLORFUL and room >= _SMALLEST:
        row = Table.grid(padding=(0, _SPACE, 0, 0))
        drawn = [_draw(encoded, side=min(room, _LARGEST)) for encoded in images]
        row.add_row(Text(f"{title:<{INDENT - _SPACE}}", "bold"), *drawn)
        console.print(row)


def _draw(encoded: bytes, *, side: int) -> Text:
    """Draw a thumbnail, or nothing if the file is not an image."""
    picture = make_thumbnail(encoded, side=side)
    if picture is None:
        return Text()
    pixels = np.asarray(Image.open(io.BytesIO(picture.jpeg)).convert("RGB")).tolist()
    lines = (zip(*pixels[top : top + 2], strict=True) for top in range(0, len(pixels), 2))
    return Text("\n").join(Text.assemble(*map(_draw_column, line)) for line in lines)


def _draw_column(column: tuple[Sequence[int], ...]) -> tuple[str, Style]:
    """Draw two pixels, or one in the last line of an odd height."""
    upper, lower = (*(Color.from_rgb(*pixel) for pixel in column), None)[:2]
    return _UPPER_HALF, Style(color=upper, bgcolor=lower)
