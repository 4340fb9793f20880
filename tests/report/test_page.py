"""The text, markup and figures of the page."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from components.contract.confidence import Interval
from components.report.page.document import render, render_section
from components.report.page.formatting import clip, escape, isolate, number, percent, signed
from components.report.page.images import ImageLinks
from components.report.page.training import describe_training
from components.report.shown import LabelErrors, PredictedImage, SuspectFacts
from tests.evaluation.metrics_sample import make_comparison
from tests.report.conftest import SAMPLES, say, words
from tests.report.samples import comparison_sample, report_sample
from tests.report.samples.picture_sample import make_suspects

pytestmark = pytest.mark.xdist_group("page")

VOID = ("meta", "img", "br")


class Document(HTMLParser):
    """Collects tags, identifiers, links and texts, and checks the nesting."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.texts: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("href", "xlink:href", "src"):
                self.targets.append(str(value))
            assert not name.startswith("on")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.add(data)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_is_well_formed_and_loads_nothing(pages: dict[str, str], name: str) -> None:
    document = Document(pages[name])
    assert not document.open
    assert pages[name].count("<script") == 1
    assert not document.tags & {"link", "iframe", "object", "embed", "base"}
    assert len(document.ids) == len(set(document.ids))
    for target in document.targets:
        assert target.startswith("data:image/jpeg;base64,") or target[1:] in document.ids
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\s\"'<>]+", pages[name])) <= namespaces
    assert not re.search(r"@import|url\((?!#)", pages[name])
    # Invalid bytes in names can be encoded, too.
    assert len(pages[name].encode()) < 10e6


@pytest.mark.slow
def test_the_same_facts_give_the_same_page(pages: dict[str, str]) -> None:
    for section in ("summary", "balance", "files"):
        assert render_section(section, report_sample.small()) in pages["small"]


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("nasty", {*report_sample.NASTY[:4], "�override�and�control", "byte �"}),
        ("comparison", {comparison_sample.LABELS[0], "�turned", "byte �", "no picture"}),
    ],
)
@pytest.mark.slow
def test_labels_are_escaped(text_pages: dict[str, str], name: str, texts: set[str]) -> None:
    assert texts <= Document(text_pages[name]).texts
    assert not re.search("nan|None|inf\\b", words(text_pages[name]))


def test_the_map_names_each_point_and_fits_into_the_page() -> None:
    suspects = make_suspects(("a", 'say "b"'), points=40)
    assert suspects.image_map
    page = render_section("map", replace(report_sample.small(), suspects=suspects))
    points = re.findall(r'd="([^"]*)" data-label="([^"]*)" data-names="([^"]*)"', page)
    counted = [(path.count("M"), label, names.count("&#10;")) for path, label, names in points]
    assert counted == [(20, "a", 19), (20, "say &#34;b&#34;", 19)]
    assert page.count("<circle cx") == sum(
        path in suspects.image_map.suspects for path in suspects.image_map.paths
    )


