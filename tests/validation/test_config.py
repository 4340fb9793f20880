from __future__ import annotations

from typing import Any

import pytest

from components.contract.errors import ConfigurationError
from components.validation.config import ValidationConfig


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"min_side": 9, "max_side": 8}, "validation.min_side is 9, above"),
        ({"formats": []}, "validation.formats is empty: name at least one"),
        # A curated schema has its own limits, which would have to win or lose without a word.
        ({"schema": "s.pbtxt", "max_side": 9}, "validation.schema and validation.max_side are"),
    ],
)
def test_config_says_what_is_wrong(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        ValidationConfig(**values)
    assert ValidationConfig(schema="s.pbtxt", anomalies="warn", drift="stop").schema == "s.pbtxt"
