"""Prepares a local run: finds the images, or writes the sample, and looks at them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from components.contract.errors import ConfigurationError, StorageError
from components.contract.printable import make_printable, name_some
from components.evaluation.baseline_lookup import require_same_task
from components.storage.folder import is_file
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local.output.checks import set_leftovers_aside
from pipeline_def.local.pushed_model import find_labels
from pipeline_def.local.run_display import print_row, print_whole
from pipeline_def.runs.record import read_records

if TYPE_CHECKING:
    from pipeline_def.local.first_look import FirstLook

_INDENT = 9
_MOST_NAMED = 5
_DIGITS = 1797


def prepare(config: Config, *, new_task: bool = False) -> FirstLook:
    """Find the images, look at them for a second or two, and make the choices that follow.

    Raises:
        UserError: the run would fail later, or be about other labels than the current model, and
            `new_task` is not set.
    """
    from components.ingest.lookup import list_source
    from components.ingest.source.listing import write_listing
    from pipeline_def.local.first_look import describe, look

    layout = Layout(config.output)
    if note := set_leftovers_aside(layout):
        print_row("Note:", note, indent=_INDENT, style="")
    config = _find_images(config, layout)
    listing = list_source(str(config.data), config.ingest)
    unknown = _check_task(listing.labels(), layout, new_task=new_task)
    seen = look(listing, config)
    config = seen.config
    size = f"{config.transform.size} x {config.transform.size} pixels"
    counts = f"{len(listing.files):,} files, {len(listing.skipped):,} skipped"
    seen_as = ("", f"{counts}; the model {config.model.title} sees them at {size}")
    chosen = (("Weights", config.model.origin), ("Recipe", str(seen.recipe)))
    notes = [("Note", text) for text in seen.ineffective]
    for title, text in (seen_as, *describe(listing), *unknown, *chosen, *notes):
        print_row(title and f"{title}: ", text, indent=_INDENT, style="")
    return dataclasses.replace(seen, listing=write_listing(listing, layout.listings))


def use_corrections(config: Config, output: str) -> Config:
    """Use the corrections of an output, a path or URL, unless the user has chosen.

    They are `corrections.csv`, which `review` writes there, or those of the newest run with these
    images: a run must not forget what people have decided.

    Raises:
        ConfigurationError: these are different files.
    """
    if config.ingest.corrections or "ingest.corrections" in config.given:
        return config
    data, corrections = config.data or Layout(config.output).sample, Layout(output).corrections
    last = None
    # Records that cannot be read must not prevent a run.
    with contextlib.suppress(StorageError):
        for record in read_records(config.output):
            if record.configuration.get("data") == data:
                last = record.configuration.get("ingest", {}).get("corrections")
    # That of an output at a URL has the path of the working copy.
    last = corrections if last == Layout(config.output).corrections else last
    files = {file for file in (last, corrections if is_file(corrections) else None) if file}
    if len(files) > 1:
        raise ConfigurationError(
            f"The last run used the corrections {last}, but there is also {corrections}: choose "
            f"with --ingest.corrections FILE, or none."
        )
    for file in files:
        why = "as in the last run" if last else "found in the output"
        text = f"{make_printable(file)}, {why}; --ingest.corrections none leaves them out"
        print(f"Corrections: {text}", flush=True)
        config = dataclasses.replace(
            config, ingest=dataclasses.replace(config.ingest, corrections=file)
        )
    return config


def _check_task(
    labels: Collection[str], layout: Layout, *, new_task: bool
) -> list[tuple[str, str]]:
    """Return a row about labels that the current model does not know."""
    version, known = find_labels(layout.output)
    unknown = sorted(set(labels) - known)
    if not known or not unknown or new_task:
        return []
    path = os.path.join(layout.pushed, version)
    require_same_task(labels, known, path, others="choose another --output")
    named = name_some(unknown, _MOST_NAMED)
    text = f"version {version}, the current model, does not know {named}: both models are compared "
    return [("Note", f"{text}on the images of the other labels")]


def _find_images(config: Config, layout: Layout) -> Config:
    """Print where the images are; write the sample if no folder is given."""
    if config.data is not None:
        print_whole("Images:", config.data, indent=_INDENT, style="")
        return config
    sample = f"handwritten digits, in {layout.sample}"
    print_whole("Sample:", sample, indent=_INDENT, style="")
    write_digits(layout.sample)
    # The output may be copied with the sample.
    ingest = dataclasses.replace(config.ingest, fingerprint="content")
    return dataclasses.replace(config, data=layout.sample, ingest=ingest)


def write_digits(folder: str) -> int:
    """Write the 1,797 digits, 8 x 8 pixels, as `folder/<digit>/<number>.png`, unless they exist.

    Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
    Learning Repository, 1998; the test set, which scikit-learn includes.

    Returns:
        The number of images.
    """
    numbers = {f"{number:04d}.png" for number in range(_DIGITS)}
    if numbers <= {name for _, _, names in os.walk(folder) for name in names}:
        return _DIGITS
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    # Pixel values are from 0 to 16.
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)
    for number, (pixels, label) in enumerate(zip(images, digits.target, strict=True)):
        path = os.path.join(folder, str(label), f"{number:04d}.png")
        # Not rewritten: a new modification time would look like a new image.
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            unfinished = f"{folder}.unfinished"
            Image.fromarray(pixels).save(unfinished, "PNG")
            os.replace(unfinished, path)
    return len(images)
