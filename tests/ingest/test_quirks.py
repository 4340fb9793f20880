"""Data as people find them, and what is taken from them: `python -m tests.ingest.test_quirks`.

Run as a program, this module writes the rows to docs/reference/formats.md.
"""

import datetime
import io
import json
import math
import re
import tarfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet
import pytest

from components.contract.errors import DataError
from components.ingest.config import IngestConfig
from components.ingest.datasets import example_records
from components.ingest.datasets.record import Origin
from components.ingest.lookup import list_images
from components.records.tfrecord import frame
from tests.ingest import test_folder_layout
from tests.repository import ROOT

PAGE = ROOT / "docs/reference/formats.md"
PNG = b"\x89PNG\r\n\x1a\n"
ANY = "hash"


class Quirk(NamedTuple):
    """A folder with something special, and what ingest takes from it."""

    format: str
    quirk: str
    files: Mapping[str, Any]
    """Path → content; `m.csv` and the like is a manifest of the images 1.png and 2.png."""
    labels: str = ""
    """Labels of all images in their order."""
    refused: str = ""
    """Part of the sentence that refuses the folder, or of the reason why some of it is skipped."""
    splits: str = "hash"
    """Splits of all images; hash: the content decides."""
    image: str = ""
    """Path of the first image, or the feature that holds it, if not the usual one."""
    options: Mapping[str, Any] = {}

    @property
    def taken(self) -> tuple[str, str, str]:
        """The first image, all labels and all splits."""
        return self.image or _IMAGES[self.format], self.labels, self.splits


class Named(NamedTuple):
    """A table whose label is a `datasets.ClassLabel`."""

    rows: Sequence[Mapping[str, Any]]
    names: Sequence[str]


def named(label: Any, names: Sequence[str], **more: Any) -> Any:
    """Return a table of one record."""
    return Named([row(label, **more)], names)


def row(label: Any, *, image: Any = PNG, **more: Any) -> dict[str, Any]:
    """Return a record with an image."""
    return {"image": image, "label": label, **more}


def write(folder: Path, files: Mapping[str, Any]) -> dict[str, Any]:
    """Write a folder; return the options that it needs."""
    options = {}
    images = {"1.png": PNG, "2.png": PNG} if any(name.startswith("m.") for name in files) else {}
    for name, content in {**images, **files}.items():
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
        features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": names}}
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        table = pa.Table.from_pylist([*rows]).replace_schema_metadata(metadata if names else {})
        pyarrow.parquet.write_table(table, buffer, row_group_size=16)
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
PARQUET, RECORDS, TAR, FOLDERS = "Parquet", "TFRecord, TFDS", "WebDataset", "Folders"
_IMAGES = {CSV: "1.png", JSONL: "1.png", MANIFEST: "1.png", FOLDERS: "cat/1.png"}
_IMAGES |= {PARQUET: "image", RECORDS: "image", TAR: "jpg"}
_LABEL, _DOG, _PNG = ("1.cls", b"cat"), ("2.cls", b"dog"), ("1.jpg", PNG)
_CRANE = {"image/encoded": PNG, "image/class/text": "crane"}
_TWO_IMAGES = [("1.left.jpg", PNG), ("1.right.jpg", PNG)]
_NINE_IMAGES = [(f"{number}.jpg", PNG) for number in range(9)]
_LABEL_1 = {"path": "1.png", "label": 1}
_CAT_DOG = {"cat/1.png": PNG, "dog/1.png": PNG}


def _csv(quirk: str, text: str, *taken: Any) -> Quirk:
    return Quirk(CSV, quirk, {"m.csv": f"path,label{text}"}, *taken)


def _jsonl(quirk: str, *rows: Any, labels: str = "", refused: str = "") -> Quirk:
    return Quirk(JSONL, quirk, {"m.jsonl": rows}, labels, refused)


def _parquet(quirk: str, files: Mapping[str, Any] | Any, *taken: Any, **more: Any) -> Quirk:
    files = files if isinstance(files, Mapping) else {"a.parquet": files}
    return Quirk(PARQUET, quirk, files, *taken, **more)


def _no_table(quirk: str, refused: str, *rows: Any) -> Quirk:
    return _parquet(quirk, rows, "", refused)


def _records(quirk: str, names: str, labels: str, refused: str, *rows: Any) -> Quirk:
    return Quirk(RECORDS, quirk, {"a.tfrecord": rows, "labels.txt": names}, labels, refused)


