"""One image can fail a whole batch: who asks for the halves finds out which one it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_Answer = TypeVar("_Answer")


def ask_each(
    ask: Callable[[Sequence[bytes]], Sequence[_Answer]],
    files: Sequence[bytes],
    *,
    errors: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> list[_Answer | Exception]:
    """Ask for all files at once; if that fails, by halves, until it is known which ones fail.

    Args:
        ask: returns the answer to each file, or fails.
        files: in the order of the answers.
        errors: of a file, or of a batch that is too large; any other one ends it all.

    Returns:
        The answer to each file, or its error.
    """
    if not files:
        return []
    try:
        return [*ask(files)]
    except errors as error:
        if len(files) == 1:
            return [error]
    middle = len(files) // 2
    halves = (files[:middle], files[middle:])
    return [answer for half in halves for answer in ask_each(ask, half, errors=errors)]
