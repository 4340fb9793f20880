"""The results of `local_runner.py watch`: a file that remembers them, a page, and metrics."""

import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from components.contract.errors import StorageError
from components.storage.folder import is_file, read_bytes, replace_file
from pipeline_def.layout import Layout

_METRICS = {
    "images_watch_changes": "Changes that the last window shows",
    "images_watch_unknown_ratio": "Fraction of the last window that is unknown",
    "images_watch_window_seconds": "Time of the last answer of the last window, since 1970",
}

Results = dict[str, Any]
"""`seen` has the judged answers of each file, `windows` what was found, the oldest first."""


def read_results(output: str) -> Results:
    """Read what earlier calls have found.

    Raises:
        StorageError: the file is damaged.
    """
    file = Layout(output).watch
    if not is_file(file):
        return {"seen": {}, "windows": []}
    try:
        found = json.loads(read_bytes(file))
        return {"seen": dict(found["seen"]), "windows": list(found["windows"])}
    except (ValueError, LookupError, TypeError) as error:
        raise StorageError(f"{file} is damaged: remove it to judge the whole log again.") from error


def write_results(output: str, results: Results) -> None:
    """Write the page and the metrics, then the file that says what was judged."""
    layout = Layout(output)
    replace_file(layout.watch_page, render_page(results).encode())
    replace_file(layout.watch_metrics, expose(results))
    replace_file(layout.watch, json.dumps(results, indent=1).encode())


def render_page(results: Results) -> str:
    """Return the page."""
    from components.report import page
    from components.report.page import formatting
    from components.report.page.document import FILTERS
    from components.report.page.formatting import load_templates

    folders = [Path(of).parent / "templates" for of in (__file__, page.__file__)]
    template = load_templates(folders, formatting.escape, FILTERS).get_template("watch.html.j2")
    windows = results["windows"][::-1]
    return template.render(windows=windows, changed=sum(bool(of["findings"]) for of in windows))


def expose(results: Results) -> bytes:
    """Return the metrics of the last window of each version, as Prometheus reads them."""
    registry = CollectorRegistry()
    gauges = [Gauge(*metric, ["version"], registry=registry) for metric in _METRICS.items()]
    for window in results["windows"]:
        unknown = window["unknown"]
        until = datetime.strptime(f"{window['to']} +0000", "%Y-%m-%d %H:%M %z")
        share = math.nan if unknown is None else unknown / window["images"]
        values = (len(window["findings"]), share, until.timestamp())
        for gauge, value in zip(gauges, values, strict=True):
            gauge.labels(window["version"]).set(value)
    return generate_latest(registry)
