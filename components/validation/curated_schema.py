"""Read a curated schema when the pipeline is created."""

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.contract.errors import DataError
from components.contract.example import ENCODED, LABEL
from components.storage.folder import explaining_errors, open_folder

_REQUIRED = (ENCODED, LABEL)


def read_schema(path: str) -> schema_pb2.Schema:
    """Read the text form of a schema from `path`, a path or URL.

    Raises `DataError` if there is none, or if it does not describe labeled images.
    """
    fs, name = open_folder(path)
    with explaining_errors("read validation.schema", path):
        try:
            content = bytes(fs.cat_file(name))
        except FileNotFoundError as error:
            raise DataError(
                f"validation.schema: {path} does not exist. Pass the text file of a schema."
            ) from error
    try:
        schema = text_format.Parse(content.decode("utf-8-sig"), schema_pb2.Schema())
    except UnicodeDecodeError as error:
        raise DataError(
            f"validation.schema: {path} is not text. Pass the text file of a schema."
        ) from error
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
