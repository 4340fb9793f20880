"""Measures everything in docs/measurements.md, or writes that page from earlier results.

    uv run -m benchmarks.measurements --photos DIR --thumbnails DIR
    uv run -m benchmarks.measurements

The first takes two hours on two idle cores and writes `benchmarks/results/NAME.json`, from which
the page is made; the second only makes the page. measurements.yaml lists what is measured.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measuring.process import end_with_parent, say

_ROOT = Path(__file__).parents[1]
RESULTS = _ROOT / "benchmarks" / "results"
PAGE = _ROOT / "docs" / "measurements.md"
_LEFT_OUT = (
    "CPU µs per image",
    "CPU seconds",
    "first batch",
    "report",
    "waiting at",
    "longest",
)
"""Beginnings of columns that only the files of results have."""

_LISTED = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
MEASUREMENTS: dict[str, dict[str, str]] = {row["name"]: row for row in _LISTED["measurements"]}

Results = Mapping[str, Mapping[str, Any]]
"""Name of a measurement → what it wrote with `--json`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure if `--photos` says on what; write the page unless this is a test."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    failed = list(_measure_all(arguments)) if arguments.photos else []
    if not arguments.tiny:
        write_page()
    if failed:
        print(f"{parser.prog}: error: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.measurements",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--photos", metavar="DIR", help="folder of label/photograph.jpg")
    parser.add_argument("--thumbnails", metavar="DIR", help="folder of small images; --photos")
    parser.add_argument("--only", default=",".join(MEASUREMENTS), help="only these: a,b,...")
    parser.add_argument("--tiny", action="store_true", help="test the commands, keep no results")
    return parser


def _measure_all(arguments: argparse.Namespace) -> Iterator[str]:
    """Measure one after the other; yield the names of those that fail."""
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        places = {
            "photos": Path(arguments.photos).resolve(),
            "thumbnails": Path(arguments.thumbnails or arguments.photos).resolve(),
        }
        for name in arguments.only.split(","):
            measurement = MEASUREMENTS[name]
            options = measurement.get("tiny") if arguments.tiny else measurement["options"]
            if options is None:
                continue
            words = shlex.split(f"{measurement['command']} {options}")
            file = f"{scratch if arguments.tiny else RESULTS}/{name}.json"
            command = [sys.executable, "-m", *(word.format(**places) for word in words)]
            say(f"\n{name}: {shlex.join(command[1:])}")
            started = time.monotonic()
            done = subprocess.run(
                [*command, "--json", file], cwd=_ROOT, check=False, preexec_fn=end_with_parent
            )
            if done.returncode:
                yield name
            say(f"{name}: {time.monotonic() - started:.0f} s")


def write_page() -> None:
    """Write docs/measurements.md from the results that exist."""
    PAGE.write_text(render(read_results()), encoding="utf-8")


def read_results() -> Results:
    """Return the results that exist, in the order of the page."""
    files = (RESULTS / f"{name}.json" for name in MEASUREMENTS)
    return {file.stem: json.loads(file.read_text()) for file in files if file.exists()}


def render(results: Results) -> str:
    """Return the page in Markdown."""
    sections, before = [], ""
    for name, result in results.items():
        machine = result["machine"]
        where = "the same machine" if machine == before else machine
        sections.append(_render_section(MEASUREMENTS[name], result, where))
        before = machine
    return "\n".join([_LISTED["introduction"], *sections])


def _shorten(cell: str) -> str:
    """Write 2 x (1 to 3) as 2x (1–3), and 2 x, within the noise as ≈2x."""
    cell = re.sub(r"(\d) x\b", r"\1x", re.sub(r"\((\S+) to (\S+)\)", r"(\1–\2)", cell))
    return re.sub(r"(\S+), within the noise", r"≈\1", cell)


def _render_section(measurement: Mapping[str, str], found: Mapping[str, Any], machine: str) -> str:
    lines = [
        f"## {measurement['heading']}",
        "",
        *textwrap.wrap(measurement["text"], 116),
        "",
        "```sh",
    ]
    lines += [found["command"], "```", ""]
    lines += [
        *textwrap.wrap(f"{found['date']}, commit {found['commit']}; {machine}.", 116),
        "",
    ]
    for table in found["tables"]:
        names = enumerate(table["columns"])
        shown = [place for place, name in names if not name.startswith(_LEFT_OUT)]
        rows = [table["columns"], ["-"] * len(table["columns"]), *table["rows"]]
        rows = [[_shorten(row[place]) for place in shown] for row in rows]
        lines += [f"**{table['title']}**", "", *(f"|{'|'.join(row)}|" for row in rows), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
