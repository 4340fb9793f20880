"""Loads the templates of pages and cards, which escape every value."""

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
    """Load the templates of a folder."""
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
