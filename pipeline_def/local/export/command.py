"""`local_runner.py export-data`: find the run, and write its images, whole or not at all."""

import os
from collections.abc import Callable, Iterator

from rich.console import Console

from pipeline_def.config.config import Config
from pipeline_def.local.commands.predict import with_progress
from pipeline_def.local.display.rows import print_row, print_whole
from pipeline_def.local.export import folder, parquet, tfds, webdataset
from pipeline_def.local.export.images import Collection, Exported, open_collection
from pipeline_def.local.export.options import ExportOptions
from pipeline_def.local.output.folder import open_output
from pipeline_def.local.output.locations import make_absolute
from pipeline_def.local.output.whole_folder import check_target, whole_folder
from pipeline_def.local.review.corrected_copy import find_newest
from pipeline_def.runs.selection import select
from pipeline_def.steps import EXAMPLE_GEN

Write = Callable[[Collection, str], Iterator[Exported]]

_WRITERS: dict[str, Write] = {
    "folder": folder.write,
    "webdataset": webdataset.write,
    "parquet": parquet.write,
    "tfds": tfds.write,
}


def export(options: ExportOptions) -> None:
    """Export the images of a run, and print what was written.

    Raises:
        UserError: there is no such run, or its images cannot be read or written.
    """
    assert options.target
    assert options.to
    target = os.path.realpath(options.target)
    check_target(target)
    config, _ = open_output(make_absolute(Config(output=options.output)))
    run = select(options.run, config.output) if options.run else find_newest(config.output)
    collection = open_collection(run.find_artifact(EXAMPLE_GEN.id, "examples"))
    console = Console(highlight=False)
    print_row(console, "Run", f"{run.number}, {run.record.id}")
    with whole_folder(target) as unfinished:
        images = _WRITERS[options.to](collection, unfinished)
        total = sum(collection.counts.values())
        for _ in with_progress(console, images, total=total):
            pass
    print_row(console, "Labels", f"{len(collection.labels):,}")
    splits = (f"{split} {count:,}" for split, count in collection.counts.items())
    print_row(console, "Images", ", ".join(splits))
    print_whole(console, "Written", target)
