from __future__ import annotations

import logging

import pytest

from components.contract.progress import LOGGER, add_progress


def test_counts_add_up_per_task_and_are_reported_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, LOGGER.name):
        for amount in (60, 3, 1, 10, 54, 2):
            add_progress("a folder", amount, total=130, unit="images")
        add_progress("another folder", 64, total=1_000, unit="images")
    assert [record.getMessage() for record in caplog.records] == [
        "64 of 130 images",
        "128 of 130 images",
        "130 of 130 images",
        "64 of 1,000 images",
    ]
