"""Fuzzes the readers of manifests: `uv run -m tests.fuzz.manifests --seconds 600`.

The first byte chooses the kind of file. A manifest is refused in a sentence, or gives rows that
the listing of a folder can use.
"""

import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import atheris
import pyarrow
import pyarrow.parquet

from tests.fuzz.session import check_sentence, fuzz

with atheris.instrument_imports(include=["components.ingest", "components.storage"]):
    from components.contract.errors import UserError
    from components.ingest.config import IngestConfig
    from components.ingest.lookup import list_images
    from components.ingest.source.listing import check_labels
    from components.ingest.source.manifest import read_manifest

_KINDS = ("csv", "jsonl", "parquet")
_ROWS: list[dict[str, Any]] = [
    {"path": "a/1.png", "label": "cat", "split": "train", "group": "g"},
    {"path": "./b//2.png", "label": "dog", "split": "", "group": None},
]

_FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-manifests-"))
(_FOLDER / "a").mkdir()
(_FOLDER / "a" / "1.png").touch()


def make_seeds() -> Iterator[bytes]:
    """Yield tables of each kind: plain, compressed, with odd types or odd text."""
    yield b"\0path,label,split,group\na/1.png,cat,train,g\n./b//2.png,dog,,\n"
    yield b'\0\xef\xbb\xbfpath;label\r\n"a\n""1",cat\r\n'
    yield b"\1" + "\n".join(map(json.dumps, _ROWS)).encode()
    yield b'\1{"path": 1e400, "label": [{}]}\n\n{"path": null, "label": true, "label": NaN}'
    table = pyarrow.Table.from_pylist(_ROWS)
    for options in ({}, {"compression": "zstd"}, {"version": "1.0", "use_dictionary": False}):
        yield b"\2" + _parquet(table, **options)
    nested = {"path": [[1], None], "label": [{"x": 1}, {"x": 2}], "split": [True, False]}
    yield b"\2" + _parquet(pyarrow.table(nested))


def _parquet(table: pyarrow.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer, **options)
    return buffer.getvalue()


def check(data: bytes) -> None:
    """Read one manifest like ingest, and list a folder by it."""
    path = _FOLDER.with_suffix(f".{_KINDS[data[0] % len(_KINDS) if data else 0]}")
    path.write_bytes(data[1:])
    try:
        rows = read_manifest(str(path))
        listing = list_images(str(_FOLDER), IngestConfig(manifest=str(path)))
        check_labels(listing)
    except UserError as error:
        check_sentence(error)
        return
    assert len(listing.files) == sum(row.label is not None for row in rows.values())
    listing.fingerprint()
    for name, row in rows.items():
        assert all(isinstance(text, str) for text in (name, row.label or "", row.split or ""))


if __name__ == "__main__":
    fuzz(check, make_seeds(), words=("path", "label", "split", "group", "train", "PAR1", "../"))
