import random
from pathlib import Path
from typing import Any

import fsspec
import pytest
from PIL import Image

from components.contract.errors import DataError
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_images
from components.ingest.survey import take_survey
from components.storage import fetch
from tests.pictures import encode, picture, write_folder

CONFIG = IngestConfig()


def test_the_sample_is_spread_over_all_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("components.ingest.survey.SAMPLE", 12)
    write_folder(tmp_path, each=40)
    sizes = {"blue": 30, "green": 40, "red": 50}
    for label, width in sizes.items():
        for path in (tmp_path / label).iterdir():
            path.write_bytes(encode(picture(1, width=width), "PNG"))
    found = take_survey(list_images(str(tmp_path)), CONFIG)
    assert found.sampled == 12
    assert {width for width, _ in found.sizes} == set(sizes.values())
    assert (found.shorter_side, found.formats) == (24, {"PNG": 12})


def test_the_only_image_of_a_class_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("components.ingest.survey.SAMPLE", 12)
    for split, each in (("train", 20), ("val", 10)):
        write_folder(tmp_path, each=each, split=split)
        (tmp_path / split / "swan").mkdir()
        (tmp_path / split / "swan/1.jpg").write_bytes(encode(picture(1), "JPEG"))
    assert 12 < take_survey(list_images(str(tmp_path)), CONFIG).sampled <= 14
    (tmp_path / "val/swan/1.jpg").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"Class 'swan' .* split 'eval': val/swan/1.jpg is rej"):
        take_survey(list_images(str(tmp_path)), CONFIG)


def noise(height: int, width: int) -> Image.Image:
    return Image.frombytes("RGB", (width, height), random.Random(0).randbytes(height * width * 3))


def test_only_the_beginning_of_large_files_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = fsspec.filesystem("memory")
    long_header = {"exif": b"Exif\0\0" + bytes(60_000), "icc_profile": bytes(60_000)}
    images = {
        "a/1.jpg": (encode(noise(300, 200), "JPEG", quality=100), 2**16),
        "a/2.png": (encode(noise(301, 200), "PNG"), 2**16),
        "b/1.jpg": (encode(noise(302, 200), "JPEG", quality=100, **long_header), None),
        "b/3.jpg": (encode(noise(30, 20), "JPEG"), None),
    }
    for name, (data, _) in images.items():
        fs.pipe(f"/large/{name}", data)
    asked: dict[str, list[int | None]] = {}
    read_once = fetch._read_once

    async def noted(fs: Any, path: str, file: Any, size: int) -> fetch.Content:
        asked.setdefault(file.path, []).append(size if size < file.size else None)
        return await read_once(fs, path, file, size)

    monkeypatch.setattr(fetch, "_read_once", noted)
    found = take_survey(list_images("memory://large"), CONFIG)
    fs.rm("/large", recursive=True)
    assert sorted(height for _, height in found.sizes) == [30, 300, 301, 302]
    assert not found.suspects
    assert {name: sizes[-1] for name, sizes in asked.items()} == {
        name: size for name, (_, size) in images.items()
    }


def test_a_folder_without_images_is_a_user_error(tmp_path: Path) -> None:
    for name in ("a/1.jpg", "b/1.jpg"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"text")
    named = r"None of 2 sampled files .* such as a/1.jpg \(not an image\)"
    with pytest.raises(DataError, match=named):
        take_survey(list_images(str(tmp_path)), CONFIG)
