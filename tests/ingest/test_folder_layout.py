import itertools
import re
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
    """They are accounted for, and make an unclear layout clear; excluded folders are not read."""
    images = ["train/cat/1.jpg", "test/cat/1.jpg"]
    others = ["docs/a/1.jpg", "test/cat/b.bmp", "train/[x]/1", "train/extra [old]/1"]
    config = IngestConfig(
        exclude=["./docs/", "*.bmp", "train/[[]x]", "train/extra [old]", "sample"]
    )
    listing = list_images(str(touch(tmp_path, *images, *others)), config)
    assert [file.path for file in listing.files] == sorted(images)
    excluded = ("docs", "test/cat/b.bmp", "train/[x]", "train/extra [old]")
    assert listing.skipped == dict.fromkeys(excluded, "excluded")
    assert "Nothing matches 'sample' of ingest.exclude." in listing.notes


def test_a_split_without_label_folders_is_noted(tmp_path: Path) -> None:
    listing = list_images(str(touch(tmp_path, "train/cat/1", "val/cat/1", "test/1", "test/2")))
    assert "test/ has no label folders, so its 2 files are skipped." in listing.notes


def test_folders_without_images_are_noted(tmp_path: Path) -> None:
    touch(tmp_path, "train/cat/1.jpg", "train/dog/1.jpg", "train/fox/notes.txt", ".git/1")
    (tmp_path / "val/cat").mkdir(parents=True)
    assert list_images(str(tmp_path)).notes[-2:] == (
        f"Folders without images are not labels: val in {tmp_path}.",
        f"Folders without images are not labels: fox in {tmp_path}/train.",
    )


def test_labels_that_are_most_likely_none_are_noted(tmp_path: Path) -> None:
    paths = ["train/cat/1.jpg", "train/dog/2019/1.jpg", "train/masks/1.jpg"]
    listing = list_images(str(touch(tmp_path, *paths)))
    assert list_images(str(tmp_path), IngestConfig(exclude=["train/masks"])).labels() == {*TWO}
    assert listing.notes[-2:] == (
        "Labels named like parts of a data set: masks. If they are none, leave them out: "
        """--ingest.exclude '["train/masks"]'""",
        "Folders in label folders are not labels: train/dog/2019.",
    )


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
        ["train/cat/1", "train/dog/1", "test/cat/2", "test/dog/2", "test/fox/1"],
        "Split 'train' of {0} has no images of class 'fox': add some, or remove the class from "
        "every split.",
    ),
}


