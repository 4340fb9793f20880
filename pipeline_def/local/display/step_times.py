"""How long each step of a run took, a line each, with a bar for its share of the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.contract.printable import format_duration
from pipeline_def.local.display.rows import INDENT

_LONGEST_BAR = 30
_REST, _WHOLE = "loading and rest", "together"


def list_times(
    nodes: Mapping[str, Mapping[str, Any]], total: float, *, width: int
) -> Iterator[str]:
    """Yield a line for each step, in the order in which they ran, for the rest, and for the whole.

    Args:
        nodes: step → `seconds`, and whether it was `cached`.
        total: seconds of the run, loading TensorFlow and TFX included.
        width: characters of the terminal; bars take what is left.
    """
    rest = max(0.0, total - sum(node["seconds"] for node in nodes.values()))
    rows = [(name, node["seconds"], node["cached"]) for name, node in nodes.items()]
    rows.append((_REST, rest, False))
    longest = max(len(name) for name, _, _ in rows)
    for name, seconds, cached in rows:
        took = "cached" if cached else format_duration(seconds)
        share = seconds / total if total else 0.0
        line = f"{name:<{longest}}  {took:>12}  {share:>4.0%}"
        yield f"{line}  {_draw(share, width - INDENT - len(line) - 3)}".rstrip()


def _draw(share: float, room: int) -> str:
    return "█" * round(share * max(0, min(room, _LONGEST_BAR)))
