"""What the rungs say: where the time goes, which rung to stand on, and the config for it.

A sentence says that one thing is faster than another only if the ranges of their repeats do not
overlap; what does not come out of the noise is said not to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.measuring.limits import COPY_LIMIT, DECODE_LIMIT
from benchmarks.measuring.spread import NOISE, Spread, ratio
from components.contract.machine import available_memory, gib
from components.storage.artifact_files import on_disk
from pipeline_def.data.cache import fits_in_memory

_OWN_RATE = "reader indexed"
_STREAMED = "+ prefetch: reader streamed"
_DECODED = "cache decoded"
_ENCODED = "cache encoded"
_RAW = "storage raw"
_FILE = "cache file"
_GZIP = "the same with gzip"

# They copy what was decoded before.
_COPIED = (_DECODED, _FILE, _RAW)

# Pairs of rungs whose difference answers a question, other than those that sentences are made for.
_STEPS = (
    ("TFRecord, sequential", "+ interleave"),
    ("+ parallel decode", "+ parse by batch"),
    ("+ parse by batch", _STREAMED),
    (_STREAMED, _OWN_RATE),
    ("num_parallel_reads", "+ interleave"),
    ("+ parse by batch", _GZIP),
    (_OWN_RATE, _ENCODED),
    (_RAW, _FILE),
)

# A rung this close to a limit is held up by what the limit measures.
_NEAR = 0.6
# Of the table, where no terminal says how wide it is.
_LINE = 120


def judge(results: Mapping[str, Any], *, target: float | None) -> dict[str, Any]:
    """Return the `verdict`, sentences; the name of the rung to use; the `recommended` YAML.

    Args:
        results: as `run` prints them, with `found` and `data`.
        target: images per second that the accelerator takes, if the user has said so.
    """
    rates = {rung["name"]: Spread.of(rung["images_per_second"]) for rung in results["rungs"]}
    pixels = results["found"] * results["size"] ** 2 * 3
    name, reason = _choose(rates, pixels, target, remote="store" in results)
    limits = {limit: Spread.of(values) for limit, values in results["limits"].items()}
    verdict = [
        *_explain_files(rates),
        *_explain_steps(rates),
        _bottleneck(name, rates, limits, target),
        f"Recommended: {name}, as {reason}.",
    ]
    return {"verdict": verdict, "use": name, "recommended": _config(results, name, verdict)}


def _choose(
    rates: Mapping[str, Spread], pixels: int, target: float | None, *, remote: bool
) -> tuple[str, str]:
    """Return the rung to use and the reason for it."""
    plain = _STREAMED if remote or _OWN_RATE not in rates else _OWN_RATE
    available = available_memory()
    size = f"the pixels of all images take {gib(pixels)}, and {gib(available)} of memory are free"
    if target and not remote and plain in rates and _suffices(rates[plain], target):
        return plain, f"it gives more than the {target:,.0f} images/s that are needed"
    if fits_in_memory(pixels, available) and _DECODED in rates:
        return _DECODED, size
    if target and _RAW in rates and (plain not in rates or rates[_RAW].exceeds(rates[plain])):
        return _RAW, f"{plain} is too slow for {target:,.0f} images/s; {size}"
    if plain not in rates:
        fastest = max(rates, key=lambda name: rates[name].median)
        return fastest, f"of the rungs that were measured its median is the greatest; {size}"
    if _DECODED not in rates:
        return plain, "no cache was measured"
    return plain, f"{size}, too little for a cache of pixels"


def _suffices(rate: Spread, target: float) -> bool:
    """Whether a rate is enough, in its slowest repeat and with a tenth to spare at other times."""
    return rate.low >= target and rate.median * 0.9 >= target


def _explain_files(rates: Mapping[str, Spread]) -> list[str]:
    """Say what files cost, next to records that are decoded in the same way."""
    lines = []
    originals, resized = (
        rates.get("originals, resized every epoch"),
        rates.get("files, parallel map"),
    )
    if originals and resized:
        lines.append(
            f"Resizing once: {ratio(resized, originals)}, before anything else changes "
            f"({originals.median:,.0f} to {resized.median:,.0f} images/s)."
        )
    files, records = rates.get("files one by one"), rates.get("TFRecord, sequential")
    if files and records:
        lines.append(_explain_bundling(files, records))
    return lines


def _explain_bundling(files: Spread, records: Spread) -> str:
    if not files.differs(records):
        return (
            "Bundling: whether a file of its own costs anything is within the noise; files one by "
            f"one give {files.range()} images/s, records in sequence {records.range()}."
        )
    apart = abs(1e6 / files.median - 1e6 / records.median)
    more = "costs" if records.exceeds(files) else "saves"
    return (
        f"Bundling: opening and reading a file of its own {more} {apart:,.0f} µs an image; "
        f"records in sequence are {ratio(records, files)} as fast as files one by one."
    )


def _explain_steps(rates: Mapping[str, Spread]) -> list[str]:
    """Say which steps from a rung to the next brought nothing that could be seen."""
    lines = []
    for before, after in _STEPS:
        if before in rates and after in rates and not rates[after].differs(rates[before]):
            lines.append(
                f"{after.removeprefix('+ ')} against {before.removeprefix('+ ')}: {NOISE} "
                f"({rates[after].range()} and {rates[before].range()} images/s)."
            )
    return lines


def _bottleneck(
    name: str, rates: Mapping[str, Spread], limits: Mapping[str, Spread], target: float | None
) -> str:
    rate = rates[name]
    gives = f"{name} gives {rate.median:,.0f} images/s ({rate.range()})"
    if target and rate.low >= target:
        return f"Bottleneck: the consumer. {gives}, the accelerator takes {target:,.0f}."
    limit = limits[COPY_LIMIT if name in _COPIED else DECODE_LIMIT]
    share = f"{gives}, {ratio(rate, limit)} the limit"
    if name in _COPIED:
        return f"Bottleneck: copying. {share}."
    if rate.low >= _NEAR * limit.high:
        return f"Bottleneck: decoding. {share}."
    if rate.high < _NEAR * limit.low:
        return f"Bottleneck: requests and parsing. {share}."
    return f"Bottleneck: decoding, or requests and parsing; which of them is {NOISE}. {share}."


def _config(results: Mapping[str, Any], name: str, verdict: list[str]) -> str:
    """Return YAML for `local_runner.py --config`, with the reasons as comments."""
    cache = {_DECODED: "decoded", _FILE: "file", _ENCODED: "encoded"}.get(name, "none")
    reader = "streamed" if name == _STREAMED else "auto"
    data = results["data"]
    config = {
        "data": os.path.abspath(data) if on_disk(data) else data,
        "transform": {
            "size": results["size"],
            "storage": "raw" if name == _RAW else "jpeg",
        },
        "input": {"cache": cache, "reader": reader},
        "training": {"batch_size": results["batch"]},
    }
    comments = "".join(f"# {line}\n" for line in verdict)
    return f"{comments}{yaml.safe_dump(config, sort_keys=False)}"


def show(results: Mapping[str, Any]) -> None:
    """Print the table and the verdict."""
    accelerator = results["accelerator_images_per_second"]
    table = Table(
        "rung",
        "images/s",
        "range",
        "of the first",
        "CPU µs",
        "first batch",
        f"waits at {accelerator:,.0f}/s",
        title=f"{results['images']:,} images of {results['size']} px, {results['different']:,} "
        f"different; batches of {results['batch']}; {results['cores']} cores",
    )
    first = Spread.of(results["rungs"][0]["images_per_second"])
    for rung in results["rungs"]:
        rate = Spread.of(rung["images_per_second"])
        table.add_row(
            rung["name"],
            f"{rate.median:,.0f}",
            rate.range(),
            "" if rate == first else ratio(rate, first),
            f"{Spread.of(rung['cpu_microseconds']).median:,.0f}",
            f"{rung['first_batch_seconds']:.2f} s",
            f"{rung['wait_share']:.1%}",
        )
    for name, values in results["limits"].items():
        limit = Spread.of(values)
        table.add_row(name, f"{limit.median:,.0f}", limit.range(), "", "", "", "")
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_LINE)
    console.print(table)
    for line in (_floor(results), *results["verdict"]):
        console.print(line, soft_wrap=True)


def _floor(results: Mapping[str, Any]) -> str:
    return (
        f"An accelerator that takes {results['accelerator_images_per_second']:,.0f}/s waits for "
        f"{results['wait_floor']:.1%} of its time even for threads that do nothing but compute, on "
        f"these {results['cores']} cores, for as long as this pipeline's reader does."
    )