@pytest.mark.parametrize(("paths", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_layout_errors_are_explained(tmp_path: Path, paths: list[str], message: str) -> None:
    with pytest.raises(DataError) as caught:
        check_labels(list_images(str(touch(tmp_path, *paths))))
    assert message.format(tmp_path) in str(caught.value)


# A file beside the images, the folder that is given, and what the error says.
NO_FOLDERS = {
    "a table": ("flat/my labels.tsv", "flat", r"--ingest.manifest '/.*/flat/my labels.tsv'\.$"),
    "misspelled": ("photos/cat/1", "photo", r"/photo does not exist: .* Did you mean 'photos'\?$"),
    **{
        name: (name, name, "an archive: unpack it")
        for name in ("photos.zip", "photos.ZIP", "photos.tar.gz")
    },
    "labels.csv": ("labels.csv", "labels.csv", "with --ingest.manifest /"),
}


@pytest.mark.parametrize(("file", "given", "message"), NO_FOLDERS.values(), ids=NO_FOLDERS)
def test_what_is_no_folder_of_images(tmp_path: Path, file: str, given: str, message: str) -> None:
    touch(tmp_path, "flat/1.jpg", file)
    with pytest.raises(DataError, match=message):
        list_images(f"{tmp_path}/{given}")


def expand(text: str) -> list[str]:
    """Return the paths in a text, with braces as in a shell: `{cat,dog}/1.jpg`."""
    parts = ([part.split(",") for part in re.split("[{}]", path)] for path in text.split())
    return ["".join(choice) for options in parts for choice in itertools.product(*options)]


TWO = ("cat", "dog")
PARTS, BOXES = "most likely not labels", "a data set for object detection ({})"
COCO, VOC, YOLO = (BOXES.format(name) for name in ("COCO", "Pascal VOC", "YOLO"))
# Files of data sets as they are unpacked → labels, or what the error says with the path to give.
PUBLIC: dict[str, tuple[str, set[str] | str]] = {
    "Office-31": (
        "{amazon,dslr}/images/{cat,dog}/1.jpg webcam/images/cat/1.jpg",
        "several (amazon and dslr) have the same folders (cat and dog): set ingest.layout to label "
        "or split, or give one of them, such as {0}/amazon/images",
    ),
    "Oxford Pets": (
        "images/cat_1.jpg annotations/{trimaps/cat_1.png,xmls/cat_1.xml}",
        f"The folders annotations and images of {{0}} are {PARTS}",
    ),
    "CUB-200-2011": ("images/{1.A,2.B}/1.jpg {a/,}c.txt parts/p.txt", "{0}/images has several"),
    "CUB-200-2011 with segmentations": (
        "{images,segmentations}/{1.A,2.B}/1.png",
        f"{PARTS}. {{0}}/images has several",
    ),
    "Caltech-101": ("101/{cat,dog}/1.jpg Annotations/{cat,dog}/1.mat", "{0}/101 has several"),
    "Stanford Dogs": (
        "Images/{cat,dog}/1.jpg Annotation/{cat,dog}/n1_1",
        "Only Images of {0} has pictures. {0}/Images has several",
    ),
    "ImageNet": (
        "ILSVRC/Data/CLS-LOC/{train/cat,train/dog,val}/1.JPEG ILSVRC/ImageSets/CLS-LOC/val.txt "
        "ILSVRC/Annotations/CLS-LOC/train/{cat,dog}/1.xml",
        "{0}/ILSVRC/Data/CLS-LOC has several",
    ),
    "ImageNet with its devkit": ("train/{cat,dog}/1.jpg val/1.JPEG devkit_t12/d/meta.mat", {*TWO}),
    "Tiny ImageNet": ("train/{cat,dog}/images/1.JPEG val/images/1.JPEG val/boxes.txt", {*TWO}),
    "Kaggle's train/train": ("train/train/{cat,dog}/1.jpg", {*TWO}),
    "Kaggle Intel": ("{seg_train/seg_train,seg_test/seg_test}/{cat,dog}/1 seg_pred/1", {*TWO}),
    "Kaggle's PlantVillage": (
        "{,PlantVillage/}{cat,dog}/1.jpg",
        "{0}/PlantVillage has folders with the names of those beside it (cat and dog)",
    ),
    "PlantVillage": ("{color,grayscale,segmented}/{cat,dog}/1.jpg", "such as {0}/color"),
    "MVTec AD": (
        "{cat,dog}/{ground_truth/bent,test/bent,train/good}/1.png",
        "have the same folders (ground_truth, test and train)",
    ),
    "a part of MVTec AD": (
        "{test/bent,test/good,train/good}/1.png",
        "Split 'train' of {0} has no images of class 'bent': add some, or remove the class",
    ),
    "BUSI": ("{cat,dog}/1{,_mask,_mask_1,mask}.png", {*TWO}),
    "Cityscapes": ("{gtFine,leftImg8bit}/{train,val}/a/1.png", "such as {0}/leftImg8bit"),
    "Stanford Cars": (
        "cars_{train,test}/1.jpg devkit/annos.mat",
        "The folders cars_test and cars_train of {0} have images, but no label folders",
    ),
    "COCO": ("{train2017/1,val2017/2}.jpg annotations/captions.json", COCO),
    "Pascal VOC": ("JPEGImages/1.jpg Segmentation/1.png Annotations/1.xml ImageSets/a.txt", VOC),
    "Roboflow's YOLO": ("{train,valid}/{images/1.jpg,labels/1.txt}", YOLO),
    "YOLO's darknet": ("obj_train_data/1.jpg obj.data train.txt", YOLO),
    "KITTI": ("training/{image_2/1.png,label_2/1.txt}", BOXES.format("KITTI")),
    "Roboflow's several labels": ("train/{1.jpg,_classes.csv}", "several labels for an image"),
    "Roboflow's COCO": ("train/{1.jpg,_annotations.coco.json}", COCO),
    "CelebA": (
        "Img/img_align_celeba/1.jpg Anno/list_attr_celeba.txt Eval/list_eval.txt",
        "only one class, 'Img': a classifier needs at least two. If its images have several",
    ),
    "Places365": ("data_256/{a/cat,a/dog,b/bar}/1.jpg", "{0}/data_256 has several"),
    "Places365, data_256": (
        "{a/abbey,a/alley,b/bar,b/beach,c/cafe}/1.jpg",
        "It is unclear which folders are the labels: those in {0}, or those in them (a: abbey and "
        "alley; b: bar and beach)",
    ),
    "superclasses in splits": (
        "{train,val}/{a/ant,a/bee,b/car}/1.jpg",
        "For the first, set ingest.layout to split; else give one of them, such as {0}/train/a",
    ),
    "chest X-rays": ("images_00{0,1,2}/images/1.png Data_Entry_2017.csv", PARTS),
    "HAM10000": ("HAM10000_images_part_{1,2}/1.jpg HAM10000_metadata.csv", PARTS),
    "COVID radiography": (
        "{COVID,Normal}/{images,masks}/1.png",
        """leave masks out, as in --ingest.exclude '["*/masks"]'""",
    ),
    "few named pictures": ("{train,val}/{cat,dog}/1 docs/logo.png", {*TWO}),
    "GTSRB": (
        "Final_Training/Images/{cat,dog}/1.ppm Final_Test/Images/1.ppm",
        "(Final_Test and Final_Training): set ingest.layout to split, or to label if they are",
    ),
}


@pytest.mark.parametrize(("paths", "expected"), PUBLIC.values(), ids=PUBLIC.keys())
def test_roots_of_public_data_sets(tmp_path: Path, paths: str, expected: set[str] | str) -> None:
    folder = str(touch(tmp_path, *expand(paths)))
    if isinstance(expected, set):
        listing = list_images(folder)
        check_labels(listing)
        assert listing.labels() == expected
        return
    with pytest.raises(DataError) as caught:
        check_labels(list_images(folder))
    assert expected.format(tmp_path) in str(caught.value)
