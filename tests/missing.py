"""What becomes of a test whose tool is missing: it is skipped, or in CI it fails."""

import os
from typing import NoReturn

import pytest


def lack(tool: str, reason: str) -> NoReturn:
    """Skip the test for lack of a tool; in CI, fail unless `ALLOW_MISSING` names the tool.

    Args:
        tool: one word, as in `ALLOW_MISSING`, which has several words.
        reason: what is missing, for people.
    """
    if os.environ.get("CI") and tool not in os.environ.get("ALLOW_MISSING", "").split():
        pytest.fail(f"{reason}: install it, or add {tool} to ALLOW_MISSING", pytrace=False)
    pytest.skip(reason)