TEXTS = {
    "small": [
        "Of 400 images kept out of training, the model labels",
        "✓ Blessed. Accuracy 92.6 % (89.7 to 94.8), baseline 11 %. Significant at 95 %. accuracy",
        "Change from version 17 +0.050 accuracy: ▲ better",
        "Rejected files 19 of 1,823 files",
        "Worst class zero F1 0.889, 95% CI 0.796 to 0.942 most often predicted as four",
        "Architecture cnn Input 32 × 32 pixels Parameters 131,402 "
        "Started from random weights Size on disk 703.1 KiB Training speed 1,548 images/s",
        "digits Trained on 2026-11-20 08:15 UTC with images of ",
        "Training took 1 h 23 min",
        "14 of 19 rejected files.",
        "About 20 of 300 labels are probably wrong (12 to 31). The suspects are the 1 label that",
        "remove them: local_runner.py review --output OUT",
        "Labels that may be wrong 1 image. zero → one wrong with probability 90.0% zero/0.jpg , "
        "train "
        "Most similar in training: zero zero",
        "Odd images 5 of 45 images, the most conspicuous first. Very dark zero",
        "300 of 3,000 images. Similar images lie close together",
        "The weights are from epoch 19, with a loss of 0.482 on the eval split.",
        "Unknown images The model answers whether an image is known.",
        "1 image appears under two labels",
        "so that the model is tested on training images. The suspects show them.",
    ],
    "nasty": [
        "✗ Refused. Accuracy 50 %: a threshold is missed. recall 0.5 of",
        "The test split has no images of",
        "&#34;quoted&#34; &amp; &#39;so&#39; $x_1$: evaluation on the test split",
        "There is no current model to compare with.",
        "Top-5 accuracy",
        "No file was rejected.",
        "There are no duplicates.",
        "Loss in the last epoch: train 2.100, eval –.",
        "train : no anomalies.",
    ],
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_page_says(text_pages: dict[str, str], name: str) -> None:
    said = words(text_pages[name])
    assert [text for text in TEXTS[name] if text not in said] == []


@pytest.mark.usefixtures("undrawn")
def test_many_classes_are_summarized() -> None:
    labels = tuple(f"n{place * 7919:08d} kind of thing {place}" for place in range(300))
    comparison = make_comparison(labels, each=5, accuracy=0.7)
    for section, text in (
        ("classes", "100 of 300 classes, the lowest F1 first"),
        ("confusion", "Of 300 classes, only the 50 with most mistakes are shown"),
        (
            "slices",
            "Accuracy by class with 95% confidence intervals, the 20 least accurate of 300.",
        ),
    ):
        assert text in say(section, comparison=comparison)


@pytest.mark.parametrize(
    ("data", "span", "title"),
    [
        ("gs://bucket/of/cifar10/", None, "cifar10"),
        ("/photos/span-3/v01", 3, "digits"),  # the pipeline's name
        ("/", None, "digits"),
    ],
)
def test_the_title_is_the_name_of_the_data(data: str, span: int | None, title: str) -> None:
    assert replace(report_sample.small().header, data=data, span=span).title == title


def test_the_table_of_epochs_shows_phases() -> None:
    history = {"loss": [3.0, 2.0, 1.0], "phase": [1, 1, 2]}
    said = say("training", history=history)
    assert "Epoch Phase Loss" in said
    assert "2 1 2.0" in said
    assert "3 2 1.0" in said
    assert "phase in the last epoch" not in said
    assert "Phase" not in say("training", history={**history, "phase": [1, 1, 1]})


def _search(chosen: int) -> dict[str, Any]:
    facts = {"state": "complete", "epochs": 20, "seconds": 60.0}
    paused = {**facts, "state": "paused", "epochs": 3}
    trials = [
        {**facts, "number": 0, "role": "recipe", "values": {}, "score": 0.7},
        {**paused, "number": 1, "values": {"training.epochs": 40}, "score": 0.5},
        {**facts, "number": 2, "values": {"model.width": 16}, "score": 0.8},
    ]
    search = {"text": "Searched.", "chosen": chosen, "trials": trials}
    return search | {"measure": "balanced_accuracy"}


def test_a_search_lists_its_trials() -> None:
    history = {"accuracy": [0.5], "loss": [1.0]}
    facts = replace(report_sample.small(), history=history, search=_search(2), split="eval")
    page = describe_training(facts)["search"]
    assert [row[0] for row in page["rows"]] == ["2 (chosen)", "0", "1"]
    assert page["titles"] == [
        "Balanced accuracy",
        "Epochs",
        "Minutes",
        "State",
        "model.width",
        "training.epochs",
    ]
    assert page["rows"][0][1] == ("0.800", "20", "1.0", "complete", "16", "")
    assert page["rows"][1][1][3] == "complete, recipe"
    assert "Searched." in say("training", history=history, search=_search(0))


@pytest.mark.usefixtures("undrawn")
def test_the_page_explains_the_splits() -> None:
    said = say("summary")
    assert "selected on the eval split; the scores are from the test split" in said
    assert "optimistic" not in said
    assert "Evaluation on the eval split, which also picked the model" in words(
        render(replace(report_sample.small(), split="eval"))
    )
    said = say("summary", split="eval").lower()
    assert said.count("the same images, the eval split, pick and score the model") == 2


def test_the_first_screen_says_what_corrections_changed_and_what_is_worse() -> None:
    facts = report_sample.small()
    files = {**facts.files, "corrections": {"relabeled": 23}}
    changes = {"accuracy": Interval(-0.04, -0.01), "loss": Interval(-0.2, -0.1)}
    comparison = replace(facts.comparison, changes=changes)
    said = say("summary", files=files, comparison=comparison)
    assert "accuracy: ▼ worse 95% CI −0.040 to −0.010" in said
    assert "Corrections have changed 23 labels." in said


def test_samples_without_augmentation_are_shown_once() -> None:
    facts = report_sample.small()
    samples = tuple(replace(sample, augmented=sample.seen) for sample in facts.samples)
    section = render_section("samples", replace(facts, samples=samples))
    assert "training does not augment them" in section
    shown = sum(len(sample.seen) for sample in samples)
    assert section.count("as the model sees it") == shown > 0
    assert ", augmented" not in section


def test_redundant_slicings_are_not_drawn() -> None:
    comparison = report_sample.small().comparison
    classes = [part for part in comparison.slices if part.slicing == "class"]
    folders = [replace(part, slicing="folder", value=f"x/{part.value}") for part in classes]
    whole = replace(classes[0], slicing="format", value="png")
    said = say("slices", comparison=replace(comparison, slices=(*classes, *folders, whole)))
    assert "By folder : the same as by class." in said
    assert "By format : all images are png ." in said
    assert "Accuracy by class with" in said
    assert "Accuracy by folder" not in said


def test_sections_without_pictures() -> None:
    assert "23 images are misclassified; no pictures are available" in say("mistakes", mistakes=())
    clean = SuspectFacts((), errors=LabelErrors(0, 0, 7, 300))
    assert "No label stands out as probably wrong. There are no" in say("suspects", suspects=clean)
    said = say("files", rejects=(), anomalies={})
    assert "truncated 12" in said
    assert "rejected files." not in said
    assert "8 exact copies of other files. 1 image appears under two labels;" in said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number(-0.0314), "−0.031"),
        (signed(-0.0002), "−0.0002"),  # −0.000 would look like none
        (percent(1), "100%"),
        (percent(0.9996), "over 99.9%"),  # 100% would be wrong
        (percent(0.0004), "below 0.1%"),
        (percent(0.2), "20.0%"),  # in a column with others
        (escape("<b>\x00\udcff"), "&lt;b&gt;\ufffd\ufffd"),  # a file name that is no UTF-8
        (escape(isolate("&")), "<bdi>&amp;</bdi>"),  # HTML is not escaped twice
        (clip("'abc'", most=3), '<bdi title="&#39;abc&#39;">&#39;…&#39;</bdi>'),
    ],
)
def test_formatting(text: str, expected: str) -> None:
    assert text == expected


