import json
import math
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from components.contract.confidence import Interval
from components.contract.printable import make_printable
from components.metrics.evaluation_files import FormatResult
from components.report.card import MOST_CLASSES, escape_markdown, fence, write_card
from components.report.facts import ReportFacts
from components.report.metrics_file import write_metrics
from components.report.page.document import render_section
from tests.evaluation.metrics_sample import make_comparison
from tests.report.samples.report_sample import small

NASTY_LABELS = (
    "a|b",
    "<script>alert(1)</script>",
    "`code` and ```fence```",
    "[link](http://example.com) *bold* _it_",
    "two\nlines",
    "# heading",
    "back\\slash",
    "byte \udcff",
    "---",
    "قطة",
)


def make_facts(
    labels: tuple[str, ...] = NASTY_LABELS, *, each: int = 12, baseline: bool = True
) -> ReportFacts:
    """Facts on `labels` with `each` images to evaluate on."""
    labels = tuple(sorted(labels))
    header = small().header
    training = {**header.config["training"], "note": "``` *x*"}
    config = {**header.config, "training": training}
    header = replace(header, data="/data/<photos>|of `2024`", config=config, training_seconds=150)
    counts = {label: 4 * each + place for place, label in enumerate(labels)}
    return replace(
        small(),
        header=header,
        split="eval",
        balance={"eval": dict.fromkeys(labels, each), "train": counts},
        anomalies={"eval": ["image/format: unexpected value <gif>"], "train": []},
        comparison=make_comparison(labels, each=each, accuracy=0.7, compared=baseline),
        baseline_version="1700000000" if baseline else "",
    )


FACTS = make_facts()
# Some renderers interpret raw HTML.
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def parse(markdown: str) -> list[Token]:
    return PARSER.parse(markdown)


MARKUP = ["* * *", "1. one", "12)", "~~gone~~", "$x$", "&amp;", "a\r\nb", "+ plus", "=", "é"]


def text_of(token: Token) -> str:
    kinds = {child.type for child in token.children or ()}
    assert kinds <= {"text", "text_special", "code_inline", "strong_open", "strong_close"}, kinds
    return "".join(child.content for child in token.children or ())


def sections(facts: ReportFacts) -> dict[str, list[Token]]:
    """Title of each section → its tokens."""
    by_title: dict[str, list[Token]] = {}
    title = ""
    tokens = parse(write_card(facts))
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            title = text_of(tokens[place + 1])
        by_title.setdefault(title, []).append(token)
    return by_title


@pytest.mark.slow
def test_other_formats() -> None:
    versions = (
        FormatResult("int8", 1_234, 0.91, 0.004, Interval(-0.001, 0.009), 0.987, 0.25, 1_512.4),
        FormatResult("float16", reason="conversion failed: <b>no | way"),
    )
    head, first, second = rows_of(sections(replace(FACTS, formats=versions))["Other formats"])
    assert len(head) == 9
    interval = "-0.0010 to +0.0090"
    assert first[:5] == ["int8", "1,234", "0.9100", "0.0040", interval]
    assert first[5:] == ["98.7%", "0.2500", "1,512", "yes"]
    assert (second[0], second[-1]) == ("float16", "no: conversion failed: <b>no | way")
    assert "Other formats" not in sections(FACTS)
    page = str(render_section("metrics", replace(FACTS, formats=versions)))
    assert "no: conversion failed: &lt;b&gt;no | way" in page
    assert "Other formats" not in str(render_section("metrics", FACTS))


