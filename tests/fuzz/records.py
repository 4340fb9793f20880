"""Fuzzes the readers of records and their indexes: `uv run -m tests.fuzz.records --seconds 600`.

The first byte chooses the damaged file. It is refused in a sentence, or read as usable records:
images that lie within their shard.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import atheris

from tests.fuzz.corpus import common_images
from tests.fuzz.session import check_sentence, fuzz

with atheris.instrument_imports(include=["components.records", "components.trainer.input.shards"]):
    from components.contract.errors import UserError
    from components.contract.example import ENCODED, FILENAME, INDEX_FILE, LABEL, LABEL_ID
    from components.records.record_index import index_path, write_indexed_shard
    from components.records.shard_files import count_examples, list_shards, read_index, write_index
    from components.records.tfrecord import read_features, read_records, read_shortened
    from components.trainer.input.shards import RecordTable, Shards, map_shards

_URI = tempfile.mkdtemp(prefix="fuzz-records-")
_SHARD = "data_tfrecord-00000-of-00001"
_PATH = f"{_URI}/Split-train/{_SHARD}"
_FILES = (Path(_PATH), Path(index_path(_URI, "train", _SHARD)), Path(_URI, INDEX_FILE))
_IMAGES, _SMALL = 3, 16


def make_seeds() -> Iterator[bytes]:
    """Yield an intact shard, its index and the index of all shards."""
    features = [
        {ENCODED: image, LABEL: "cat", LABEL_ID: number, FILENAME: f"cat/{number}.png"}
        for number, image in enumerate(common_images()[:_IMAGES])
    ]
    write_indexed_shard(_URI, "train", _SHARD, features)
    write_index(_URI, {"train": {_SHARD: len(features)}}, labels={"train": {"cat": len(features)}})
    for number, path in enumerate(_FILES):
        yield bytes([number]) + path.read_bytes()


_READERS: tuple[Callable[[], object], ...] = (
    lambda: [bytes(record) for record in read_records(_PATH)],
    lambda: [
        list(features) for features in read_features(_PATH, (ENCODED.encode(), LABEL.encode()))
    ],
    lambda: list(read_shortened(_PATH, ENCODED, _SMALL)),
    lambda: count_examples(read_index(_URI)),
    lambda: list_shards(_URI, "train"),
    lambda: _read_images(),
)


def check(data: bytes) -> None:
    """Replace a file by `data`, read everything, and restore it."""
    path = _FILES[data[0] % len(_FILES) if data else 0]
    whole = path.read_bytes()
    path.write_bytes(data[1:])
    for read in _READERS:
        try:
            read()
        except UserError as error:
            check_sentence(error)
        except FileNotFoundError as error:  # Other components write no index.
            if not error.filename.startswith(f"{_URI}/records/"):
                raise
    path.write_bytes(whole)


def _read_images() -> None:
    """Read each image from its shard like training."""
    shards = Shards.of_pattern(f"{_URI}/Split-train/*")
    table, open_shard = RecordTable.read(shards), map_shards(shards.paths)
    assert len(table.label) == shards.total
    for number, start, length in zip(table.shard, table.offset, table.length, strict=True):
        assert len(open_shard(number)[start : start + length]) == length


if __name__ == "__main__":
    fuzz(check, make_seeds(), words=("splits", "train", "image/encoded"), longest=16_384)
