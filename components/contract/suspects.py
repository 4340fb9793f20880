"""The table of suspects: images whose label, split or quality a person should look at."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from components.contract.artifact_files import open_file

SUSPECTS_FILE = "suspects.parquet"

Reason = Literal[
    "label",
    "near_duplicate",
    "dark",
    "bright",
    "blurred",
    "blank",
    "outlier",
]

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

_SCHEMA = pa.schema(
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
    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=_SCHEMA)
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    with open_file(path, "wb") as file:
        file.write(buffer.getvalue().to_pybytes())


def read_suspects(path: str) -> list[Suspect]:
    """Read the table in the order of the file."""
    with open_file(path, "rb") as file:
        rows = pq.read_table(pa.BufferReader(file.read())).to_pylist()
    return [Suspect(**{**row, "neighbors": tuple(row["neighbors"])}) for row in rows]
