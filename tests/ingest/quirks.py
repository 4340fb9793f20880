"""Data as people find them, and what is taken from them: `python -m tests.ingest.quirks`.

`test_quirks.py` holds every row, and this module writes them to docs/reference/formats.md.
"""

import io
import json
import math
import tarfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet

from components.ingest.datasets import example_records
from components.records.tfrecord import frame
from tests.images import test_formats, test_tiff
from tests.repository import ROOT

PAGE = ROOT / "docs/reference/formats.md"
PNG = b"\x89PNG\r\n\x1a\n"
ANY = "hash"


class Quirk(NamedTuple):
    """A folder with something special, and what ingest takes from it."""

    format: str
    quirk: str
    files: Mapping[str, Any]
    """Path → content; `m.csv` and the like is the manifest of the folder."""
    image: str = ""
    """Path of the first image, or the feature that holds it."""
    label: str = ""
    """Labels of all images in their order."""
    split: str = ""
    """Splits of all images, or the hash of the content."""
    refused: str = ""
    """Part of the sentence that refuses the folder, or of the reason why some of it is skipped."""
    options: Mapping[str, Any] = {}


class Named(NamedTuple):
    """Rows of a table with a `datasets.ClassLabel`."""

    rows: Sequence[Mapping[str, Any]]
    names: Sequence[str]


def row(label: Any, *, image: Any = PNG, **more: Any) -> dict[str, Any]:
    """Return a record with an image."""
    return {"image": image, "label": label, **more}


def write(folder: Path, files: Mapping[str, Any]) -> dict[str, Any]:
    """Write a folder; return the options that it needs."""
    options = {}
    for name, content in files.items():
        path = folder / name
        if name.startswith("m."):
            path = folder.with_suffix(path.suffix)
            options["manifest"] = str(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(name, content))
    return options


def encode(name: str, content: Any) -> bytes:
    """Return the bytes of a file, whose name says how to encode the content."""
    if isinstance(content, str | bytes):
        return content if isinstance(content, bytes) else content.encode()
    buffer = io.BytesIO()
    if name.endswith(".jsonl"):
        return "".join(f"{json.dumps(fields)}\n" for fields in content).encode()
    if name.endswith(".parquet"):
        rows, names = content if isinstance(content, Named) else (content, None)
        features = {"label": {"_type": "ClassLabel", "names": names}}
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        table = pa.Table.from_pylist([*rows]).replace_schema_metadata(metadata if names else {})
        pyarrow.parquet.write_table(table, buffer)
        return buffer.getvalue()
    if name.endswith(".tar"):
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for member, data in content:
                info = tarfile.TarInfo(member)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return buffer.getvalue()
    return b"".join(part for features in content for part in frame([_example(features)]))


def _example(features: Mapping[str, Any]) -> bytes:
    """Serialize a `tf.train.Example`, whose features may have several values."""
    example = example_records._message()()
    for name, value in features.items():
        for item in value if isinstance(value, list) else [value]:
            kind = {bytes: "bytes_list", str: "bytes_list", int: "int64_list", float: "float_list"}
            values = getattr(example.features.feature[name], kind[type(item)]).value
            values.append(item.encode() if isinstance(item, str) else item)
    return bytes(example.SerializeToString())


CSV, JSONL, MANIFEST = "CSV", "JSON Lines", "Parquet manifest"
PARQUET, RECORDS, TAR, FOLDERS = "Parquet or Arrow", "TFRecord, TFDS", "WebDataset", "Folders"
TWO = {"1.png": PNG, "2.png": PNG}


def _table(quirk: str, name: str, rows: Any, **taken: Any) -> Quirk:
    """Return a quirk of the manifest of two files."""
    kinds = {".csv": CSV, ".jsonl": JSONL, ".parquet": MANIFEST}
    return Quirk(kinds[Path(name).suffix], quirk, {**TWO, name: rows}, **taken)


