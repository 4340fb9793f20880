from pathlib import Path

import pytest

from components.contract.errors import DataError
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_images
from components.ingest.source.listing import check_labels, find_look_alikes
from tests.ingest.test_listing import touch

LABELS, SPLITS = {None}, {"train", "eval"}
CLEAR = {
    "labels": (["cat/1", "dog/1"], LABELS),
    "folders below the labels": (["cat/2019/may/1", "dog/2019/1", "dog/2020/1"], LABELS),
    "one label has a name with a word of a split": (["test tube/1", "cup/1"], LABELS),
    "train and eval": (["train/cat/1", "eval/cat/1"], SPLITS),
    "upper case": (["Train/cat/1", "VALIDATION/cat/1"], SPLITS),
    "sets": (["training_set/cat/1", "val-set/cat/1", "Test Set/cat/1"], {*SPLITS, "test"}),
    "several names of a split": (["train/cat/1", "dev/cat/1", "valid/cat/1"], SPLITS),
    "eval is a part of train": (["train/cat/1", "testing/cat/1"], {None, "test"}),
    "train alone is divided": (["train/cat/1", "train/dog/1"], LABELS),
}


@pytest.mark.parametrize(("paths", "splits"), CLEAR.values(), ids=CLEAR.keys())
def test_clear_layouts(tmp_path: Path, paths: list[str], splits: set[str | None]) -> None:
    listing = list_images(str(touch(tmp_path, *paths)))
    assert {file.split for file in listing.files} == splits
    depth = 1 if "train" in paths[0].lower() else 0
    assert [file.label for file in listing.files] == [p.split("/")[depth] for p in sorted(paths)]


BOTH = ["/cat/1", "/dog/1"]
# Paths → why the layout is unclear, and the splits if they are said to be splits.
UNCLEAR = {
    "a folder that is no split": (
        ["train/cat/1", "val/cat/1", "sample/cat/1"],
        r"some have names of splits \(train and val\) and some do not \(sample\)",
        {"train", "eval", "sample"},
    ),
    "documents beside splits": (
        ["train/cat/1", "test/cat/1", "docs/a/1"],
        r"some do not \(docs\): set ingest.layout to label or split, or leave folders out, as in "
        r"""--ingest.exclude '\["docs"\]'\.$""",
        {None, "test", "docs"},
    ),
    "train has no images": (
        ["val/cat/1", "test/cat/1", "train/.keep"],
        r"names of splits \(test and val\), but none is train",
        None,
    ),
    "words of several splits": (
        ["seg_train/cat/1", "seg_test/cat/1", "seg_pred/1"],
        r"names contain those of splits \(seg_test and seg_train\)",
        {None, "test"},
    ),
    "the same labels": (
        [f"{top}{path}" for top in ("first", "second") for path in BOTH] + ["docs/1"],
        r"several \(first and second\) have the same folders \(cat and dog\)",
        None,
    ),
    "splits below the labels": (
        [f"{label}/{split}/1" for label in "abcd" for split in ("test", "train")],
        r"several \(a, b, c and 1 more\) have the same folders \(test and train\)",
        None,
    ),
}


@pytest.mark.parametrize(("paths", "message", "splits"), UNCLEAR.values(), ids=UNCLEAR.keys())
def test_unclear_layouts_are_refused_unless_an_option_says_what_they_are(
    tmp_path: Path, paths: list[str], message: str, splits: set[str | None] | None
) -> None:
    folder = str(touch(tmp_path, *paths))
    with pytest.raises(
        DataError, match="It is unclear whether .* are labels or splits.*" + message
    ):
        list_images(folder)
    labels = {file.label for file in list_images(folder, IngestConfig(layout="label")).files}
    assert labels == {path.split("/")[0] for path in paths if "/." not in path}
    if splits is None:
        with pytest.raises(DataError, match=r"has no images in (a folder train/|label)"):
            list_images(folder, IngestConfig(layout="split"))
    else:
        listing = list_images(folder, IngestConfig(layout="split"))
        assert {file.split for file in listing.files} == splits


def test_folders_and_files_are_left_out_by_path(tmp_path: Path) -> None:
    """They are accounted for, and make an unclear layout clear."""
    paths = ["train/cat/1.jpg", "test/cat/1.jpg", "docs/a/1.jpg", "test/cat/b.txt", "train/[x]/1"]
    config = IngestConfig(exclude=["docs/", "*.txt", "train/[[]x]", "sample"])
    listing = list_images(str(touch(tmp_path, *paths)), config)
    assert [file.path for file in listing.files] == ["test/cat/1.jpg", "train/cat/1.jpg"]
    assert listing.skipped == tuple((path, "excluded") for path in sorted(paths[2:]))
    assert "Nothing matches 'sample' of ingest.exclude." in listing.notes


