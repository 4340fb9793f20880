"""Compares the input pipeline with other loaders and with the limits of this machine.

    uv run -m benchmarks.peers.input_versus --data DIR --python PEER=PATH

All contenders read the same packed JPEGs in batches of the same size; peers use two workers. Each
figure comes from a fresh process, which first reads for some seconds unmeasured; contenders take
turns. A peer (torch, spdl or dali) is left out unless `--python` names the Python of its
environment; tf.data runs in ours.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from benchmarks.measuring import options
from benchmarks.measuring.process import measure, take_turns
from benchmarks.measuring.results import Figures, Spread, ratio, write_results
from benchmarks.peers.readers import PEERS
from components.contract.errors import ConfigurationError

_MODULE = "benchmarks.peers.input_versus"
_HERE = ("tf.data",)
Results = dict[str, list[dict[str, Any]]]
"""Images per second, CPU time of an image, and the version of each process of a contender."""


def main() -> int:
    """Measure what the command line asks for; print a table."""
    parser = _parser()
    arguments = parser.parse_args()
    return options.run(parser, lambda: _compare(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=3)
    parser.add_argument("--data", required=True, help="folder of images, as the pipeline takes it")
    parser.add_argument("--size", type=int, default=224, help="side of the images, pixels")
    parser.add_argument("--batch", type=options.at_least_one, default=128, help="images per batch")
    parser.add_argument(
        "--images", type=options.at_least_one, default=3200, help="of an epoch, at most"
    )
    parser.add_argument("--python", action="append", default=[], type=_python, metavar="PEER=PATH")
    parser.add_argument(
        "--contenders", help="only those with one of these words in their name, a,b,…"
    )
    return parser


def _python(text: str) -> tuple[str, str]:
    """Read a peer and the Python of its environment."""
    name, _, path = text.partition("=")
    if name not in PEERS or not path:
        known = ", ".join(PEERS)
        raise argparse.ArgumentTypeError(f"{text} is not PEER=PATH with one of {known}")
    return name, path


def _compare(arguments: argparse.Namespace) -> None:
    from benchmarks.peers.input_ours import LIMIT, OURS, prepare

    pythons = dict.fromkeys(_HERE, sys.executable) | dict(arguments.python)
    names = _choose([*OURS, LIMIT, *pythons], arguments.contenders)
    images = arguments.images // arguments.batch * arguments.batch
    if not images:
        raise ConfigurationError(f"{arguments.images} images do not fill a batch")
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        folder = os.path.join(work, "images")
        prepare(arguments.data, folder, images=images, size=arguments.size)
        task = {"data": folder, "batch": arguments.batch, "size": arguments.size}
        results = take_turns(
            names,
            arguments.repeats,
            lambda name: _in_a_process(name, task, pythons.get(name)),
            lambda figure: f"{figure['images_per_second']:,.0f} images/s",
        )
    versions = {name: figures[0].get("version", "") for name, figures in results.items()}
    table = _tabulate(arguments.size, arguments.batch, results, versions)
    table.show()
    write_results(_MODULE, [table], {"figures": results, "versions": versions}, arguments.json)


def _choose(names: list[str], words: str | None) -> list[str]:
    """Return the names that have one of `words` in them; a word that is a name is for it alone."""
    wanted = words.split(",") if words else [""]
    chosen = [
        name
        for name in names
        if any(word == name if word in names else word in name for word in wanted)
    ]
    if not chosen:
        raise ConfigurationError(f"no contender of {', '.join(names)} has {words} in its name")
    return chosen


def _in_a_process(name: str, task: Mapping[str, Any], python: str | None) -> Any:
    """Measure a contender; peers have a Python of their own."""
    module = "benchmarks.peers.readers" if python else "benchmarks.peers.input_ours"
    command = ["-m", module, name, *(f"--{key}={value}" for key, value in task.items())]
    return measure(command, python=python or sys.executable)


def _tabulate(size: int, batch: int, results: Results, versions: Mapping[str, str]) -> Figures:
    """Sort by images per second."""
    title = f"JPEGs of {size} pixels, batches of {batch}"
    table = Figures(title, ("contender", "images/s", "of ours", "CPU µs per image"))
    rates = _spreads(results, "images_per_second")
    times = _spreads(results, "cpu_microseconds")
    for name, rate in sorted(rates.items(), key=lambda item: -item[1].median):
        of_ours = ratio(rate, rates["ours"]) if "ours" in rates and name != "ours" else ""
        table.add(f"{name} {versions[name]}".strip(), rate.show(), of_ours, times[name].show(1))
    return table


def _spreads(results: Results, key: str) -> dict[str, Spread]:
    return {name: Spread.of([one[key] for one in figures]) for name, figures in results.items()}


if __name__ == "__main__":
    sys.exit(main())
