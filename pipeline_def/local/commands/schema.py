"""`local_runner.py schema`: runs the steps up to SchemaGen, and writes its schema for review."""

import dataclasses
import os
import shlex

from components.contract.artifact_files import list_names, open_file
from components.contract.errors import StorageError
from components.contract.printable import make_printable
from pipeline_def.config.command_line import parse
from pipeline_def.layout import Layout
from pipeline_def.local.commands.run import check_images, name_folder, opened_for_run
from pipeline_def.local.preparation import prepare
from pipeline_def.steps import SCHEMA_GEN

USAGE = """usage: local_runner.py schema DIR [--to FILE] [OPTION ...]

Writes the schema of a folder of images, for you to review and to use in later
runs as --validation.schema. Takes all options of a run.

  --to FILE      file to write: schema.pbtxt in --output
  --output DIR   output folder for everything else: output
"""

_HEADER = """\
# Schema of the examples, inferred from the train split, for you to review and edit.
#
#   string_domain "image/class/text"  the labels. Any other label is an anomaly, and so is a label
#                                     without an image in the train split.
#   string_domain "image/format"      the formats, as ingest stores them.
#   int_domain                        to limit image/height and image/width (pixels), add
#                                     int_domain {{ min: 32 max: 4096 }}.
#   image_domain                      of image/encoded: minimum_supported_image_fraction (0 to 1);
#                                     to limit the file size, add max_image_byte_size: 1000000.
#   drift_comparator                  how far the train split may differ from the previous run or
#                                     span (0 to 1);
#   skew_comparator                   how far another split may differ from the train split (0 to
#                                     1). With few images, changes that chance may cause are
#                                     allowed. A feature without a comparator is not compared.
#
# A run uses this file exactly as it is:
#   local_runner.py --validation.schema {path}

"""


def write_inferred(arguments: list[str]) -> int:
    """Run the steps up to SchemaGen, and write the inferred schema to a file."""
    from pipeline_def.local.execution import execute

    config, options = parse(
        name_folder(arguments),
        prog="local_runner.py schema",
        usage=USAGE,
        own={"to": 1, "sample": 0},
    )
    check_images(config, sample=options["sample"])
    validation = dataclasses.replace(config.validation, schema=None)
    config = dataclasses.replace(config, validation=validation)
    with opened_for_run(config) as (config, output):
        layout = Layout(config.output)
        target = os.path.abspath(options["to"] or layout.schema)
        seen = prepare(config, layout, new_task=True)
        record = execute(seen.config, output=output, last=SCHEMA_GEN.id, seen=seen)
        if record is None:
            return 1
        write_schema(record.steps[SCHEMA_GEN.id].outputs["schema"].uri, target)
        output.store()
    shown = make_printable(target)
    print(f"\nSchema: {shown}\n        Review it, then run with --validation.schema {shown}")
    return 0


def write_schema(inferred: str, target: str) -> None:
    """Write the schema of an artifact to a file, with a comment on how to edit it.

    Raises:
        StorageError: the file exists with other content, perhaps edited.
    """
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    [name] = list_names(inferred)
    with open_file(os.path.join(inferred, name)) as file:
        schema = text_format.Parse(file.read(), schema_pb2.Schema())
    text = _HEADER.format(path=shlex.quote(target))
    text += text_format.MessageToString(schema, as_utf8=True)
    try:
        _write(target, text)
    except OSError as error:
        raise StorageError(
            f"Cannot write to {target} ({error.strerror}): choose another file with --to."
        ) from error


def _write(target: str, text: str) -> None:
    if not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)
        return
    with open(target, encoding="utf-8", errors="replace") as file:
        if file.read() != text:
            raise StorageError(
                f"{target} exists and differs from the inferred schema, perhaps because somebody "
                "edited it; it was left unchanged. Choose another file with --to."
            )
