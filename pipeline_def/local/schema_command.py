"""`local_runner.py schema`: writes the inferred schema for review."""

import os
import shlex

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.contract.artifact_files import list_names, open_file
from components.contract.errors import StorageError

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


def write_schema(inferred: str, target: str) -> None:
    """Write the schema of an artifact to a file, with a comment on how to edit it.

    Raises:
        StorageError: the file exists with other content, perhaps edited.
    """
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