def find_section(page: str, name: str) -> str:
    """The markup of a section of a page."""
    [section] = re.findall(f'<section aria-labelledby="{name}">(.*?)</section>', page, re.DOTALL)
    return str(section)


def read_texts(section: str) -> list[list[str]]:
    """The texts of each figure of a section."""
    svgs = re.findall(r"<svg.*?</svg>", section, flags=re.DOTALL)
    return [re.findall(r"<text[^>]*>([^<]*)</text>", svg) for svg in svgs]


@pytest.mark.parametrize("section", ["classes", "slices", "calibration"])
def test_axes_of_fractions_span_0_to_1(pages: dict[str, str], section: str) -> None:
    """Whatever is drawn: the values of the sample are all above 0.7."""
    figures = read_texts(find_section(pages["small"], section))
    assert figures
    for texts in figures:
        assert {"0.00", "1.00"} <= set(texts) or {"0.0", "1.0"} <= set(texts)


def test_the_kept_epoch_is_marked_in_each_figure_of_the_training(pages: dict[str, str]) -> None:
    training = find_section(pages["small"], "training")
    figures = read_texts(training)
    assert len(figures) == 2
    assert all("kept: epoch 19" in texts for texts in figures)
    said = words(training)
    assert said.index("Loss in") < said.index("Accuracy in") < said.index("Images per second")


def test_splits_are_sorted_by_use() -> None:
    counts = report_sample.small().balance["train"]
    names = ("eval", "other", "test", "train")
    changes: dict[str, Any] = {
        "balance": dict.fromkeys(names, counts),
        "anomalies": dict.fromkeys(names, ()),
    }
    said = say("balance", **changes)
    assert "train : 1,005 images, 51 to 150 per class. eval" in said
    assert "the rarest first Class train eval test other nine 51 51 51 51" in said
    assert "train : no anomalies. eval : no anomalies. test : no" in say("files", **changes)


def test_cells_and_classes_link_to_their_images(pages: dict[str, str]) -> None:
    facts = report_sample.small()
    links, matrix = ImageLinks.of(facts), render_section("confusion", facts)
    for row, label in enumerate(facts.metrics.labels):
        for column, predicted in enumerate(facts.metrics.labels):
            link = links.find(label, predicted)
            assert (link is not None) == bool(facts.metrics.confusion[row, column])
            if link:
                choice = f'data-label="{link[0]}" data-predicted="{link[1]}"'
                assert f'<a href="#images-{link[0]}" {choice}>' in matrix
        assert f'<a href="#images-{links.numbers[label]}" data-label=' in pages["small"]
    nothing = replace(facts, images=())
    assert "data-label" not in render_section("confusion", nothing)
    assert "There are no pictures of evaluated images." in say("images", images=())


def test_images_are_sorted_by_information() -> None:
    """Confident mistakes first, then unsure ones, then what is right but unsure."""
    answers = [("one", 0.4), ("zero", 0.95), ("two", 0.9), ("zero", 0.5)]
    images = tuple(
        PredictedImage(f"{sure}.jpg", "zero", said, sure, 0.1, None) for said, sure in answers
    )
    page = render_section("images", replace(report_sample.small(), images=images))
    cards = re.findall(r"<p class=\"(good|bad)\">.*?<small>([\d.]+)", page, re.S)
    assert cards == [("bad", "90.0"), ("bad", "40.0"), ("good", "50.0"), ("good", "95.0")]
    assert "4 of 400 images, in each class confident mistakes first" in words(page)
    assert "zero : 4 of 40 images, 2 wrong" in words(page)