QUIRKS: Sequence[Quirk] = [
    _table(
        "Hugging Face's columns",
        "m.csv",
        "file_name,label\n1.png,cat\n2.png,dog\n",
        image="1.png",
        label="cat, dog",
        split=ANY,
    ),
    _table(
        "empty rows of a spreadsheet",
        "m.csv",
        "path,label,,\n1.png,cat,,\n,,,\n2.png,dog,,\n,,,\n",
        image="1.png",
        label="cat, dog",
        split=ANY,
    ),
    _table(
        "`0` and `0.0`",
        "m.csv",
        "path,label\n1.png,0\n2.png,0.0\n",
        image="1.png",
        label="0, 0",
        split=ANY,
    ),
    _table(
        "numbers in `label`, their names in `label_name`",
        "m.csv",
        "path,label,label_name\n1.png,0,cat\n2.png,1,dog\n",
        image="1.png",
        label="cat, dog",
        split=ANY,
    ),
    _table(
        "a number with two names",
        "m.csv",
        "path,label,label_name\n1.png,0,cat\n2.png,0,dog\n",
        refused="pairs the label 0 with",
    ),
    _table(
        "`_unlabeled`, `no_label`, −1 or nothing as label",
        "m.csv",
        "path,label\n1.png,cat\n2.png,_unlabeled\n",
        image="1.png",
        label="cat",
        split=ANY,
        refused="no label",
    ),
    _table(
        "a column twice",
        "m.csv",
        "path,label,Label\n1.png,cat,dog\n",
        refused="it has the column label twice",
    ),
    _table(
        "no header",
        "m.csv",
        "training,gs://b/1.png,cat\n",
        refused="put a line split,path,label above it",
    ),
    _table(
        "synonyms of splits",
        "m.csv",
        "path,label,split\n1.png,cat,Training\n2.png,cat,validation\n",
        image="1.png",
        label="cat, cat",
        split="train, eval",
    ),
    *(
        _table(
            f"`{split}` as split",
            "m.csv",
            f"path,label,split\n1.png,cat,{split}\n",
            refused=refused,
        )
        for split, refused in [
            ("holdout", "is unknown: name train, eval or test, or list it in ingest.splits"),
            ("UNASSIGNED", "names no split: leave it empty, so that a hash of the image decides"),
            ("0", "looks like a fold: name train, eval and test, or leave splits to ingest"),
            ("nan", "is what tools write for a missing value: leave it empty"),
        ]
    ),
    _table(
        "a list of one value",
        "m.jsonl",
        [{"path": "1.png", "label": ["cat"]}],
        image="1.png",
        label="cat",
        split=ANY,
    ),
    _table(
        "NaN for label, split or group",
        "m.jsonl",
        [
            {"path": "1.png", "label": "cat", "split": math.nan, "group": math.nan},
            {"path": "2.png", "label": math.nan},
        ],
        image="1.png",
        label="cat",
        split=ANY,
        refused="no label",
    ),
    *(
        _table(quirk, "m.jsonl", [{"path": "1.png", "label": label}], refused=f"Row 1 .*{refused}")
        for quirk, label, refused in [
            ("a list of several labels", ["cat", "dog"], "has several values: give one"),
            ("an object as label", {"name": "cat"}, "is neither text nor a whole number"),
            ("`true` as label", True, "is neither text nor a whole number"),
            ("a fraction as label", 1.5, "is neither text nor a whole number"),
        ]
    ),
    _table(
        "text as bytes",
        "m.parquet",
        [{"path": b"1.png", "label": b"cat", "split": b"test"}],
        image="1.png",
        label="cat",
        split="test",
    ),
    Quirk(
        PARQUET,
        "`ClassLabel` in another order in each shard",
        {
            "a.parquet": Named([row(0)], ["dog", "bird"]),
            "b.parquet": Named([row(0)], ["bird", "dog"]),
        },
        image="image",
        label="dog, bird",
        split=ANY,
    ),
    Quirk(
        PARQUET,
        "a list of one `ClassLabel`, a struct of bytes and path",
        {"a.parquet": Named([row([1], image={"bytes": PNG, "path": "x"})], ["dog", "bird"])},
        image="image",
        label="bird",
        split=ANY,
    ),
    Quirk(
        PARQUET,
        "numbers without names beside names",
        {"a.parquet": Named([row(0)], ["dog", "bird"]), "b.parquet": [row(0)]},
        refused="The labels of b.parquet are numbers, such as 0, but those of a.parquet are names",
    ),
    Quirk(
        PARQUET,
        "a number outside of `ClassLabel`",
        {"a.parquet": Named([row(2)], ["dog", "bird"])},
        refused="has the label 2, but a.parquet names only the numbers 0 to 1",
    ),
    Quirk(
        PARQUET,
        "numbers in `label`, their names in `label_name`",
        {"a.parquet": [row(0, label_name="cat")]},
        image="image",
        label="cat",
        split=ANY,
    ),
    Quirk(
        PARQUET,
        "a number with two names, or a name with two numbers",
        {"a.parquet": [row(0, label_name="crane"), row(1, label_name="crane")]},
        refused="has the number 0 with the label 'crane', but also the number 1 with",
    ),
    Quirk(
        PARQUET,
        "`label` and `Label`",
        {"a.parquet": [row("cat", Label="dog")]},
        refused="has the features 'Label', 'label': name one with ingest.features",
    ),
    Quirk(
        PARQUET,
        "a mask as label",
        {"a.parquet": [row(PNG)]},
        refused="holds images, not the label",
    ),
    Quirk(
        PARQUET,
        "a struct as label",
        {"a.parquet": [row({"id": 0, "name": "cat"})]},
        refused="its label is neither text nor a whole number",
    ),
    Quirk(
        PARQUET,
        "a list of images in a row",
        {"a.parquet": [row("cat", image=[PNG, PNG])]},
        refused="holds several images in a record",
    ),
    Quirk(
        RECORDS,
        "`labels.txt` in each folder, in another order",
        {
            "train/a.tfrecord": [row(0)],
            "train/labels.txt": "dog\nbird\n",
            "test/a.tfrecord": [row(0)],
            "test/labels.txt": "bird\ndog\n",
        },
        image="image",
        label="bird, dog",
        split=f"test, {ANY}",
    ),
    Quirk(
        RECORDS,
        "TF-slim's lines `0:daisy`, CRLF",
        {"a.tfrecord": [row(0), row(1)], "labels.txt": "0:daisy\r\n1:rose\r\n"},
        image="image",
        label="daisy, rose",
        split=ANY,
    ),
    Quirk(
        RECORDS,
        "labels from 1, numbered names",
        {"a.tfrecord": [row(1), row(2)], "labels.txt": "1:daisy\n2:rose\n"},
        image="image",
        label="daisy, rose",
        split=ANY,
    ),
    Quirk(
        RECORDS,
        "labels from 1, names without numbers",
        {"a.tfrecord": [row(1), row(2)], "labels.txt": "daisy\nrose\n"},
        refused="the labels seem to start at 1, so write its lines as 1:daisy",
    ),
    Quirk(
        RECORDS,
        "a name twice, or an empty line",
        {"a.tfrecord": [row(1)], "labels.txt": "crane\ndog\ncrane\n"},
        refused="labels.txt gives the labels 0 and 2 the same name, 'crane'",
    ),
    Quirk(
        RECORDS,
        "TFDS's −1 for no label",
        {"a.tfrecord": [row(-1), row(0)], "label.labels.txt": "cat\n"},
        image="image",
        label="cat",
        split=ANY,
        refused="no label",
    ),
    Quirk(
        RECORDS,
        "a one-hot label",
        {"a.tfrecord": [row([0, 1]), row([1, 0])], "labels.txt": "cat\ndog\n"},
        image="image",
        label="dog, cat",
        split=ANY,
    ),
    Quirk(
        RECORDS,
        "two images in a record",
        {"a.tfrecord": [row("cat", image=[PNG, PNG])]},
        refused="holds several images in a record",
    ),
    Quirk(
        RECORDS,
        "raw pixels, with width and height",
        {"a.tfrecord": [row(1, image=bytes(12), width=3, height=4, depth=1)]},
        refused="holds raw pixels, not encoded images: store them as PNG or JPEG",
    ),
    Quirk(
        TAR,
        "a mask beside the image",
        {
            "a.tar": [
                *(("1.jpg", PNG), ("1.seg.png", PNG), ("1.cls", b"cat")),
                *(("2.seg.png", PNG), ("2.cls", b"dog")),
            ]
        },
        image="jpg",
        label="cat",
        split=ANY,
        refused="no image",
    ),
    Quirk(
        TAR,
        "a mask of the same name as the image",
        {
            "a.tar": [
                *(("1.jpg", PNG), ("1.png", PNG), ("1.cls", b"cat")),
                *(("2.png", PNG), ("2.cls", b"dog")),
            ]
        },
        image="jpg",
        label="cat",
        split=ANY,
        refused="no image",
    ),
    Quirk(
        TAR,
        "extensions of two parts",
        {"a.tar": [("1.input.jpg", PNG), ("1.cls", b"a"), ("2.input.png", PNG), ("2.cls", b"b")]},
        image="input.jpg",
        label="a, b",
        split=ANY,
    ),
    Quirk(
        TAR,
        "several images in a sample",
        {"a.tar": [("1.left.jpg", PNG), ("1.right.jpg", PNG), ("1.cls", b"a")]},
        refused="has the features 'left.jpg', 'right.jpg', which are all images: name one",
    ),
    Quirk(
        TAR,
        "masks alone",
        {"a.tar": [("1.seg.png", PNG), ("1.cls", b"cat")]},
        refused="none is known to be the image",
    ),
    Quirk(
        TAR,
        "images of several formats",
        {"a.tar": [("1.jpg", PNG), ("1.cls", b"cat"), ("2.webp", PNG), ("2.cls", b"dog")]},
        image="jpg",
        label="cat, dog",
        split=ANY,
    ),
    Quirk(
        TAR,
        "all images, then all labels",
        {
            "a.tar": [
                *((f"{number}.jpg", PNG) for number in range(9)),
                *((f"{number}.cls", b"cat") for number in range(9)),
            ]
        },
        refused="if images and labels lie apart in it, sort them",
    ),
    Quirk(
        TAR,
        "torn samples",
        {"a.tar": [("1.jpg", PNG), ("2.jpg", PNG), ("2.cls", b"cat"), ("1.cls", b"dog")]},
        image="jpg",
        label="cat",
        split=ANY,
        refused="the members of its sample do not lie next to each other",
    ),
    Quirk(
        TAR,
        "keys with dots",
        {"a.tar": [(f"frame.{n:04}.{of}", PNG) for n in range(3000) for of in ("jpg", "cls")]},
        refused="rename these without dots before the extension",
    ),
    Quirk(
        FOLDERS,
        "Hugging Face's `metadata.csv` in each split",
        {
            f"{split}/{name}": content
            for split in ("train", "test")
            for name, content in {**TWO, "metadata.csv": "file_name,label\n1.png,cat\n"}.items()
        },
        image="test/1.png",
        label="cat, cat",
        split=f"test, {ANY}",
    ),
    Quirk(
        FOLDERS,
        "Hugging Face's `metadata.parquet`, which has no labels",
        {
            "metadata.parquet": [{"file_name": "1.png", "text": "a cat"}],
            "cat/1.png": PNG,
            "dog/1.png": PNG,
        },
        image="cat/1.png",
        label="cat, dog",
        split=ANY,
    ),
    Quirk(
        FOLDERS,
        "`_unlabeled` (FiftyOne), `no_label` (CVAT, Datumaro)",
        {"cat/1.png": PNG, "dog/1.png": PNG, "_unlabeled/1.png": PNG},
        image="cat/1.png",
        label="cat, dog",
        split=ANY,
        refused="no label",
    ),
]