def _no_record(quirk: str, refused: str, features: Any) -> Quirk:
    return Quirk(RECORDS, quirk, {"a.tfrecord": [features]}, refused=refused)


def _tar(quirk: str, labels: str, refused: str, *members: Any, image: str = "") -> Quirk:
    return Quirk(TAR, quirk, {"a.tar": members}, labels, refused, image=image)


DOG_BIRD = ["dog", "bird"]
NO_TEXT = "is neither text nor a whole number"
QUIRKS: Sequence[Quirk] = [
    Quirk(CSV, "Hugging Face's columns", {"m.csv": "file_name,label\n1.png,cat\n"}, "cat"),
    _csv("empty rows", ",,\n1.png,cat,,\n,,,\n2.png,dog,,\n,,,\n", "cat, dog"),
    _csv("`0` and `0.0`, but keys as they are", "\n1.png,0.0\n2.png,017\n", "0, 017"),
    _csv(
        "`_unlabeled`, `no_label`, −1 or nothing as label",
        "\n1.png,cat\n2.png,_unlabeled\n",
        "cat",
        "no label",
    ),
    _csv("a column twice", ",Label\n1.png,cat,dog\n", "", "it has the column label twice"),
    Quirk(CSV, "no header", {"m.csv": "train,1.png,cat\n"}, "", "first line must be path,label"),
    _csv("synonyms of splits", ",split\n1.png,a,TRAIN\n2.png,a,dev\n", "a, a", "", "train, eval"),
    _csv("`UNASSIGNED` as split", ",split\n1.png,cat,UNASSIGNED\n", "", "name train, eval or test"),
    _csv("`nan` as split", ",split\n1.png,cat,nan\n", "", "for a missing value: leave it empty"),
    _jsonl("a list of one value", {"path": "1.png", "label": ["cat"]}, labels="cat"),
    _jsonl(
        "NaN for label, split or group",
        {"path": "1.png", "label": "cat", "split": math.nan, "group": math.nan},
        {"path": "2.png", "label": math.nan},
        labels="cat",
        refused="no label",
    ),
    *(
        _jsonl(quirk, {"path": "1.png", "label": label}, refused=f"Row 1 .*{why}")
        for quirk, label, why in [
            ("a list of several labels", ["cat", "dog"], "has several values: give one"),
            ("an object as label", {"name": "cat"}, NO_TEXT),
            ("`true` as label", True, NO_TEXT),
            ("a fraction as label", 1.5, NO_TEXT),
        ]
    ),
    Quirk(MANIFEST, "`ClassLabel`", {"m.parquet": Named([_LABEL_1], DOG_BIRD)}, "bird"),
    _parquet("a date as label", [row(datetime.date(2024, 5, 1))], "2024-05-01"),
    _parquet("a whole number as decimal", [row(Decimal("1.00"))], "1"),
    _no_table("an infinite label", f"its label {NO_TEXT}", row(math.inf)),
    Quirk(
        MANIFEST,
        "text as bytes",
        {"m.parquet": [{"path": b"1.png", "label": b"cat", "split": b"test"}]},
        "cat",
        splits="test",
    ),
    _parquet(
        "`ClassLabel` in another order in each shard",
        {"a.parquet": named(0, DOG_BIRD), "b.parquet": named(0, DOG_BIRD[::-1])},
        "dog, bird",
    ),
    _parquet(
        "a struct of bytes and path", named(1, DOG_BIRD, image={"bytes": PNG, "path": "x"}), "bird"
    ),
    _parquet(
        "numbers without names beside names",
        {"a.parquet": named(0, DOG_BIRD), "b.parquet": [row(0)]},
        "",
        "The labels of b.parquet are numbers, such as 0, but those of a.parquet are names",
    ),
    _parquet(
        "`ClassLabel`, and `labels.txt` in another order",
        {"a.parquet": named(0, DOG_BIRD), "labels.txt": "bird\ndog\n"},
        "",
        "a.parquet and labels.txt name different classes",
    ),
    _parquet("a number outside of `ClassLabel`", named(2, DOG_BIRD), "", "only the numbers 0 to 1"),
    _no_table("`label` and `Label`", "name one with ingest.features", row("cat", Label="dog")),
    _parquet(
        "a group in two splits",
        [row("cat", split="train", who="x"), row("cat", split="test", who="x")],
        refused="Group 'x' is in the splits 'train' and 'test'",
        options={"features": {"group": "who"}},
    ),
    _no_table("a mask as label", "holds images, not the label", row(PNG)),
    _no_table("a struct as label", f"its label {NO_TEXT}", row({"id": 0, "name": "cat"})),
    _no_table("a list of images in a row", "several images in a rec", row("a", image=[PNG, PNG])),
    _no_table("URLs", "holds text, such as 'http://a', not images", row("cat", image="http://a")),
    _records("TF-slim's lines `0:daisy`, CRLF", "0:daisy\r\n1:rose\r\n", "daisy", "", row(0)),
    _records("labels from 1, numbered names", "1:daisy\n2:a\n", "daisy, a", "", row(1), row(2)),
    _records("labels from 1, names without numbers", "a\nb\n", "", "lines as 1:a", row(1), row(2)),
    _records("a name twice, or an empty line", "a\nb\na\n", "", "the same name, 'a'", row(1)),
    _records("text as label, useless names", "dog\n\ndog\n", "cat", "", row("cat")),
    _records("TFDS's −1 for no label", "cat\n", "cat", "no label", row(-1), row(0)),
    _records("a one-hot label", "", "", "its label has several values", row([0, 1]), row([1, 0])),
    Quirk(
        RECORDS,
        "a name of two numbers, as ImageNet's crane",
        {"a.tfrecord": [{**_CRANE, "image/class/label": number} for number in (1, 2)]},
        refused="has the number 1 with the label 'crane', but also the number 2 with",
    ),
    Quirk(
        RECORDS,
        "an image of float32 by TFDS",
        {
            "a.tfrecord": [row(0)],
            "features.json": """{"featuresDict": {"features": {"image": {"image": {
                "dtype": "float32", "encodingFormat": "png"}}}}}""",
        },
        refused="holds pixels of float32, by features.json: write the data set with uint8",
    ),
    Quirk(
        RECORDS,
        "`labels.txt` in each folder, in another order",
        {
            **{f"{split}/a.tfrecord": [row(0)] for split in ("train", "test")},
            "train/labels.txt": "dog\nbird\n",
            "test/labels.txt": "bird\ndog\n",
        },
        refused="train/labels.txt and test/labels.txt name different classes",
    ),
    _no_record("two images in a record", "several images in a record", row("a", image=[PNG, PNG])),
    _no_record("a list of pixels", "raw pixels, not encoded images", row(1, image=[7, 8])),
    _no_record("no label", "'image', but none is known to be the label", {"image": PNG}),
    _no_record("no image", "'label', but none is known to be the image", {"label": 1}),
    *(
        _tar(quirk, "cat", "no image", _PNG, (f"1{mask}", PNG), _LABEL, (f"2{mask}", PNG), _DOG)
        for quirk, mask in [
            ("a mask beside the image", ".seg.png"),
            ("a mask of the same name as the image", ".png"),
        ]
    ),
    _tar("masks alone", "", "none is known to be the image", ("1.seg.png", PNG), _LABEL),
    _tar("images of several formats", "cat, dog", "", _PNG, _LABEL, ("2.webp", PNG), _DOG),
    _tar(
        "extensions of two parts",
        "cat, dog",
        "",
        *[("1.input.jpg", PNG), _LABEL, ("2.input.png", PNG), _DOG],
        image="input.jpg",
    ),
    _tar("several images in a sample", "", "all images: name one", *_TWO_IMAGES, _LABEL),
    _tar("all images, then all labels", "", "apart in it, sort them", *_NINE_IMAGES, _LABEL),
    _tar("torn samples", "dog", "not lie next to each other", _PNG, ("2.jpg", PNG), _DOG, _LABEL),
    Quirk(
        FOLDERS,
        "Hugging Face's `metadata.csv` in each split",
        {
            f"{split}/{name}": content
            for split in ("train", "test")
            for name, content in [("1.png", PNG), ("metadata.csv", "file_name,label\n1.png,cat\n")]
        },
        "cat, cat",
        splits=f"test, {ANY}",
        image="test/1.png",
    ),
    Quirk(
        FOLDERS,
        "Hugging Face's `metadata.parquet`, which has no labels",
        {"metadata.parquet": [{"file_name": "1.png", "text": "a cat"}], **_CAT_DOG},
        "cat, dog",
    ),
    Quirk(
        FOLDERS,
        "`_unlabeled` (FiftyOne), `no_label` (CVAT, Datumaro)",
        {**_CAT_DOG, "_unlabeled/1.png": PNG},
        "cat, dog",
        "no label",
    ),
]


