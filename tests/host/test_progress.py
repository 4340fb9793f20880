import logging

import pytest

from components.host.progress import LOGGER, add_progress, naming_fold, report_progress


def test_counts_add_up_and_are_reported_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, LOGGER.name):
        for amount in (60, 3, 1, 10, 54, 2):
            add_progress("a folder", amount, total=130, unit="images")
        add_progress("another folder", 64, total=1_000, unit="images")
        add_progress("a folder", 64, total=130, unit="images")
    assert [record.getMessage() for record in caplog.records] == [
        "64 of 130 images",
        "128 of 130 images",
        "130 of 130 images",
        "64 of 1,000 images",
        "64 of 130 images",
    ]


def test_an_unfinished_epoch_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, LOGGER.name):
        report_progress(done=2.75, total=60, unit="epochs", note="loss 0.5")
        with naming_fold("fold 1/3:"):
            report_progress(done=3, total=60, unit="epochs")
    assert caplog.messages == ["2 of 60 epochs, loss 0.5", "fold 1/3: 3 of 60 epochs"]
    assert caplog.records[0].__dict__["progress"] == (2.75, 60)
