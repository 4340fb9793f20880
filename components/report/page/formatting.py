"""Formats text and numbers; templates call these functions as filters."""

import base64
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as escape_markup

from components.images.thumbnails import Thumbnail

# File names may hold control characters, some of which change the direction of text; invalid bytes
# arrive as lone surrogates, which cannot be encoded.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# What is in backticks, and an option with its value.
_CODE = re.compile(r"(`[^`]+`|--[a-z][a-z_.]*(?: (?!-)[^\s,;:)]+)?)")
_LONGEST = 60
# Pictures of up to this size are enlarged by whole numbers, so that each pixel is visible.
_TINY = 48


def escape(value: object) -> Markup:
    """Escape text for HTML; markup stays unchanged."""
    return value if isinstance(value, Markup) else escape_markup(_clean(str(value)))


def _clean(value: str) -> str:
    return _UNPRINTABLE.sub("\ufffd", value)


def isolate(value: str) -> Markup:
    """Keep right-to-left text from affecting its surroundings."""
    return Markup("<bdi>{}</bdi>").format(escape(value))


def mark_code(value: str) -> Markup:
    """Set options with their values, and what is in backticks, as code."""
    parts = _CODE.split(value)
    # Odd parts are code.
    marked = (
        Markup("<code>{}</code>").format(_clean(part.strip("`"))) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )
    return isolate(Markup("").join(marked))


def clip(value: str, most: int = _LONGEST) -> Markup:
    """Shorten to `most` characters, with the whole text as a tooltip."""
    short = shorten(value, most)
    if len(short) == len(value):
        return isolate(value)
    return Markup('<bdi title="{}">{}</bdi>').format(_clean(value), short)


def titled(value: str) -> Markup:
    """Add the text as a tooltip, as the style sheet may cut it off."""
    return Markup('<bdi title="{0}">{0}</bdi>').format(_clean(value))


def shorten(value: str, most: int) -> str:
    """Cut the middle out of long text: names differ at their ends."""
    clean = _clean(value)
    head, tail = most // 2, most - most // 2 - 1
    return clean if len(clean) <= most else f"{clean[:head]}…{clean[len(clean) - tail :]}"


def number(value: float) -> str:
    """Format with three decimals; a dash if undefined."""
    return f"{value:.3f}".replace("-", "−") if math.isfinite(value) else "–"


def signed(value: float) -> str:
    """Format a difference with its sign; tiny ones get another decimal."""
    decimals = 4 if 0 < abs(value) < 0.0005 else 3
    return f"{value:+.{decimals}f}".replace("-", "−") if math.isfinite(value) else "–"


def percent(value: float) -> str:
    """Format a fraction; only exactly 1 is shown as 100%, and only 0 as 0%."""
    if not math.isfinite(value):
        return "–"
    if 0 < value < 0.001 or 0.999 < value < 1:
        return "below 0.1%" if value < 0.5 else "over 99.9%"
    return f"{100 * value:.{0 if value in (0, 1) else 1}f}%"


def count(value: int, one: str, many: str = "") -> str:
    """Format a number of things."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def first_of(shown: int, total: int, one: str, many: str = "", order: str = "") -> str:
    """Say how many of the things are shown, and in which order."""
    if total < 2:
        return count(total, one, many)
    amount = f"{shown:,} of " if shown < total else "All "
    return f"{amount}{count(total, one, many)}{f', {order}' if order else ''}"


def sentence(value: str) -> str:
    """Capitalize the first letter."""
    return value[:1].upper() + value[1:]


def setting(value: object) -> str:
    """Format a configuration value."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def scale(image: Thumbnail, side: int) -> tuple[int, int, bool]:
    """Return width and height in CSS pixels, the longer about `side`, and whether it is tiny."""
    longer = max(image.width, image.height)
    tiny = longer <= _TINY
    factor = max(1, round(side / longer)) if tiny else side / longer
    width, height = (max(1, round(factor * length)) for length in (image.width, image.height))
    return width, height, tiny


def encode(image: Thumbnail) -> str:
    """Encode a picture for a data URL."""
    return base64.b64encode(image.jpeg).decode()


def load_templates(
    folder: Path, escape: Callable[[object], Markup], filters: dict[str, Callable[..., Any]]
) -> Environment:
    """Load the templates of a folder; they escape every value."""
    environment = Environment(
        loader=FileSystemLoader(folder),
        # Blocks and macros return markup; anything that bypasses `escape` is escaped too.
        autoescape=True,
        finalize=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(filters)
    return environment
