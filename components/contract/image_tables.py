"""The table of images in `model_run`, with statistics of the pixels and features, and of suspects.

Parquet has no float16 in pyarrow 10, so features are a NumPy file beside the table.
"""

import contextlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.contract.artifact_files import (
    make_folders,
    make_scratch,
    on_disk,
    open_file,
    put,
    reading,
)

IMAGES_FILE = "images.parquet"
EMBEDDINGS_FILE = "embeddings.npy"

Embeddings = NDArray[np.float16]
"""Features of images, [rows, features], in the order of the table."""

_COLUMNS = {"path": pa.string(), "sha256": pa.string(), "split": pa.string(), "label": pa.string()}
_LARGEST = float(np.finfo(np.float16).max)
_FORMAT: Any = np.lib.format
# Batches may be of a few images; a group has metadata of its own.
_ROW_GROUP = 8192


class ImageTableWriter:
    """Writes the table batch by batch; `write_image_table` opens it."""

    def __init__(self, folder: str, rows: int) -> None:
        """Write into `folder`, on disk; `rows` are all that will follow."""
        self._folder, self._rows = folder, rows
        self._table: Any = None
        self._waiting: list[Any] = []
        self._embeddings: Any = None

    def add(
        self, columns: Mapping[str, Sequence[Any]], embeddings: NDArray[Any] | None = None
    ) -> None:
        """Add a batch.

        Args:
            columns: `path`, `sha256`, `split` and `label`; any others are statistics of the pixels,
                float32.
            embeddings: features of the images, [batch, features]; in all batches or in none.
        """
        schema = pa.schema([(name, _COLUMNS.get(name, pa.float32())) for name in columns])
        if self._table is None:
            self._table = pq.ParquetWriter(os.path.join(self._folder, IMAGES_FILE), schema)
        # Numbers that are missing are NaN in NumPy.
        arrays = [pa.array(columns[f.name], f.type, from_pandas=True) for f in schema]
        self._waiting.append(pa.Table.from_arrays(arrays, schema=schema))
        if sum(map(len, self._waiting)) >= _ROW_GROUP:
            self._write_group()
        if embeddings is not None:
            self._add_embeddings(embeddings)

    def close(self) -> None:
        """Complete the files."""
        if self._waiting:
            self._write_group()
        for file in (self._table, self._embeddings):
            if file is not None:
                file.close()

    def _write_group(self) -> None:
        self._table.write_table(pa.concat_tables(self._waiting))
        self._waiting.clear()

    def _add_embeddings(self, embeddings: NDArray[Any]) -> None:
        if self._embeddings is None:
            self._embeddings = open(os.path.join(self._folder, EMBEDDINGS_FILE), "wb")  # noqa: SIM115
            header = {
                "descr": "<f2",
                "fortran_order": False,
                "shape": (self._rows, embeddings.shape[1]),
            }
            _FORMAT.write_array_header_1_0(self._embeddings, header)
        limited = np.clip(embeddings, -_LARGEST, _LARGEST)
        self._embeddings.write(np.ascontiguousarray(limited, "<f2").data)


@contextlib.contextmanager
def write_image_table(folder: str, *, rows: int) -> Iterator[ImageTableWriter]:
    """Open the table of `rows` images; its files appear in `folder`, a path or URL, at the end."""
    make_folders(folder)
    with make_scratch(folder) as scratch:
        writer = ImageTableWriter(scratch, rows)
        try:
            yield writer
        finally:
            writer.close()
        # The table last: readers take embeddings beside it as complete.
        for name in sorted(os.listdir(scratch)):
            put(os.path.join(scratch, name), os.path.join(folder, name))


def open_images(folder: str) -> Any:
    """Open `images.parquet` as a `pyarrow.parquet.ParquetFile`; None if there is none."""
    path = os.path.join(folder, IMAGES_FILE)
    try:
        with open_file(path, "rb") as file, reading(path):
            # From a bucket, the whole file is needed soon.
            return pq.ParquetFile(path if on_disk(path) else pa.BufferReader(file.read()))
    except FileNotFoundError:
        return None


class Texts:
    """A column of texts, different in each row, which stays in its file until texts are read."""

    def __init__(self, images: Any, name: str) -> None:
        """Read the column `name` of an opened table."""
        self._images, self._name = images, name
        groups = range(images.num_row_groups)
        sizes = [images.metadata.row_group(group).num_rows for group in groups]
        self._starts = np.cumsum([0, *sizes])

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._starts[-1])

    def __iter__(self) -> Iterator[str]:
        """Read all texts, a group of rows at a time."""
        for group in range(len(self._starts) - 1):
            yield from self._read(group).to_pylist()

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[np.object_]:
        """Read the texts of some rows, in any order."""
        texts = np.empty(len(rows), object)
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        for group in np.unique(groups).tolist():
            inside = np.flatnonzero(groups == group)
            places = pa.array(rows[inside] - self._starts[group])
            texts[inside] = self._read(group).take(places).to_pylist()
        return texts

    def _read(self, group: int) -> Any:
        return self._images.read_row_group(group, columns=[self._name])[self._name]


def read_embeddings(folder: str) -> Embeddings | None:
    """Read `embeddings.npy`, mapped into memory if it is on disk; None if there are none."""
    path = os.path.join(folder, EMBEDDINGS_FILE)
    try:
        with reading(path):
            if on_disk(path):
                embeddings: Embeddings = np.load(path, mmap_mode="r")
            else:
                with open_file(path, "rb") as file:
                    embeddings = np.load(io.BytesIO(file.read()))
            return embeddings
    except FileNotFoundError:
        return None


SUSPECTS_FILE = "suspects.parquet"

Reason = Literal["label", "near_duplicate", "dark", "bright", "blurred", "blank", "outlier"]

REASONS: dict[str, str] = {
    "label": "The label may be wrong",
    "near_duplicate": "The same as another image, or nearly",
    "blank": "Blank: a single color",
    "dark": "Very dark",
    "bright": "Very bright",
    "blurred": "Blurred",
    "outlier": "Unlike any training image",
}
"""Each reason in words."""

_SUSPECTS = pa.schema(
    [
        ("sha256", pa.string()),
        ("path", pa.string()),
        ("split", pa.string()),
        ("label", pa.string()),
        ("reason", pa.string()),
        ("score", pa.float32()),
        ("proposed", pa.string()),
        ("neighbors", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True)
class Suspect:
    """One image and one reason to look at it."""

    sha256: str
    """Hexadecimal digest of the original file."""
    path: str
    """Relative to the ingested folder."""
    split: str
    label: str
    """As given."""
    reason: Reason
    score: float
    """0 to 1; for labels the probability that the label is wrong. Orders the rows of a reason."""
    proposed: str = ""
    """The label that is more likely; empty if there is none."""
    neighbors: tuple[str, ...] = ()
    """Paths of the images that explain the reason: twins, or the most similar training images."""


def write_suspects(path: str, suspects: Iterable[Suspect]) -> None:
    """Write the table to a Parquet file, the highest scores first."""
    rows = sorted(suspects, key=lambda row: (-row.score, row.path, row.reason))
    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=_SUSPECTS)
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    with open_file(path, "wb") as file:
        file.write(buffer.getvalue().to_pybytes())


def read_suspects(path: str) -> list[Suspect]:
    """Read the table in the order of the file."""
    with open_file(path, "rb") as file:
        rows = pq.read_table(pa.BufferReader(file.read())).to_pylist()
    return [Suspect(**{**row, "neighbors": tuple(row["neighbors"])}) for row in rows]
