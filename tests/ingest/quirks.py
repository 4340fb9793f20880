"""Data as people find them, and what is taken from them: `python -m tests.ingest.quirks`.

`test_quirks.py` holds every row, and this module writes them to docs/reference/formats.md.
"""

import io
import json
import math
import tarfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet

from components.ingest.datasets import example_records
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


class _Named(NamedTuple):
    rows: Sequence[Mapping[str, Any]]
    names: Sequence[str]


def named(label: Any, names: Sequence[str], **more: Any) -> Any:
    """Return a table of one record, whose label is a `datasets.ClassLabel`."""
    return _Named([row(label, **more)], names)


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
        rows, names = content if isinstance(content, _Named) else (content, None)
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
_IMAGES = {CSV: "1.png", JSONL: "1.png", MANIFEST: "1.png", FOLDERS: "cat/1.png"}
_IMAGES |= {PARQUET: "image", RECORDS: "image", TAR: "jpg"}
_LABEL, _PNG = ("1.cls", b"cat"), ("1.jpg", PNG)


def _csv(quirk: str, text: str, *taken: Any) -> Quirk:
    return Quirk(CSV, quirk, {"m.csv": text}, *taken)


def _parquet(quirk: str, files: Mapping[str, Any], *taken: Any) -> Quirk:
    return Quirk(PARQUET, quirk, files, *taken)


def _named(quirk: str, records: Any, names: str, *taken: Any) -> Quirk:
    return Quirk(RECORDS, quirk, {"a.tfrecord": records, "labels.txt": names}, *taken)


def _record(quirk: str, features: Any, refused: str) -> Quirk:
    return Quirk(RECORDS, quirk, {"a.tfrecord": [features]}, refused=refused)


def _tar(quirk: str, members: Any, labels: str, refused: str = "", image: str = "") -> Quirk:
    return Quirk(TAR, quirk, {"a.tar": members}, labels, refused, image=image)