_MOST_CHARACTERS = 600
_EXPECTED = {"", "names of the labels", "not in the manifest", "not inside a label folder"}


@pytest.mark.parametrize(
    "quirk", QUIRKS, ids=[f"{quirk.format}: {quirk.quirk}" for quirk in QUIRKS]
)
def test_what_is_taken(quirk: Quirk, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    config = IngestConfig(**write(folder, quirk.files), **quirk.options)
    if not quirk.labels:
        with pytest.raises(DataError, match=quirk.refused) as caught:
            list_images(str(folder), config)
        assert len(str(caught.value)) - str(caught.value).count(str(tmp_path)) < _MOST_CHARACTERS
        return
    listing = list_images(str(folder), config)
    origins = [Origin.decode(file.version) if file.shard else None for file in listing.files]
    taken = [
        (origin.image if origin else file.path, file.label, file.split or ANY)
        for file, origin in zip(listing.files, origins, strict=True)
        if not (origin and origin.problem)
    ]
    images, labels, splits = zip(*taken, strict=True)
    result = images[0], ", ".join(labels), ", ".join(dict.fromkeys(splits))
    assert result == quirk.taken
    reasons = {*listing.skipped.values()} | {origin.problem for origin in origins if origin}
    assert len(reasons - _EXPECTED) == bool(quirk.refused)
    assert all(re.search(quirk.refused, reason) for reason in reasons - _EXPECTED)


def render() -> str:
    """Return the page in Markdown."""
    lines = [
        "# What is taken from which format",
        "",
        "Each is a test; `uv run python -m tests.ingest.test_quirks` makes this page. Images",
        "without a label, and masks, are skipped.",
        "",
        "## Manifests and shards",
        "",
        "|format|taken|refused, with what to do|",
        "|-|-|-|",
    ]
    taken = _group((quirk.quirk, quirk.format) for quirk in QUIRKS if quirk.labels)
    refused = _group((quirk.quirk, quirk.format) for quirk in QUIRKS if not quirk.labels)
    for name in taken:
        lines.append(f"|{name}|{'; '.join(taken[name])}|{'; '.join(refused.get(name, ()))}|")
    lines += ["", *_render_folders(), *_PIXELS]
    return "\n".join(lines) + "\n"


_PIXELS = (
    "## Pixels of image files",
    "",
    "Ingest, `predict` and `serve` take JPEG, PNG, GIF, BMP, WebP, AVIF, HEIF, Netpbm",
    "and TIFF. PNG, Netpbm and TIFF may have 1, 2, 4, 8 or 16 bits, AVIF and HEIF also 10 or 12.",
    "Samples are scaled by their bits, never by their smallest and largest value: 12 bits in",
    "16 look almost black, and the report says so.",
    "",
    "A TIFF may be gray, RGB, CMYK, YCbCr or have a palette. Its first picture counts.",
    "Refused with the reason: a thumbnail before its picture, bands without colors, floats,",
    "signed and 32-bit numbers, 12 bits, inks other than CMYK, volumes, and a fourth band that is",
    "no transparency. DICOM, PSD, JPEG 2000, JPEG XL, PFM, PDF, SVG, videos and cameras' raw",
    "formats are refused by name.",
)


def _group(reasons: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return reason → all names with it."""
    groups: dict[str, list[str]] = {}
    for name, reason in reasons:
        groups.setdefault(reason, []).append(name)
    return groups


def _render_folders() -> Iterator[str]:
    yield from ("## Folders as they are unpacked", "")
    public = test_folder_layout.PUBLIC.items()
    recognized = [name for name, (_, expected) in public if isinstance(expected, set)]
    others = [name for name, _ in public if name not in recognized]
    yield textwrap.fill(f"Labels are found in {', '.join(recognized)}.", 100)
    yield ""
    title = "Refused, with the folder to give or another way out"
    yield textwrap.fill(f"{title}: {', '.join(others)}.", 100)
    yield ""


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    print(PAGE)
