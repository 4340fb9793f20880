"""The page as a whole: its head, the list of sections, the sections.

What is long is in `details`, links lead to sections, the style sheet knows the theme: all of it
works without a script, from a file, on paper, and in sandboxed frames.
"""

from __future__ import annotations

from collections.abc import Callable

from components.report.facts import ReportFacts
from components.report.page.balance import write_balance
from components.report.page.calibration import write_calibration
from components.report.page.classes import write_classes
from components.report.page.confusion import write_confusion
from components.report.page.curves import write_curves
from components.report.page.elements import plain, text
from components.report.page.files import write_files
from components.report.page.metrics import write_metrics
from components.report.page.mistakes import write_mistakes
from components.report.page.run import write_run
from components.report.page.samples import write_samples
from components.report.page.slices import write_slices
from components.report.page.style import STYLE
from components.report.page.summary import write_summary
from components.report.page.training import write_training

_SECTIONS: dict[str, tuple[str, Callable[[ReportFacts], str]]] = {
    "summary": ("Summary", write_summary),
    "run": ("Run", write_run),
    "metrics": ("Metrics", write_metrics),
    "classes": ("Classes", write_classes),
    "confusion": ("Confusion", write_confusion),
    "mistakes": ("Worst mistakes", write_mistakes),
    "slices": ("Slices", write_slices),
    "calibration": ("Calibration", write_calibration),
    "curves": ("ROC and precision", write_curves),
    "training": ("Training", write_training),
    "balance": ("Class balance", write_balance),
    "samples": ("Samples", write_samples),
    "files": ("Files and anomalies", write_files),
}

# Kubeflow's interface shows the page in a frame that has a text but no address of its own, so that
# links would be resolved against the address of the page around it.
_SCRIPT = """document.addEventListener("click", event => {
  const link = event.target.closest("a[href^='#']");
  if (!link || document.URL !== "about:srcdoc") return;
  event.preventDefault();
  document.querySelector(link.hash).scrollIntoView();
});"""


def render(facts: ReportFacts) -> str:
    """Write the page; the same facts give the same text."""
    title = f"{facts.header.pipeline}: evaluation on the {facts.split} split"
    links = (f'<li><a href="#{key}">{name}</a></li>' for key, (name, _) in _SECTIONS.items())
    sections = (
        f'<section aria-labelledby="{key}">\n<h2 id="{key}">{name}</h2>\n{write(facts)}\n</section>'
        for key, (name, write) in _SECTIONS.items()
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{plain(title)}</title>\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#report">Skip to the report</a>\n'
        f'<nav aria-label="Sections"><ul>{"".join(links)}</ul></nav>\n'
        f'<main id="report" tabindex="-1">\n<h1>{text(facts.header.pipeline)}</h1>\n'
        f'<p class="soft">Evaluation on the {text(facts.split)} split</p>\n'
        + "\n".join(sections)
        + f"\n</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )
