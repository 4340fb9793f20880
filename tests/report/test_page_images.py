"""The images of the page: links, order and number."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from components.report.facts import PredictedImage, ReportFacts
from components.report.page.document import render_section
from components.report.page.sections.classes import ImageLinks
from tests.report.page_words import say, words
from tests.report.samples import report_sample
from tests.report.samples.report_sample import DIGITS

pytestmark = pytest.mark.xdist_group("page")


def test_cells_and_classes_link_to_their_images(pages: dict[str, str]) -> None:
    facts = report_sample.small()
    links, matrix = ImageLinks.of(facts), render_section("confusion", facts)
    for row, label in enumerate(DIGITS):
        for column, predicted in enumerate(DIGITS):
            link = links.find(label, predicted)
            assert (link is not None) == bool(facts.metrics.confusion[row, column])
            if link:
                choice = f'data-label="{link.label}" data-predicted="{link.predicted}"'
                assert f'<a href="#{link.target}" {choice}>' in matrix
        assert f'<a href="#images-{links.numbers[label]}" data-label=' in pages["small"]
    nothing = replace(facts, images=())
    assert "data-label" not in render_section("confusion", nothing)
    assert "There are no pictures of evaluated images." in say("images", images=())


def test_images_are_sorted_by_information() -> None:
    """Confident mistakes first, then unsure ones, then what is right but unsure."""
    cards = re.findall(
        r"<p class=\"(good|bad)\">.*?<small>([\d.]+)", render_section("images", one_class()), re.S
    )
    assert cards == [("bad", "90.0"), ("bad", "40.0"), ("good", "50.0"), ("good", "95.0")]
    said = words(render_section("images", one_class()))
    assert "4 of 400 images, in each class confident mistakes first" in said
    assert "zero : 4 of 40 images, 2 wrong" in said


def one_class() -> ReportFacts:
    facts = report_sample.small()
    answers = [("one", 0.4), ("zero", 0.95), ("two", 0.9), ("zero", 0.5)]
    images = [
        PredictedImage(f"{sure}.jpg", "zero", predicted, sure, 0.1, None)
        for predicted, sure in answers
    ]
    return replace(facts, images=tuple(images))


@pytest.mark.slow
def test_the_largest_page_stays_within_its_limit(pages: dict[str, str]) -> None:
    facts = report_sample.huge()
    assert 300 < len(facts.images) < 1000, "the sample does not reach the limit"
    assert 7e6 < len(pages["huge"].encode()) < 10e6
