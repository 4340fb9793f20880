"""Images for the ingest benchmark: unique copies of yours, as phones make them, or in shards."""

import io
import struct
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image

from benchmarks.peers.ingest_peers import list_files
from components.contract.errors import DataError
from components.records.tfrecord import RecordWriter, serialize

_SIZES = ((4032, 3024), (4032, 3024), (5712, 4284), (4032, 3024), (8064, 6048))
_TURNED = (6, 1, 8, 3)
_SHARD_COUNT = 8
_ORIENTATION, _MAKER_NOTE = 0x0112, 0x927C
# As many as all combinations of these properties.
_PHONE_PHOTOS = 12
_VIDEO = b"\0\0\0\x18ftypmp42" + bytes(range(256)) * 8192


def make_copies(
    data: str, target: str, count: int, *, side: int | None = None, phone: str | None = None
) -> None:
    """Write `count` JPEGs made from those of `data`, each with a unique comment.

    Identical files would be duplicates, which ingest reads once.

    Args:
        data: folder of `label/image.jpg`.
        target: a new folder.
        count: number of files.
        side: shrink them to so many pixels of the shorter side; None: as they are.
        phone: make photos of phones from a few of them, "turned" by EXIF or "upright".

    Raises:
        DataError: there is no JPEG in `data`.
    """
    originals = [
        (label, encoded)
        for path, label in list_files(data)
        if (encoded := Path(path).read_bytes()).startswith(b"\xff\xd8")
    ]
    if not originals:
        raise DataError(f"{data} has no JPEG in a folder of its label, as label/image.jpg.")
    if side:
        originals = [(label, _small(encoded, side)) for label, encoded in originals]
    if phone:
        originals = [
            (label, _make_phone_photo(encoded, number, turned=phone == "turned"))
            for number, (label, encoded) in enumerate(
                originals[:: -(-len(originals) // _PHONE_PHOTOS)]
            )
        ]
    for number in range(count):
        label, encoded = originals[number % len(originals)]
        comment = b"%020d" % number
        segment = b"\xff\xfe" + struct.pack(">H", len(comment) + 2) + comment
        path = Path(target, label, f"{number:07d}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded[:2] + segment + encoded[2:])


def make_shards(source: str, target: str, kind: str) -> None:
    """Write the files of a folder of label/image into a few shards of a format of `SHARDS`."""
    images = [(label, Path(path).read_bytes()) for path, label in list_files(source)]
    Path(target).mkdir(parents=True)
    for number in range(_SHARD_COUNT):
        SHARDS[kind](f"{target}/images-{number:05d}", images[number::_SHARD_COUNT])


def _write_tfrecord(path: str, images: Sequence[tuple[str, bytes]]) -> None:
    with RecordWriter(f"{path}.tfrecord") as writer:
        for label, data in images:
            writer.write(serialize({"image/encoded": data, "image/class/text": label}))


def _write_webdataset(path: str, images: Sequence[tuple[str, bytes]]) -> None:
    with tarfile.open(f"{path}.tar", "w") as archive:
        for number, (label, data) in enumerate(images):
            for extension, content in (("jpg", data), ("cls", label.encode())):
                info = tarfile.TarInfo(f"{number:07d}.{extension}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))


def _write_parquet(path: str, images: Sequence[tuple[str, bytes]]) -> None:
    import pyarrow
    import pyarrow.parquet

    pixels = pyarrow.array([{"bytes": data, "path": None} for _, data in images])
    table = pyarrow.table({"image": pixels, "label": [label for label, _ in images]})
    pyarrow.parquet.write_table(table, f"{path}.parquet", row_group_size=100)


SHARDS: dict[str, Callable[[str, Sequence[tuple[str, bytes]]], None]] = {
    "tfrecord": _write_tfrecord,
    "webdataset": _write_webdataset,
    "parquet": _write_parquet,
}
"""Format → function that writes a shard."""


def _small(encoded: bytes, side: int) -> bytes:
    from components.images.check import check_image
    from components.ingest.config import IngestConfig

    return check_image(encoded, IngestConfig(shrink=side, quality=88)).encoded


def _make_phone_photo(encoded: bytes, number: int, *, turned: bool) -> bytes:
    """Enlarge an image to 12 to 48 million pixels and encode it as the `number`th of a phone."""
    size = _SIZES[number % len(_SIZES)]
    image = Image.open(io.BytesIO(encoded)).convert("RGB").resize(size)
    # The sensor's noise, which takes most of the bytes.
    image = Image.blend(image, Image.effect_noise(size, 60).convert("RGB"), 0.1)
    preview, photo = io.BytesIO(), io.BytesIO()
    image.resize((320, 240)).save(preview, "JPEG")
    exif = Image.Exif()
    exif[_ORIENTATION] = _TURNED[number % len(_TURNED)] if turned else 1
    exif[_MAKER_NOTE] = preview.getvalue()
    if number % 3 == 0:
        depth = image.convert("L").resize((1024, 768))
        image.save(photo, "MPO", quality=88, exif=exif, save_all=True, append_images=[depth])
    else:
        image.save(photo, "JPEG", quality=88, exif=exif, progressive=number % 3 == 1)
    return photo.getvalue() + (_VIDEO if number % 4 == 1 else b"")
