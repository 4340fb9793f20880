"""Writes Parquet files with columns of images and labels, as Hugging Face's datasets keep them."""

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline_def.local.export.images import Collection, Exported

# Of a row group; Hugging Face recommends as many for images, so that viewers read few of them.
_ROWS = 100
_TYPES = {"str": "string", "int": "int64", "float": "float32"}
_TAKEN = ("image", "label", "path", "sha256")


def name_column(name: str) -> str:
    """Return the name of a further column beside those of each image."""
    return f"column_{name}" if name in _TAKEN else name


def write(collection: Collection, target: str) -> Iterator[Exported]:
    """Write `target/SPLIT-NUMBER-of-COUNT.parquet`, and yield each image."""
    import pyarrow.parquet as pq

    schema = _make_schema(collection)
    numbers = {label: number for number, label in enumerate(collection.labels)}
    for split in collection.counts:
        for shard, shards, images in collection.shards(split):
            path = os.path.join(target, f"{split}-{shard:05d}-of-{shards:05d}.parquet")
            # Encoded images do not compress.
            with pq.ParquetWriter(path, schema, compression="NONE", use_dictionary=False) as writer:
                while rows := list(itertools.islice(images, _ROWS)):
                    writer.write_table(_make_table(rows, schema, numbers))
                    yield from rows


def _make_schema(collection: Collection) -> Any:
    import pyarrow as pa

    columns = {name_column(name): _TYPES[of] for name, of in collection.columns.items()}
    features: dict[str, Any] = {
        "image": {"_type": "Image"},
        "label": {"names": list(collection.labels), "_type": "ClassLabel"},
        "sha256": {"dtype": "string", "_type": "Value"},
        **{name: {"dtype": of, "_type": "Value"} for name, of in columns.items()},
    }
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = [("image", image), ("label", pa.int64()), ("sha256", pa.string())]
    fields += [(name, pa.type_for_alias(of)) for name, of in columns.items()]
    return pa.schema(fields, {"huggingface": json.dumps({"info": {"features": features}})})


def _make_table(rows: Sequence[Exported], schema: Any, numbers: dict[str, int]) -> Any:
    import pyarrow as pa

    names = {name_column(name): name for row in rows for name in row.columns}
    return pa.Table.from_pylist(
        [
            {
                "image": {"bytes": row.encoded, "path": row.path},
                "label": numbers[row.label],
                "sha256": row.sha256,
                **{column: row.columns.get(name) for column, name in names.items()},
            }
            for row in rows
        ],
        schema=schema,
    )
