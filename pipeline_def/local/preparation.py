"""What a local run does before its first step: paths, the sample, a look at the images."""

from __future__ import annotations

import dataclasses
import os
import tempfile

from rich.console import Console

from components.contract.errors import ConfigurationError, StorageError
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local.output import check_url
from pipeline_def.local.rows import print_row, print_whole

_INDENT = 8


def make_absolute(config: Config) -> Config:
    """Make paths independent of the folder that a later run is started in."""
    check_url(config.output)
    data, output, copy = map(_absolute, (config.data, config.output, config.working_copy))
    return dataclasses.replace(config, data=data, output=str(output), working_copy=copy)


def _absolute(path: str | None) -> str | None:
    if path is None:
        return None
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


def check_writable(config: Config) -> None:
    """Raise an error unless the output can be written, outside the images."""
    if config.data and f"{config.output}/".startswith(f"{config.data}/"):
        raise ConfigurationError(
            f"--output {config.output} lies in --data, so its files would be taken for images: "
            f"choose another folder."
        )
    if "://" in config.output:
        return
    try:
        os.makedirs(config.output, exist_ok=True)
        tempfile.TemporaryFile(dir=config.output).close()
    except OSError as error:
        raise StorageError(
            f"Cannot write to {config.output} ({error.strerror}): choose another --output."
        ) from error


def prepare(config: Config, layout: Layout) -> Config:
    """Make sure that there are images to run on, within a second or two, and look at them."""
    from components.ingest.listing import list_source
    from pipeline_def.local.first_look import look

    console = Console(highlight=False)
    config = _find_images(console, config, layout)
    listing = list_source(str(config.data), config.ingest)
    seen = look(listing, config)
    config = seen.config
    labels = len({file.label for file in listing.files})
    facts = (
        f"{len(listing.files):,} files, {labels} classes; the model {config.model.title} "
        f"sees them at {config.transform.size} x {config.transform.size} pixels"
    )
    notes = [("", listing.note)] if listing.note else []
    for title, text in (("", facts), ("Recipe:", str(seen.recipe)), *notes):
        print_row(console, title, text, indent=_INDENT, style="")
    return config


def _find_images(console: Console, config: Config, layout: Layout) -> Config:
    """Say where the images are; without a folder, write the sample."""
    if config.data is not None:
        print_whole(console, "Images:", config.data, indent=_INDENT, style="")
        return config

    from pipeline_def.local.sample import write_digits

    sample = f"handwritten digits, in {layout.sample}"
    print_whole(console, "Sample:", sample, indent=_INDENT, style="")
    write_digits(layout.sample)
    return dataclasses.replace(config, data=layout.sample)
