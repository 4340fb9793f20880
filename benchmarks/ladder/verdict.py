"""Judges the rungs: what limits them, which one to use, and the configuration for it."""

import itertools
import os
from collections.abc import Mapping
from typing import Any

import yaml

from benchmarks.measuring.limits import COPY_LIMIT, DECODE_LIMIT
from benchmarks.measuring.results import NOISE, Figures, Spread, ratio
from components.contract.artifact_files import on_disk
from components.host.machine import available_memory, fits_in_memory, gib

_OWN_RATE = "reader indexed"
_STREAMED = "+ prefetch: reader streamed"
_DECODED = "cache decoded"
_ENCODED = "cache encoded"
_RAW = "storage raw"
_FILE = "cache file"

# They copy pixels that were decoded earlier.
_COPIED = (_DECODED, _FILE, _RAW)

CHANGED = {"TFRecord, one shard": "files one by one"}
"""A rung → the one that it changes, unless that is the one above."""

_MOST = 3

# A rung this close to a limit is bound by what the limit measures.
_NEAR = 0.6


def judge(results: Mapping[str, Any], *, target: float | None) -> dict[str, Any]:
    """Return the `verdict` (sentences), the rung to `use` and the `recommended` YAML.

    Args:
        results: of `benchmarks.input_pipeline`, with `found` and `data`.
        target: images per second that the accelerator takes, if the user has said so.
    """
    rates = {rung["name"]: Spread.of(rung["images_per_second"]) for rung in results["rungs"]}
    pixels = results["found"] * results["size"] ** 2 * 3
    name, reason = _choose(rates, pixels, target, remote="store" in results)
    limits = {limit: Spread.of(values) for limit, values in results["limits"].items()}
    verdict = [
        _name_steps(rates, remote="store" in results),
        _bottleneck(name, rates, limits, target),
        f"Recommended: {name}, because {reason}.",
    ]
    return {"verdict": verdict, "use": name, "recommended": _config(results, name, verdict)}


def _choose(
    rates: Mapping[str, Spread], pixels: int, target: float | None, *, remote: bool
) -> tuple[str, str]:
    """Return the rung to use and the reason."""
    plain = _STREAMED if remote or _OWN_RATE not in rates else _OWN_RATE
    available = available_memory()
    size = f"the pixels of all images take {gib(pixels)} and {gib(available)} of memory are free"
    if target and not remote and plain in rates and _suffices(rates[plain], target):
        return plain, f"it exceeds the {target:,.0f} images/s that are needed"
    if fits_in_memory(pixels, available) and _DECODED in rates:
        return _DECODED, size
    if target and _RAW in rates and (plain not in rates or rates[_RAW].exceeds(rates[plain])):
        return _RAW, f"{plain} is too slow for {target:,.0f} images/s; {size}"
    if plain not in rates:
        fastest = max(rates, key=lambda name: rates[name].median)
        return fastest, f"it has the highest median of the measured rungs; {size}"
    if _DECODED not in rates:
        return plain, "no cache was measured"
    return plain, f"{size}, too little for a cache of pixels"


def _name_steps(rates: Mapping[str, Spread], *, remote: bool) -> str:
    """Name the rungs that matter in this place, by what each brought."""
    gains = []
    for above, name in itertools.pairwise(rates):
        before = rates.get(CHANGED.get(name, above), rates[above])
        if rates[name].exceeds(before):
            gains.append((rates[name].median / before.median, name))
    place = "From the bucket" if remote else "From local files"
    if not gains:
        return f"{place}, no rung is faster than the one that it changes beyond the noise."
    most = ", ".join(f"{name} ({gain:.1f}x)" for gain, name in sorted(gains)[: -_MOST - 1 : -1])
    return f"{place}, the largest steps are: {most}."


def _suffices(rate: Spread, target: float) -> bool:
    """Return whether even the slowest repeat suffices, and the median with a tenth to spare."""
    return rate.low >= target and rate.median * 0.9 >= target


def _bottleneck(
    name: str, rates: Mapping[str, Spread], limits: Mapping[str, Spread], target: float | None
) -> str:
    rate = rates[name]
    gives = f"{name} gives {rate.show()} images/s"
    if target and rate.low >= target:
        return f"Bottleneck: the consumer. {gives}; the accelerator takes {target:,.0f}."
    limit = limits[COPY_LIMIT if name in _COPIED else DECODE_LIMIT]
    said = f"{gives}; the limit of this machine is {limit.show()} ({ratio(rate, limit)})"
    if name in _COPIED:
        return f"Bottleneck: copying. {said}."
    if rate.low >= _NEAR * limit.high:
        return f"Bottleneck: decoding. {said}."
    if rate.high < _NEAR * limit.low:
        return f"Bottleneck: requests and parsing. {said}."
    return f"Bottleneck: decoding, or requests and parsing (the difference is {NOISE}). {said}."


def _config(results: Mapping[str, Any], name: str, verdict: list[str]) -> str:
    """Return YAML for `local_runner.py --config`, with the reasons as comments."""
    cache = {_DECODED: "decoded", _FILE: "file", _ENCODED: "encoded"}.get(name, "none")
    data = results["data"]
    config = {
        "data": os.path.abspath(data) if on_disk(data) else data,
        "transform": {"size": results["size"], "storage": "raw" if name == _RAW else "jpeg"},
        "input": {"cache": cache, "reader": "streamed" if name == _STREAMED else "auto"},
        "training": {"batch_size": results["batch"]},
    }
    comments = "".join(f"# {line}\n" for line in verdict)
    return f"{comments}{yaml.safe_dump(config, sort_keys=False)}"


def tabulate(results: Mapping[str, Any]) -> Figures:
    """Return the rungs and the limits as a table."""
    columns = ("rung", "images/s", "of the first", "CPU µs per image", "first batch")
    table = Figures(
        f"{results['images']:,} images ({results['different']:,} different) of "
        f"{results['size']} pixels, batches of {results['batch']}, {results['cores']} cores",
        (*columns, f"waiting at {results['accelerator_images_per_second']:,.0f}/s"),
    )
    first = Spread.of(results["rungs"][0]["images_per_second"])
    for rung in results["rungs"]:
        rate = Spread.of(rung["images_per_second"])
        table.add(
            rung["name"],
            rate.show(),
            "" if rate == first else ratio(rate, first),
            f"{Spread.of(rung['cpu_microseconds']).median:,.0f}",
            f"{Spread.of(rung['first_batch_seconds']).median:.2f} s",
            f"{Spread.of([100 * share for share in rung['wait_share']]).show(1)} %",
        )
    for name, values in results["limits"].items():
        table.add(name, Spread.of(values).show(), "", "", "", "")
    return table