QUIRKS: Sequence[Quirk] = [
    _csv("Hugging Face's columns", "file_name,label\n1.png,cat\n2.png,dog\n", "cat, dog"),
    _csv("empty rows", "path,label,,\n1.png,cat,,\n,,,\n2.png,dog,,\n,,,\n", "cat, dog"),
    _csv("`0` and `0.0`", "path,label\n1.png,0\n2.png,0.0\n", "0, 0"),
    _csv(
        "numbers in `label`, their names in `label_name`",
        "path,label,label_name\n1.png,0,cat\n2.png,1,dog\n",
        "cat, dog",
    ),
    _csv(
        "a number with two names",
        "path,label,label_name\n1.png,0,cat\n2.png,0,dog\n",
        "",
        "pairs the label 0 with",
    ),
    _csv(
        "`_unlabeled`, `no_label`, −1 or nothing as label",
        "path,label\n1.png,cat\n2.png,_unlabeled\n",
        "cat",
        "no label",
    ),
    _csv(
        "a column twice", "path,label,Label\n1.png,cat,dog\n", "", "it has the column label twice"
    ),
    _csv("no header", "training,gs://b/1.png,cat\n", "", "its first line must be path,label"),
    _csv(
        "synonyms of splits",
        "path,label,split\n1.png,cat,Training\n2.png,cat,validation\n",
        "cat, cat",
        "",
        "train, eval",
    ),
    *(
        Quirk(
            CSV, f"`{split}` as split", {"m.csv": f"path,label,split\n1.png,cat,{split}\n"}, "", why
        )
        for split, why in [
            (
                "UNASSIGNED",
                "is unknown: name train, eval or test, list it in ingest.splits, or leave",
            ),
            ("nan", "is what tools write for a missing value: leave it empty"),
        ]
    ),
    Quirk(JSONL, "a list of one value", {"m.jsonl": [{"path": "1.png", "label": ["cat"]}]}, "cat"),
    Quirk(
        JSONL,
        "NaN for label, split or group",
        {
            "m.jsonl": [
                {"path": "1.png", "label": "cat", "split": math.nan, "group": math.nan},
                {"path": "2.png", "label": math.nan},
            ]
        },
        "cat",
        "no label",
    ),
    *(
        Quirk(JSONL, quirk, {"m.jsonl": [{"path": "1.png", "label": label}]}, "", f"Row 1 .*{why}")
        for quirk, label, why in [
            ("a list of several labels", ["cat", "dog"], "has several values: give one"),
            ("an object as label", {"name": "cat"}, "is neither text nor a whole number"),
            ("`true` as label", True, "is neither text nor a whole number"),
            ("a fraction as label", 1.5, "is neither text nor a whole number"),
        ]
    ),
    Quirk(
        MANIFEST,
        "`ClassLabel`",
        {"m.parquet": _Named([{"path": "1.png", "label": 1}], ["dog", "bird"])},
        "bird",
    ),
    Quirk(
        MANIFEST,
        "text as bytes",
        {"m.parquet": [{"path": b"1.png", "label": b"cat", "split": b"test"}]},
        "cat",
        splits="test",
    ),
    _parquet(
        "`ClassLabel` in another order in each shard",
        {"a.parquet": named(0, ["dog", "bird"]), "b.parquet": named(0, ["bird", "dog"])},
        "dog, bird",
    ),
    _parquet(
        "a list of one `ClassLabel`, a struct of bytes and path",
        {"a.parquet": named([1], ["dog", "bird"], image={"bytes": PNG, "path": "x"})},
        "bird",
    ),
    _parquet(
        "numbers without names beside names",
        {"a.parquet": named(0, ["dog", "bird"]), "b.parquet": [row(0)]},
        "",
        "The labels of b.parquet are numbers, such as 0, but those of a.parquet are names",
    ),
    _parquet(
        "`ClassLabel`, and `labels.txt` in another order",
        {"a.parquet": named(0, ["dog", "bird"]), "labels.txt": "bird\ndog\n"},
        "",
        "a.parquet and labels.txt name different classes",
    ),
    _parquet(
        "a number outside of `ClassLabel`",
        {"a.parquet": named(2, ["dog", "bird"])},
        "",
        "has the label 2, but a.parquet names only the numbers 0 to 1",
    ),
    _parquet(
        "numbers in `label`, their names in `label_name`",
        {"a.parquet": [row(0, label_name="cat")]},
        "cat",
    ),
    _parquet(
        "a number with two names, or a name with two numbers",
        {"a.parquet": [row(0, label_name="crane"), row(1, label_name="crane")]},
        "",
        "has the number 0 with the label 'crane', but also the number 1 with",
    ),
    _parquet(
        "`label` and `Label`",
        {"a.parquet": [row("cat", Label="dog")]},
        "",
        "has the features 'Label', 'label': name one with ingest.features",
    ),
    Quirk(
        PARQUET,
        "a group in two splits",
        {"a.parquet": [row("cat", split="train", who="x"), row("cat", split="test", who="x")]},
        refused="Group 'x' is in the splits 'train' and 'test'",
        options={"features": {"group": "who"}},
    ),
    _parquet("a mask as label", {"a.parquet": [row(PNG)]}, "", "holds images, not the label"),
    _parquet(
        "a struct as label",
        {"a.parquet": [row({"id": 0, "name": "cat"})]},
        "",
        "its label is neither text nor a whole number",
    ),
    _parquet(
        "a list of images in a row",
        {"a.parquet": [row("cat", image=[PNG, PNG])]},
        "",
        "holds several images in a record",
    ),
    _parquet(
        "URLs",
        {"a.parquet": [row("cat", image="http://a/1.jpg")]},
        "",
        "holds text, such as 'http://a/1.jpg', not images",
    ),
    _named(
        "TF-slim's lines `0:daisy`, CRLF", [row(0), row(1)], "0:daisy\r\n1:rose\r\n", "daisy, rose"
    ),
    _named("labels from 1, numbered names", [row(1), row(2)], "1:daisy\n2:rose\n", "daisy, rose"),
    _named(
        "labels from 1, names without numbers",
        [row(1), row(2)],
        "daisy\nrose\n",
        "",
        "the labels seem to start at 1, so write its lines as 1:daisy",
    ),
    _named(
        "a name twice, or an empty line",
        [row(1)],
        "crane\ndog\ncrane\n",
        "",
        "labels.txt gives the labels 0 and 2 the same name, 'crane'",
    ),
    _named("text as label, useless names", [row("cat")], "dog\n\ndog\n", "cat"),
    _named("TFDS's −1 for no label", [row(-1), row(0)], "cat\n", "cat", "no label"),
    _named("a one-hot label", [row([0, 1]), row([1, 0])], "cat\ndog\n", "dog, cat"),
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
            "train/a.tfrecord": [row(0)],
            "train/labels.txt": "dog\nbird\n",
            "test/a.tfrecord": [row(0)],
            "test/labels.txt": "bird\ndog\n",
        },
        "bird, dog",
        splits=f"test, {ANY}",
    ),
    _record(
        "two images in a record", row("cat", image=[PNG, PNG]), "holds several images in a record"
    ),
    _record(
        "raw pixels, with width and height",
        row(1, image=bytes(12), width=3, height=4, depth=1),
        "holds raw pixels, not encoded images: store them as PNG or JPEG",
    ),
    _record("a list of pixels", row(1, image=[7, 8]), "raw pixels, not encoded images"),
    _record("no label", {"image": PNG}, "'image', but none is known to be the label"),
    _record("no image", {"label": 1}, "'label', but none is known to be the image"),
    _tar(
        "a mask beside the image",
        [_PNG, ("1.seg.png", PNG), _LABEL, ("2.seg.png", PNG), ("2.cls", b"dog")],
        "cat",
        "no image",
    ),
    _tar(
        "a mask of the same name as the image",
        [_PNG, ("1.png", PNG), _LABEL, ("2.png", PNG), ("2.cls", b"dog")],
        "cat",
        "no image",
    ),
    _tar("masks alone", [("1.seg.png", PNG), _LABEL], "", "none is known to be the image"),
    _tar(
        "images of several formats", [_PNG, _LABEL, ("2.webp", PNG), ("2.cls", b"dog")], "cat, dog"
    ),
    _tar(
        "extensions of two parts",
        [("1.input.jpg", PNG), _LABEL, ("2.input.png", PNG), ("2.cls", b"dog")],
        "cat, dog",
        "",
        "input.jpg",
    ),
    _tar(
        "several images in a sample",
        [("1.left.jpg", PNG), ("1.right.jpg", PNG), _LABEL],
        "",
        "has the features 'left.jpg', 'right.jpg', which are all images: name one",
    ),
    _tar(
        "all images, then all labels",
        [*((f"{n}.jpg", PNG) for n in range(9)), _LABEL],
        "",
        "if images and labels lie apart in it, sort them",
    ),
    _tar(
        "torn samples",
        [_PNG, ("2.jpg", PNG), ("2.cls", b"dog"), _LABEL],
        "dog",
        "the members of its sample do not lie next to each other",
    ),
    _tar(
        "keys with dots",
        [(f"frame.{n:04}.{of}", PNG) for n in range(3000) for of in ("jpg", "cls")],
        "",
        "rename these without dots before the extension",
    ),
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
        {
            "metadata.parquet": [{"file_name": "1.png", "text": "a cat"}],
            "cat/1.png": PNG,
            "dog/1.png": PNG,
        },
        "cat, dog",
    ),
    Quirk(
        FOLDERS,
        "`_unlabeled` (FiftyOne), `no_label` (CVAT, Datumaro)",
        {"cat/1.png": PNG, "dog/1.png": PNG, "_unlabeled/1.png": PNG},
        "cat, dog",
        "no label",
    ),
]


def render() -> str:
    """Return the page in Markdown."""
    lines = [
        "# What is taken from which format",
        "",
        "Each is a test; `uv run python -m tests.ingest.quirks` makes this page. Images without",
        "a label, and masks, are skipped.",
        "",
        "## Manifests and shards",
        "",
        "|format|taken|refused, with what to do|",
        "|-|-|-|",
    ]
    taken = _group((of.quirk, of.format) for of in QUIRKS if of.labels)
    refused = _group((of.quirk, of.format) for of in QUIRKS if not of.labels)
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
    found = [name for name, (_, expected) in public if isinstance(expected, set)]
    others = [name for name, _ in public if name not in found]
    yield textwrap.fill(f"Labels are found in {', '.join(found)}.", 100)
    yield ""
    told = "Refused, with the folder to give or another way out"
    yield textwrap.fill(f"{told}: {', '.join(others)}.", 100)
    yield ""


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    print(PAGE)
