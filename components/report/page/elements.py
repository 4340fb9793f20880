"""The pieces that pages are made of: escaped text, numbers, tables, figures, pictures."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Sequence
from html import escape, unescape

from components.evaluation.classification_metrics import Interval
from components.images.thumbnails import Picture

# File names may hold control characters, also such that turn the direction of text, and bytes that
# are no text arrive as lone surrogates, which cannot be written.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST = 60
_TAG = re.compile("<[^>]*>")
# Pictures of up to so many pixels are enlarged by whole numbers, so that each pixel is seen.
_TINY = 48


def plain(value: str) -> str:
    """Escape for an attribute."""
    return escape(_UNPRINTABLE.sub("\ufffd", value))


def text(value: str) -> str:
    """Escape, and keep right-to-left text from turning its surroundings."""
    return f"<bdi>{plain(value)}</bdi>"


def clip(value: str, *, most: int = _LONGEST) -> str:
    """Escape like `text`; what is longer than `most` characters is whole where it is pointed at."""
    short = shorten(value, most)
    title = f' title="{plain(value)}"' if len(short) < len(value) else ""
    return f"<bdi{title}>{plain(short)}</bdi>"


def shorten(value: str, most: int) -> str:
    """Cut the middle out of what has more than `most` characters: ends tell names apart."""
    clean = _UNPRINTABLE.sub("\ufffd", value)
    head, tail = most // 2, most - most // 2 - 1
    return clean if len(clean) <= most else f"{clean[:head]}…{clean[len(clean) - tail :]}"


def number(value: float) -> str:
    """Write with three decimals; a dash where it is not defined."""
    return f"{value:.3f}".replace("-", "−") if math.isfinite(value) else "–"


def signed(value: float) -> str:
    """Write a difference with its sign, a small one with one more decimal."""
    decimals = 4 if 0 < abs(value) < 0.0005 else 3
    return f"{value:+.{decimals}f}".replace("-", "−") if math.isfinite(value) else "–"


def percent(value: float) -> str:
    """Write a share from 0 to 1, so that only what is all is 100 % and only nothing is 0 %."""
    if not math.isfinite(value):
        return "–"
    if 0 < value < 0.001 or 0.999 < value < 1:
        return "below 0.1\N{NO-BREAK SPACE}%" if value < 0.5 else "over 99.9\N{NO-BREAK SPACE}%"
    return f"{100 * value:.{0 if value in (0, 1) else 1}f}\N{NO-BREAK SPACE}%"


def count(value: int, one: str, many: str = "") -> str:
    """Write a number of things."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def between(interval: Interval | None, *, sign: bool = False) -> str:
    """Write an interval small, below the number it belongs to; nothing where there is none."""
    if interval is None:
        return ""
    write = signed if sign else number
    return f"<small>{write(interval.low)} to {write(interval.high)}</small>"


def paragraph(content: str) -> str:
    """Wrap what is HTML already."""
    return f"<p>{content}</p>"


def bullets(items: Iterable[str]) -> str:
    """List what is HTML already."""
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def terms(pairs: Iterable[tuple[str, str]]) -> str:
    """List names and what they stand for, both HTML."""
    return '<dl class="terms">' + "".join(f"<dt>{a}</dt><dd>{b}</dd>" for a, b in pairs) + "</dl>"


def details(summary: str, content: str) -> str:
    """Hide what is long until it is asked for."""
    return f"<details>\n<summary>{summary}</summary>\n{content}\n</details>"


def first_of(shown: int, total: int, one: str, *, many: str = "", order: str = "") -> str:
    """Say how many things are shown and whether that is all; several have an order."""
    if total < 2:
        return count(total, one, many)
    amount = f"{shown:,} of " if shown < total else "All "
    return f"{amount}{count(total, one, many)}{f', {order}' if order else ''}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, name: str, style: str = "") -> str:
    """Make a table of cells that are HTML; one wider than the screen scrolls, by keyboard too.

    Args:
        head: titles of the columns; the first may be empty.
        rows: as many cells each; the first one is the row's title.
        name: what the table is, in plain text.
        style: "words" where the columns hold no numbers.
    """
    body = [
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    ]
    return scrolled(head, body, name=name, style=style)


def scrolled(head: Sequence[str], body: Iterable[str], *, name: str, style: str) -> str:
    """Make a table like `table` of rows that are HTML."""
    titles = "".join(f'<th scope="col">{title}</th>' if title else "<td></td>" for title in head)
    return (
        f'<div class="scroll" role="group" tabindex="0" aria-label="{plain(name)}, scrollable">\n'
        f'<table class="{style}" aria-label="{plain(name)}">\n'
        f"<thead><tr>{titles}</tr></thead>\n<tbody>\n"
        + "\n".join(body)
        + "\n</tbody></table></div>"
    )


def figure(content: str, caption: str) -> str:
    """Put a caption, HTML, above; it is also what a screen reader calls the figure.

    Chromium does not take the name from the caption.
    """
    name = plain(unescape(_TAG.sub("", caption)))
    return f'<figure aria-label="{name}"><figcaption>{caption}</figcaption>\n{content}\n</figure>'


def figures(items: Iterable[str]) -> str:
    """Set figures side by side as far as the screen is wide."""
    return '<div class="figures">\n' + "\n".join(filter(None, items)) + "\n</div>"


def picture(image: Picture, alt: str, *, side: int) -> str:
    """Show a picture, whose longer side shall have `side` CSS pixels, as part of the page."""
    longer = max(image.width, image.height)
    tiny = longer <= _TINY
    scale = max(1, round(side / longer)) if tiny else side / longer
    width, height = (max(1, round(scale * length)) for length in (image.width, image.height))
    data = base64.b64encode(image.jpeg).decode()
    return (
        f'<img src="data:image/jpeg;base64,{data}" alt="{plain(alt)}" width="{width}" '
        f'height="{height}"{" class=tiny" if tiny else ""}>'
    )


def framed(image: Picture | None, alt: str, *, side: int) -> str:
    """Show a picture in a frame, or say that there is none."""
    content = picture(image, alt, side=side) if image else '<span class="none">no picture</span>'
    return f'<div class="frame">{content}</div>'


def cards(items: Sequence[str], *, style: str, open_: int, things: str) -> str:
    """Show the first `open_` of some cards; the others, called `things`, when asked for."""

    def grid(some: Iterable[str]) -> str:
        return f'<ul class="cards {style}">' + "".join(f"<li>{i}</li>" for i in some) + "</ul>"

    rest = items[open_:]
    more = details(f"{len(rest):,} more {things}", grid(rest)) if rest else ""
    return grid(items[:open_]) + more