def render() -> str:
    """Return the page in Markdown."""
    lines = [
        "# What is taken from which format",
        "",
        "Each row is a test, and `uv run python -m tests.ingest.quirks` makes this page of them.",
        "`hash` is the split that the hash of the content decides. What is refused or skipped says",
        "so in these words.",
        "",
        "| format | what is special | image | labels | split | refused or skipped |",
        "|---|---|---|---|---|---|",
    ]
    for of in QUIRKS:
        refused = of.refused.replace(".*", "… ")
        image = of.image and f"`{of.image}`"
        cells = (of.format, of.quirk, image, of.label, of.split, refused)
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "## Pixels of image files",
        "",
        "Ingest, `predict` and `serve` take JPEG, PNG, GIF, BMP, WebP, AVIF, HEIF, JPEG 2000,",
        "Netpbm and TIFF. Samples are scaled by their bits and sign, never by their smallest and",
        "largest value. What tifffile decodes needs the extra `tiff`, unless it has 1, 8 or 16 bits",
        "and no compression, or Deflate.",
        "",
        "| TIFF | bits that Pillow decodes | and tifffile |",
        "|---|---|---|",
    ]
    for (colors, extra), depths in test_tiff.LAYOUTS.items():
        bits = " | ".join(", ".join(map(str, some)) for some in depths)
        lines.append(f"| {_COLORS[colors]}{_EXTRA[extra]} | {bits} |")
    lines.append("")
    for what, seen in (("of TIFF", test_tiff.SEEN), ("of others", test_formats.SEEN)):
        lines += [textwrap.fill(f"Also right, {what}: {'; '.join(seen)}.", 100), ""]
    tiff = {f"TIFF: {name}": row for name, row in test_tiff.REFUSED.items()}
    reasons = {name: reason for name, (_, reason) in (tiff | test_formats.REFUSED).items()}
    by_name = [name for name, reason in reasons.items() if reason.startswith("^")]
    lines += [
        textwrap.fill(f"Refused by name: {', '.join(by_name)}.", 100),
        "",
        "| refused | because of |",
        "|---|---|",
    ]
    lines += [f"| {name} | {why} |" for name, why in reasons.items() if name not in by_name]
    return "\n".join(lines) + "\n"


_COLORS = {0: "gray, white is zero", 1: "gray", 2: "RGB", 5: "CMYK"}
_EXTRA = {(): "", (0,): ", an unspecified band", (1,): ", premultiplied alpha", (2,): ", alpha"}


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    print(PAGE)
