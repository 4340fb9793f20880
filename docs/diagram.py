"""Boxes and arrows as SVG, for the diagrams that are drawn from the code itself."""

import html
from collections.abc import Iterable
from dataclasses import dataclass

_CSS = "text{font:15px Helvetica,Arial,sans-serif;fill:#202124}.title{font-size:19px}"
_ARROW = (
    '<marker id="arrow" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="7" '
    'markerHeight="7" orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="#9aa0a6"/></marker>'
)
_LINE_HEIGHT = 19


@dataclass(frozen=True)
class Box:
    """A box around its middle, pixels, with text of one or more lines."""

    text: str
    x: float
    y: float
    width: float
    height: float
    fill: str
    edge: str = "#bdc1c6"

    @property
    def bottom(self) -> tuple[float, float]:
        """Where arrows leave it that go down."""
        return self.x, self.y + self.height / 2

    @property
    def top(self) -> tuple[float, float]:
        """Where arrows reach it from above."""
        return self.x, self.y - self.height / 2

    def draw(self) -> str:
        """Return the rectangle and its text."""
        x, y = self.x - self.width / 2, self.y - self.height / 2
        box = (
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{self.width:g}" height="{self.height:g}" rx="4" '
            f'fill="{self.fill}" stroke="{self.edge}"/>'
        )
        lines = self.text.split("\n")
        first = self.y + 5 - (len(lines) - 1) / 2 * _LINE_HEIGHT
        texts = (
            f'<text x="{self.x}" y="{first + row * _LINE_HEIGHT:g}" text-anchor="middle">'
            f"{html.escape(line)}</text>"
            for row, line in enumerate(lines)
        )
        return box + "".join(texts)


def draw_arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Draw what React Flow draws: a curve that leaves and arrives vertically."""
    (x, y), (u, v) = start, end
    middle = (y + v) / 2
    path = f"M{x:.0f},{y:.0f} C{x:.0f},{middle:.0f} {u:.0f},{middle:.0f} {u:.0f},{v:.0f}"
    return f'<path d="{path}" fill="none" stroke="#9aa0a6" marker-end="url(#arrow)"/>'


def draw_page(parts: Iterable[str], width: float, height: float, *, background: str) -> str:
    """Return a whole SVG file."""
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{_CSS}</style>\n'
        f'<defs>{_ARROW}</defs>\n<rect width="100%" height="100%" fill="{background}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
