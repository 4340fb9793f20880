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
from tests.ingest.test_listing import touch
from tests.pictures import encode, picture, write_folder

CONFIG = IngestConfig()


def test_the_sample_has_every_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.ingest.survey.SAMPLE", 12)
    write_folder(tmp_path / "wide", each=40)
    sizes = {"blue": 30, "green": 40, "red": 50}
    for label, width in sizes.items():
        for path in (tmp_path / "wide" / label).iterdir():
            path.write_bytes(encode(picture(1, width=width), "PNG"))
    survey = take_survey(list_images(f"{tmp_path}/wide"), CONFIG)
    assert survey.sampled == 12
    assert {width for width, _ in survey.sizes} == set(sizes.values())
    assert (survey.shorter_side, survey.formats) == (24, {"PNG": 12})


def test_only_the_beginning_of_large_files_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = fsspec.filesystem("memory")
    best = {"quality": 100}
    long_header = {"exif": b"Exif\0\0" + bytes(60_000), "icc_profile": bytes(60_000)}
    noise = Image.frombytes("RGB", (200, 302), random.Random(0).randbytes(200 * 302 * 3))
    images = {
        "a/1.jpg": (encode(noise.crop((0, 0, 200, 300)), "JPEG", **best), 2**16),
        "a/2.png": (encode(noise.crop((0, 0, 200, 301)), "PNG"), 2**16),
        "b/1.jpg": (encode(noise, "JPEG", **best, **long_header), None),
        "b/3.jpg": (encode(noise.crop((0, 0, 20, 30)), "JPEG"), None),
    }
    for name, (data, _) in images.items():
        fs.pipe(f"/large/{name}", data)
    asked: dict[str, list[int | None]] = {}
    read_once = fetch._read_once

    async def noted(fs: Any, path: str, file: Any, size: int) -> fetch.Content:
        asked.setdefault(file.path, []).append(size if size < file.size else None)
        return await read_once(fs, path, file, size)

    monkeypatch.setattr(fetch, "_read_once", noted)
    survey = take_survey(list_images("memory://large"), CONFIG)
    fs.rm("/large", recursive=True)
    assert sorted(height for _, height in survey.sizes) == [30, 300, 301, 302]
    assert not survey.suspects
    assert {name: sizes[-1] for name, sizes in asked.items()} == {
        name: size for name, (_, size) in images.items()
    }


def test_a_folder_without_images_is_a_user_error(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "b/1.jpg")
    named = r"None of 2 sampled files .* such as a/1.jpg \(not an image\)"
    with pytest.raises(DataError, match=named):
        take_survey(list_images(str(tmp_path)), CONFIG)
