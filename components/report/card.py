"""The model card in Markdown, after Mitchell et al. 2019, "Model Cards for Model Reporting"."""

import functools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from jinja2 import Template
from markupsafe import Markup

from components.contract.confidence import Interval
from components.contract.printable import format_duration, make_printable
from components.metrics.metric_table import METRICS
from components.report.facts import ReportFacts
from components.report.page.formatting import load_templates

MOST_CLASSES = 50
"""More are summarized, not listed."""

_WORST_CLASSES = 10

# With fewer examples, the interval of the accuracy of a class is ± 0.2 or wider.
_FEW_EXAMPLES = 20

# Entities, where a backslash would not stop a tag or the end of a table cell.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}
# The second half has a meaning only at the start of a line, as has a number with a dot.
_MARKUP = re.compile(r"[\\`*_\[\]~$]|^[#+=-]")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")


def write_card(facts: ReportFacts) -> str:
    """Return the card; the same facts give the same text, and no label breaks the Markdown."""
    metrics = facts.metrics
    # Classes without examples, whose recall is NaN, come last.
    worst = np.argsort(metrics.recall, kind="stable")
    text = _template().render(
        facts=facts,
        config=facts.header.config,
        epochs=max(map(len, facts.history.values())),
        metrics=[(name, METRICS[name].text) for name in METRICS if name in metrics.scalars],
        classes=worst[: None if len(worst) <= MOST_CLASSES else _WORST_CLASSES].tolist(),
        few=sorted(
            (count, label)
            for label, count in zip(metrics.labels, metrics.support.tolist(), strict=True)
            if count < _FEW_EXAMPLES
        ),
        few_examples=_FEW_EXAMPLES,
    )
    # File names may hold any bytes.
    return text.encode("utf-8", "backslashreplace").decode()


def escape_markdown(value: object) -> Markup:
    """Return Markdown that shows a text literally in one line, also in a table cell.

    Markdown, which is `Markup`, stays unchanged.
    """
    if isinstance(value, Markup):
        return value
    text = str(value)
    if not text or text != text.strip():
        # Markdown drops spaces at the ends, and reads some at the start as code.
        text = f"“{text}”"
    marked = _MARKUP.sub(r"\\\g<0>", make_printable(text))
    marked = _NUMBERED.sub(r"\1\\\2", marked)
    return Markup("".join(_ENTITIES.get(character, character) for character in marked))


def fence(text: str, language: str) -> Markup:
    """Write a code block that no backticks in the text can end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return Markup(f"{ticks}{language}\n{text.rstrip()}\n{ticks}")


def dump_yaml(value: Any) -> Markup:
    """Write YAML in the given order, with Unicode letters."""
    return Markup(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100))


def _number(value: float) -> Markup:
    return Markup(f"{value:.4f}" if math.isfinite(value) else "–")


def _interval(interval: Interval | None, sign: str = "") -> Markup:
    if interval is None:
        return Markup("–")
    return Markup(f"{interval.low:{sign}.4f} to {interval.high:{sign}.4f}")


@functools.cache
def _template() -> Template:
    filters: dict[str, Callable[..., Any]] = {
        "duration": format_duration,
        "fence": fence,
        "integer": "{:,}".format,
        "interval": _interval,
        "number": _number,
        "yaml": dump_yaml,
    }
    folder = Path(__file__).with_name("templates")
    return load_templates(folder, escape_markdown, filters).get_template("card.md.j2")
