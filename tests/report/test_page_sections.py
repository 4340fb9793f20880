"""Figures and images of the page."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from components.report.facts import PredictedImage, ReportFacts
from components.report.page.document import render_section
from components.report.page.sections.classes import ImageLinks
from tests.report.page_words import say, words
from tests.report.samples import report_sample
from tests.report.samples.report_sample import DIGITS

# Where the pages are drawn.
pytestmark = pytest.mark.xdist_group("page")


def find_section(page: str, name: str) -> str:
    """The markup of a section of a page."""
    [found] = re.findall(f'<section aria-labelledby="{name}">(.*?)</section>', page, re.DOTALL)
    return str(found)


def read_texts(section: str) -> list[list[str]]:
    """The texts of each figure of a section."""
    svgs = re.findall(r"<svg.*?</svg>", section, flags=re.DOTALL)
    return [re.findall(r"<text[^>]*>([^<]*)</text>", svg) for svg in svgs]


@pytest.mark.parametrize("section", ["metrics", "classes", "slices", "calibration", "curves"])
def test_axes_of_fractions_span_0_to_1(pages: dict[str, str], section: str) -> None:
    """Whatever is drawn: the values of the sample are all above 0.7."""
    figures = read_texts(find_section(pages["small"], section))
    # The changes against the baseline are no fractions.
    fractions = [texts for texts in figures if "this model − model in use" not in texts]
    assert fractions
    for texts in fractions:
        assert {"0.00", "1.00"} <= set(texts) or {"0.0", "1.0"} <= set(texts)


def test_the_kept_epoch_is_marked_in_each_figure_of_the_training(pages: dict[str, str]) -> None:
    training = find_section(pages["small"], "training")
    figures = read_texts(training)
    assert len(figures) == 5
    assert all("kept: epoch 19" in texts for texts in figures)
    said = words(training)
    order = [
        "Loss in",
        "Accuracy in",
        "Learning rate in",
        "Images per second in",
        "Fraction of time",
    ]
    places = [said.index(caption) for caption in order]
    assert places == sorted(places)


def test_splits_are_sorted_by_use() -> None:
    counts = report_sample.small().balance["train"]
    names = ("eval", "other", "test", "train")
    changes: dict[str, Any] = {
        "balance": dict.fromkeys(names, counts),
        "anomalies": dict.fromkeys(names, ()),
    }
    [texts] = read_texts(render_section("balance", replace(report_sample.small(), **changes)))
    assert texts[-4:] == ["train", "eval", "test", "other"]
    assert "images" in texts
    assert "train : no anomalies. eval : no anomalies. test : no" in say("files", **changes)
    assert "train : 1,005 images" in say("balance", **changes)


def test_curves_of_the_worst_classes_come_first(pages: dict[str, str]) -> None:
    said = words(find_section(pages["small"], "curves"))
    assert "6 of 10 classes, the lowest AUC first" in said
    areas = [float(area) for area in re.findall(r": AUC ([0-9.]+),", said)]
    assert areas == sorted(areas)
    assert len(areas) == 6
    perfect = replace(report_sample.small().comparison, curves=())
    assert "each is separated perfectly" in say("curves", comparison=perfect)


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
