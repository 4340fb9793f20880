"""Templates of the page and of the card: every value that one writes is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup


def load_templates(
    folder: Path | Sequence[Path],
    escape: Callable[[object], Markup],
    filters: dict[str, Callable[..., Any]],
) -> Environment:
    """Load the templates of a folder.

    Args:
        folder: where the templates are; of several, the first that has one.
        escape: turns any value into markup, and leaves markup as it is.
        filters: functions that templates may call, by their names there.
    """
    environment = Environment(
        loader=FileSystemLoader(folder),
        # Blocks and macros give markup, and what `escape` has not seen is escaped all the same.
        autoescape=True,
        finalize=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(filters)
    return environment
