"""Facts of runs in words, and how they reach a terminal, a file or another program."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

from rich.console import Console, RenderableType

from components.contract.printable import make_printable


def print_json(value: Any) -> None:
    """Print to the standard output."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    print()


def print_whole(renderable: RenderableType) -> None:
    """Print to the width of a terminal, or in whole lines where there is none; crop nothing."""
    console = Console(highlight=False)
    needed = Console(width=100_000).measure(renderable)
    console.width = max(console.width, needed.minimum) if console.is_terminal else needed.maximum
    console.print(renderable)


def local_time(text: str) -> str:
    """Turn ISO 8601 into the time of this machine, to the minute."""
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")


def format_value(value: Any, *, longest: int = 40) -> str:
    """Write a setting as it would be given, shortened to `longest` characters."""
    if value is None:
        return "unset"
    text = make_printable(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    )
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def shorten_fingerprint(fingerprint: str) -> str:
    """Say a listing's fingerprint in a few words: `files:1797,sha256:…` or anything else."""
    parts = {
        name: value for name, _, value in (part.partition(":") for part in fingerprint.split(","))
    }
    if parts.keys() == {"files", "sha256"} and parts["files"].isdigit():
        return f"{int(parts['files']):,} files {parts['sha256'][:8]}"
    return fingerprint[:20]
