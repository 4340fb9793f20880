"""Read a curated schema when the pipeline is created."""

from __future__ import annotations

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.contract.errors import DataError, UserError
from components.contract.example import ENCODED, LABEL
from components.storage.folder import open_folder
from components.storage.object_store import SCHEMES, explain_error

_REQUIRED = (ENCODED, LABEL)


def read_schema(path: str) -> schema_pb2.Schema:
    """Read the text form of a schema from `path`, a path or URL.

    Raises:
        DataError: the file cannot be read or parsed, or does not describe labeled images.
    """
    text = _read_text(path)
    try:
        schema = text_format.Parse(text, schema_pb2.Schema())
    except text_format.ParseError as error:
        line = f"line {error.GetLine()} of " if error.GetLine() else ""
        reason = str(error).split(" : ", 1)[-1].rstrip(".").replace("\n", " ")
        raise DataError(
            f"validation.schema: {line}{path} is not a schema in text format: {reason}. "
            "`local_runner.py schema` writes one to start from."
        ) from error
    names = {feature.name for feature in schema.feature}
    if missing := [name for name in _REQUIRED if name not in names]:
        raise DataError(
            f"validation.schema: {path} lacks the feature {' and the feature '.join(missing)}. "
            "`local_runner.py schema` writes a schema with all features."
        )
    return schema


def _read_text(path: str) -> str:
    try:
        fs, name = open_folder(path)
        return bytes(fs.cat_file(name)).decode("utf-8-sig")
    except UserError:
        raise
    except Exception as error:  # Each file system raises its own exceptions.
        if path.startswith(SCHEMES) and (explained := explain_error(path, error)):
            raise explained from error
        if isinstance(error, FileNotFoundError):
            wrong = "does not exist"
        else:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            wrong = f"cannot be read ({reason})"
        raise DataError(
            f"validation.schema: {path} {wrong}. Pass the text file of a schema."
        ) from error
