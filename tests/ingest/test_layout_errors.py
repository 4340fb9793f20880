from __future__ import annotations

from pathlib import Path

import pytest

from components.contract.errors import DataError
from components.ingest.layout_errors import explain_archive
from components.ingest.listing import check_labels, list_images
from tests.ingest.test_listing import touch

ONE = "has only one class, 'a': a classifier needs at least two label folders."


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        pytest.param(
            ["1.jpg", "2.png", "notes.txt"],
            "{0} has 2 images directly in it, but no label folders: move each image into a folder "
            "named after its label, such as {0}/cat/1.jpg, or list the labels in a table",
            id="images in the folder itself",
        ),
        pytest.param(
            ["photos.zip", "readme.txt"],
            "{0}/photos.zip is an archive: unpack it with `unzip {0}/photos.zip -d {0}/photos`, "
            "and use the folder {0}/photos.",
            id="an archive in the folder",
        ),
        pytest.param(["notes.txt"], "{0} has no images in label folders", id="no image at all"),
        pytest.param(["a/1.jpg"], ONE, id="one class"),
        pytest.param(["a/2019/1.jpg", "a/2.jpg"], ONE, id="one class and its own folders"),
        pytest.param(
            ["a/cat/1.jpg", "a/dog/1.jpg"],
            ONE + " {0}/a has several: local_runner.py {0}/a",
            id="one level too deep",
        ),
        pytest.param(
            ["a/b/cat/1.jpg", "a/b/dog/x/1.jpg"],
            ONE + " {0}/a/b has several: local_runner.py {0}/a/b",
            id="two levels too deep",
        ),
        pytest.param(
            ["a/train/cat/1.jpg", "a/eval/cat/1.jpg"],
            ONE + " {0}/a has several",
            id="splits one level too deep",
        ),
    ],
)
def test_layout_errors_are_explained(tmp_path: Path, paths: list[str], message: str) -> None:
    with pytest.raises(DataError) as caught:
        check_labels(list_images(str(touch(tmp_path, *paths))))
    assert message.format(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", ["photos.zip", "photos.ZIP", "photos.tar.gz", "photos.tgz"])
def test_an_archive_instead_of_a_folder(tmp_path: Path, name: str) -> None:
    archive = touch(tmp_path, name) / name
    with pytest.raises(DataError, match="is an archive: unpack it with"):
        list_images(str(archive))


def test_unpacking_commands() -> None:
    assert "`unzip 'my photos.zip' -d 'my photos'`" in explain_archive("my photos.zip")
    assert "`mkdir a && tar -xf a.tar.gz -C a`" in explain_archive("a.tar.gz")
    assert "`7z x a.7z -oa`" in explain_archive("a.7z")