def rows_of(tokens: list[Token]) -> list[list[str]]:
    """The rows of the tables among the tokens, the headers first."""
    rows: list[list[str]] = []
    for place, token in enumerate(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in {"th_open", "td_open"}:
            rows[-1].append(text_of(tokens[place + 1]))
    return rows


def words(tokens: list[Token]) -> str:
    return "\n".join(text_of(token) for token in tokens if token.type == "inline")


@pytest.mark.parametrize("place", ["{}", "- {}", "| h |\n| --- |\n| {} |"])
def test_labels_are_shown_literally(place: str) -> None:
    # Spaces at the ends can be seen.
    spaces = {} if place == "{}" else {text: f"“{text}”" for text in ("", " ", "     a *b*", "a ")}
    shown = {label: make_printable(label) for label in (*NASTY_LABELS, *MARKUP)} | spaces
    for label, text in shown.items():
        tokens = parse(place.format(str(escape_markdown(label))))
        assert text_of([token for token in tokens if token.type == "inline"][-1]) == text
        assert not any(token.type in {"html_block", "heading_open", "hr"} for token in tokens)


def test_backticks_do_not_end_a_code_block() -> None:
    text = "a\n```\n````` b\n"
    [token] = parse(fence(text, "yaml"))
    assert (token.content, token.info) == (text, "yaml")


def test_the_sections_of_the_card() -> None:
    card = sections(FACTS)
    assert list(card) == [
        "Model card: digits",
        "Model details",
        "Intended use",
        "Training data",
        "Evaluation",
        "Verdict",
        "Per-class metrics",
        "Limits",
        "Configuration",
        "How to serve",
    ]
    assert "cnn" in words(card["Model details"])
    assert "2 min 30 s" in words(card["Model details"])
    assert "To be completed by the owner" in words(card["Intended use"])
    assert "Folder: /data/<photos>|of `2024`" in words(card["Training data"])
    assert "Span: 3" in words(card["Training data"])
    assert FACTS.verdict.reasons[0] in words(card["Verdict"])
    assert "version 1700000000" in words(card["Verdict"])
    limits = words(card["Limits"])
    for limit in ("upright", "more than one label: 1", "more than one split: 1", "value <gif>"):
        assert limit in limits
    signatures = [row[0] for row in rows_of(card["How to serve"])[1:]]
    assert signatures == ["serving_default", "serving_examples"]


def test_every_class_has_a_row_whatever_its_name() -> None:
    card = sections(FACTS)
    labels = sorted(make_printable(label) for label in NASTY_LABELS)
    head, *rows = rows_of(card["Per-class metrics"])
    assert {len(row) for row in rows} == {len(head)}
    assert sorted(row[0] for row in rows) == labels
    assert sum(int(row[1]) for row in rows) == 525
    recall = [float(row[4]) for row in rows]
    assert recall == sorted(recall)
    assert "Images of train: 525\nImages of eval: 120" in words(card["Training data"])


def test_fewer_images_that_compare_the_current_model_are_counted() -> None:
    note = "Current model and change: on the 7 images that can be compared."
    assert note not in words(sections(FACTS)["Evaluation"])
    facts = replace(FACTS, comparison=replace(FACTS.comparison, compared=7))
    assert note in words(sections(facts)["Evaluation"])
    assert json.loads(write_metrics(facts))["compared"] == 7


def test_numbers_are_those_of_the_comparison() -> None:
    comparison = FACTS.comparison
    header, accuracy, *_ = rows_of(sections(FACTS)["Evaluation"])
    assert comparison.baseline
    interval, change = comparison.intervals["accuracy"], comparison.changes["accuracy"]
    assert dict(zip(header, accuracy, strict=True)) == {
        "metric": "accuracy",
        "value": f"{comparison.metrics.scalars['accuracy']:.4f}",
        "95% CI": f"{interval.low:.4f} to {interval.high:.4f}",
        "current model": f"{comparison.baseline.scalars['accuracy']:.4f}",
        "95% CI of the change": f"{change.low:+.4f} to {change.high:+.4f}",
    }


def test_many_classes_are_summarized() -> None:
    labels = tuple(f"class {number:03d}" for number in range(MOST_CLASSES + 1))
    card = sections(make_facts(labels, each=2))
    assert len(rows_of(card["Per-class metrics"])) == 1 + 10
    assert "10 of 51 classes" in words(card["Per-class metrics"])


def test_a_first_model_with_little_data() -> None:
    facts = make_facts(baseline=False)
    header, comparison = replace(facts.header, fingerprint="", span=None, code=""), facts.comparison
    unknown = dict.fromkeys(comparison.metrics.scalars, math.nan)
    metrics = replace(comparison.metrics, scalars=unknown)
    comparison = replace(comparison, metrics=metrics, intervals={})
    facts = replace(facts, header=header, comparison=comparison)
    card = sections(facts)
    assert rows_of(card["Evaluation"])[1] == ["accuracy", "–", "–"]
    assert "version" not in words(card["Verdict"])
    assert "nan" not in write_card(facts)
    assert "None" not in words(card["Model details"])