def test_a_split_without_label_folders_is_noted(tmp_path: Path) -> None:
    listing = list_images(str(touch(tmp_path, "train/cat/1", "val/cat/1", "test/1", "test/2")))
    assert "test/ has no label folders, so its 2 files are skipped." in listing.notes


def test_names_that_look_alike_are_warned_of(tmp_path: Path) -> None:
    labels = ("cafe\u0301", "caf\xe9", "cat", "Cat ", "dog")
    listing = list_images(str(touch(tmp_path, *(f"{label}/1" for label in labels))))
    assert find_look_alikes(listing) == [
        "labels that differ only in case, spaces or Unicode form: 'Cat ', 'cat'",
        "labels that differ only in case, spaces or Unicode form: 'cafe\\u0301', 'caf\\xe9'",
    ]
    manifest = tmp_path / "m.csv"
    rows = ["cat/1,cat,night,film 1", "dog/1,dog,Night,Film 1", "Cat /1,dog,train,"]
    manifest.write_text("\n".join(["path,label,split,group", *rows]))
    splits = {"train": 0.7, "eval": 0.1, "night": 0.1, "Night": 0.1}
    listing = list_images(str(tmp_path), IngestConfig(manifest=str(manifest), splits=splits))
    assert [text.split()[0] for text in find_look_alikes(listing)] == ["splits", "groups"]


ONE = "has only one class, 'a': a classifier needs at least two."


ERRORS = {
    "a line break in a label": (["c\nat/1.jpg", "dog/1.jpg"], "not one line of UTF-8"),
    "bytes that are no text": (["c\udcffat/1.jpg", "dog/1.jpg"], "not one line of UTF-8"),
    "images in the folder itself": (
        ["1.jpg", "2.png", "notes.txt"],
        "put them at label/image, such as cat/1.jpg, or at "
        "split/label/image, such as train/cat/1.jpg, or list the labels in a table",
    ),
    "an archive in the folder": (
        ["photos.zip", "readme.txt"],
        "{0}/photos.zip is an archive: unpack it, and give the folder of label folders.",
    ),
    "nothing": ([], "{0} has no images in label folders"),
    "one class": (["a/1.jpg"], ONE),
    "two levels too deep": (
        ["a/b/cat/1.jpg", "a/b/dog/x/1.jpg"],
        ONE + " {0}/a/b has several: local_runner.py {0}/a/b",
    ),
    "one image of a class that train lacks": (
        [
            "train/cat/1.jpg",
            "train/dog/1.jpg",
            "test/cat/2.jpg",
            "test/dog/2.jpg",
            "test/fox/1.jpg",
        ],
        "Split 'train' of {0} has no images of class 'fox': add some, or remove the class from "
        "every split.",
    ),
}


@pytest.mark.parametrize(("paths", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_layout_errors_are_explained(tmp_path: Path, paths: list[str], message: str) -> None:
    with pytest.raises(DataError) as caught:
        check_labels(list_images(str(touch(tmp_path, *paths))))
    assert message.format(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("folders", "given", "better"),
    [
        (("cat", "dog", "docs/x"), "dog", ""),
        (("data/train/cat", "data/train/dog"), "data/train/dog", "data"),
    ],
)
def test_one_level_too_deep(
    tmp_path: Path, folders: tuple[str, ...], given: str, better: str
) -> None:
    touch(tmp_path, *(f"{folder}/1.jpg" for folder in folders))
    with pytest.raises(
        DataError, match="if it is a label itself, as cat beside it, give"
    ) as caught:
        list_images(str(tmp_path / given))
    assert f", give {tmp_path / better}; else put them at label/image" in str(caught.value)


def test_a_split_alone_and_a_table_among_the_images(tmp_path: Path) -> None:
    touch(tmp_path, "train/cat/1.jpg", "train/dog/1.jpg", "val/cat/1.jpg", "val/dog/1.jpg")
    listing = list_images(f"{tmp_path}/train")
    assert listing.notes[-1] == f"Not used: val beside train. To use it, give {tmp_path}."
    touch(tmp_path / "flat", "1.jpg", "my labels.tsv")
    with pytest.raises(DataError, match=r"--ingest.manifest '/.*/flat/my labels.tsv'\.$"):
        list_images(f"{tmp_path}/flat")


def test_a_misspelled_folder(tmp_path: Path) -> None:
    touch(tmp_path, "photos/cat/1.jpg", "other/1")
    with pytest.raises(DataError, match=r"/photo does not exist: .* Did you mean 'photos'\?$"):
        list_images(f"{tmp_path}/photo")


@pytest.mark.parametrize("name", ["photos.zip", "photos.ZIP", "photos.tar.gz", "labels.csv"])
def test_a_file_instead_of_a_folder(tmp_path: Path, name: str) -> None:
    file = touch(tmp_path, name) / name
    with pytest.raises(DataError, match=r"an archive: unpack it|with --ingest.manifest /"):
        list_images(str(file))
