import dataclasses
import hashlib
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image, ImageEnhance

from components.contract.errors import StorageError
from components.images.check import check_image
from components.ingest.config import IngestConfig
from components.ingest.datasets.reading import read_images
from components.ingest.plan.facts import FACTS, ROW_BYTES, plan_path
from components.ingest.plan.near_duplicates import find_groups
from components.ingest.plan.shard_plan import read_plan
from components.ingest.source.corrections import Correction, write_corrections
from components.ingest.source.listing import ImageFile
from components.ingest.write import plan_writer
from components.ingest.write.plan_writer import IngestJob, picture_row, write_plan
from components.records.shard_files import read_index
from components.storage.fetch import Unread
from tests.files import write_files
from tests.ingest.plain import HEADER, ingest, write_manifest
from tests.pictures import encode, scene, turned

CONFIG = IngestConfig(splits={"train": 0.5, "eval": 0.5}, min_shards=3)


def jpeg(image: Image.Image, **options: object) -> bytes:
    return encode(image, "JPEG", **{"quality": 90, **options})


COPIES: dict[str, Callable[[Image.Image], bytes]] = {
    "smaller": lambda image: jpeg(image.resize((48, 36))),
    "squeezed": lambda image: jpeg(image.resize((64, 64))),
    "larger": lambda image: jpeg(image.resize((300, 200))),
    "recompressed": lambda image: jpeg(Image.open(io.BytesIO(jpeg(image))), quality=40),
    "brighter": lambda image: jpeg(ImageEnhance.Brightness(image).enhance(1.25)),
    "turned": lambda image: jpeg(image.transpose(Image.Transpose.ROTATE_90), exif=turned(6)),
    "gray": lambda image: jpeg(image.convert("L")),
}


def row(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(picture_row(check_image(data, CONFIG)), np.uint8)


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_found_and_strangers_are_not(name: str) -> None:
    scenes = [scene(seed) for seed in range(40)]
    files = [jpeg(image) for image in scenes] + [COPIES[name](image) for image in scenes]
    groups = find_groups(np.stack([row(data) for data in files]))
    assert groups[:40].tolist() == list(range(40))
    assert np.mean(groups[40:] == np.arange(40)) >= 0.95


def test_blank_and_tiny_images_are_near_duplicates_only_if_they_are_the_same() -> None:
    blank = [jpeg(Image.new("RGB", (64, 64), (200, 200, 200 + n))) for n in range(4)]
    tiny = [jpeg(scene(1).resize((8, 8)).point(lambda v, n=n: v + n * (v > 90))) for n in (0, 60)]
    groups = find_groups(np.stack([row(data) for data in (*blank, *tiny)]))
    assert groups.tolist() == list(range(6))
    assert find_groups(np.empty((0, ROW_BYTES), np.uint8)).size == 0


def test_copies_are_found_among_many_images_with_little_memory(tmp_path: Path) -> None:
    rows = np.memmap(tmp_path / "rows", np.uint8, "w+", shape=(40_000, ROW_BYTES))
    random = np.random.default_rng(0)
    for start in range(0, len(rows), 4_000):
        coarse = random.integers(0, 256, (4_000, 8, 8), np.uint8)
        rows[start : start + 4_000, :-1] = coarse.repeat(4, 1).repeat(4, 2).reshape(4_000, -1)
    rows[:, -1] = 255
    rows[20_000:20_100, :-1] = rows[:100, :-1] // 5 * 4 + 20
    before = psutil.Process().memory_info().shared
    groups = find_groups(rows)
    assert groups[20_000:20_100].tolist() == [*range(100)]
    assert len(np.unique(groups)) == 39_900
    assert psutil.Process().memory_info().shared - before < rows.nbytes / 2


def write_scenes(folder: Path, names: dict[str, tuple[int, int]]) -> Path:
    """Write a JPEG of a scene for each path; a scene is its seed and the quality."""
    scenes = {name: jpeg(scene(seed), quality=level) for name, (seed, level) in names.items()}
    return write_files(folder, scenes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten scenes of each of two labels; eight have a recompressed twin, one with another label."""
    scenes = {"cat": range(10), "dog": range(100, 110)}
    names = {f"{label}/{seed}.jpg": (seed, 90) for label in scenes for seed in scenes[label]}
    names |= {f"{label}/twin-{s}.jpg": (s, 60) for label in scenes for s in scenes[label][:4]}
    names["dog/twin-0.jpg"] = names.pop("cat/twin-0.jpg")
    return write_scenes(tmp_path / "images", names)


def test_together_keeps_twins_in_one_split(folder: Path, tmp_path: Path) -> None:
    output = ingest(folder, tmp_path / "together", CONFIG)
    lines = output.lines("near_duplicates.jsonl")
    assert [len(line["paths"]) for line in lines] == [2] * 8
    assert all(len({*line["splits"]}) == 1 for line in lines)
    counts = ("near_duplicates", "near_duplicates_in_several_splits")
    assert [output.summary[name] for name in counts] == [8, 0]
    assert output.summary["near_duplicates_of_several_labels"] == 1
    kept = ingest(folder, tmp_path / "keep", dataclasses.replace(CONFIG, near_duplicates="keep"))
    assert not kept.lines("near_duplicates.jsonl")
    names = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))
    listed = {path for line in lines for path in line["paths"]}
    alone = [name for name in names if name not in listed]
    assert output.splits_of(*alone) == kept.splits_of(*alone)
    assert sum(output.counts.values()) == sum(kept.counts.values()) == 28
    # Moved records are whole, and in the order in which reading the files again would write them.
    for split, paths in (
        (s, [p for p in names if output.splits_of(p) == [s]]) for s in output.counts
    ):
        assert sorted(paths) == sorted(p for p in names if p.encode() in output.shards(split))


def test_files_that_could_not_be_read_are_not_read_after_the_decision(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would keep them with their near duplicates."""
    reads: list[str] = []

    def read(folder: str, files: Sequence[ImageFile], config: IngestConfig) -> Iterator[Any]:
        for file, content in read_images(folder, files, config):
            reads.append(file.path)
            is_lost = "twin" in file.path and reads.count(file.path) == 1
            yield file, Unread("a lost connection") if is_lost else content

    monkeypatch.setattr(plan_writer, "read_images", read)
    output = ingest(folder, tmp_path / "out", dataclasses.replace(CONFIG, max_reject_fraction=0.5))
    lost = {path for path, _ in output.rejected()}
    assert lost == {path for path in reads if "twin" in path}
    assert len(reads) == 28


def test_given_splits_stay_and_their_copies_are_counted(tmp_path: Path) -> None:
    names = {}
    for label, seed in itertools.product(("cat", "dog"), range(5)):
        seed += 100 * (label == "dog")
        names[f"train/{label}/{seed}.jpg"] = (seed, 90)
        names[f"val/{label}/{seed}.jpg"] = (seed + 1000, 90)
        names[f"test/{label}/{seed}.jpg"] = (seed + seed % 2 * 500, 60)
    output = ingest(write_scenes(tmp_path / "images", names), tmp_path / "out", IngestConfig())
    assert output.counts == {"train": 10, "test": 10, "eval": 10}
    assert output.summary["near_duplicates_in_several_splits"] == 6


def test_groups_of_a_manifest_stay_whole(folder: Path, tmp_path: Path) -> None:
    films = [f"dog/{seed}.jpg" for seed in range(100, 110)]
    names = (str(path.relative_to(folder)) for path in folder.glob("*/*"))
    groups = {name: "film" if name in films else "" for name in names}
    manifest = write_manifest(tmp_path / "m.csv", groups)
    config = IngestConfig(splits=CONFIG.splits, manifest=manifest)
    output = ingest(folder, tmp_path / "out", config)
    twins = [f"dog/twin-{seed}.jpg" for seed in range(100, 104)]
    assert len(set(output.splits_of(*films, *twins))) == 1


def test_a_cluster_is_a_unit_of_its_class(tmp_path: Path) -> None:
    frames = itertools.product((("cat", 0), ("dog", 100)), range(10), (95, 75, 55))
    names = {
        f"{label}/{n}-{quality}.jpg": (first + n, quality) for (label, first), n, quality in frames
    }
    config = IngestConfig(splits={"train": 0.8, "eval": 0.2})
    output = ingest(write_scenes(tmp_path / "images", names), tmp_path / "out", config)
    labels = read_index(str(output.examples))["labels"]["eval"]
    assert labels == {"cat": 6, "dog": 6}
    assert output.summary["near_duplicates_in_several_splits"] == 0


# Names of the images; what the log says; how many clusters stay in several splits.
TOO_MANY = {
    "half of all": (
        {f"{n % 2}/{n}.jpg": (max(0, n - 20), 95 - n) for n in range(40)},
        "21 images look almost the same, too many for one split",
        1,
    ),
    "almost all of a class": (
        {f"{'cat' if n < 20 else 'dog'}/{n}.jpg": (min(n, 21), 95 - n) for n in range(30)},
        "images of class 'dog' are near duplicates: they are divided",
        1,
    ),
    "twins of the only images of classes": (
        {f"{'bca'[min(n, 2)]}/{n}.jpg": (10 + n % 10, 60 if n < 2 else 95) for n in range(12)},
        "of train would have no images. They are left where they are",
        None,
    ),
    "all of a class, twins of another's": (
        {f"{'cat' if n < 20 else 'dog'}/{n}.jpg": (n if n < 20 else 1, 95 - n) for n in range(22)},
        "images of class 'dog' are near duplicates: they are divided",
        None,
    ),
}


@pytest.mark.parametrize(("names", "message", "divided"), TOO_MANY.values(), ids=TOO_MANY)
def test_too_many_near_duplicates_are_left_where_they_are(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    names: dict[str, tuple[int, int]],
    message: str,
    divided: int | None,
) -> None:
    folder = write_scenes(tmp_path / "images", names)
    kept = ingest(folder, tmp_path / "keep", IngestConfig(near_duplicates="keep"))
    output = ingest(folder, tmp_path / "out", IngestConfig())
    assert output.counts == kept.counts
    assert divided in (None, output.summary["near_duplicates_in_several_splits"])
    assert message in caplog.text


def test_without_pixels(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    output = ingest(folder, tmp_path / "out", IngestConfig(check="header"))
    assert output.summary["near_duplicates"] == 0
    assert caplog.text.count("Near duplicates are not searched for") == 1


def test_a_logo_does_not_bind_all_groups(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    groups = range(6)
    names = {f"{g % 2}/{g}-{n}.jpg": (100 * g + n, 90) for g in groups for n in range(1, 9)}
    names |= {f"{g % 2}/{g}-logo.jpg": (9_999, 95 - 5 * g) for g in groups}
    folder = write_scenes(tmp_path / "images", names)
    manifest = write_manifest(tmp_path / "m.csv", {n: n[2:].partition("-")[0] for n in names})
    config = IngestConfig(splits=CONFIG.splits, manifest=manifest)
    output = ingest(folder, tmp_path / "out", config)
    assert "54 images look almost the same, too many for one split" in caplog.text
    for group in groups:
        members = [name for name in names if name[2:].startswith(f"{group}-")]
        assert len({*output.splits_of(*members)}) == 1


def test_a_plan_whose_shards_were_moved_is_not_moved_again(folder: Path, tmp_path: Path) -> None:
    def write_twice(numbers: Sequence[int], job: IngestJob) -> None:
        for number in numbers:
            plan = read_plan(job.examples_uri, number)
            facts = Path(plan_path(job.examples_uri, plan) + FACTS)
            before = facts.read_bytes() if job.again else b""
            write_plan(number, job)
            if job.again:
                facts.write_bytes(before)
                write_plan(number, job)

    with pytest.raises(StorageError, match="are not its own: run again"):
        ingest(folder, tmp_path, CONFIG, write=write_twice)


def test_copies_of_an_image_with_several_labels_share_a_split(tmp_path: Path) -> None:
    dogs = range(1100, 1107)
    splits = {f"cat/{number}.jpg": (number, "") for number in range(30)}
    splits |= {f"dog/{number}.jpg": (number, "") for number in dogs}
    # The splits of all copies are train and eval, whichever the dog is in.
    splits |= {
        f"cat/{given or 'free'}{n}.jpg": (n, given) for n in dogs for given in ("", "train", "eval")
    }
    folder = write_scenes(tmp_path / "images", {name: (n, 90) for name, (n, _) in splits.items()})
    rows = [f"{name},{name[:3]},{split}" for name, (_, split) in splits.items()]
    (tmp_path / "m.csv").write_text("\n".join(["path,label,split", *rows]))
    config = dataclasses.replace(
        HEADER, manifest=str(tmp_path / "m.csv"), splits={"train": 0.6, "eval": 0.4}
    )
    output = ingest(folder, tmp_path / "out", config)
    for number in dogs:
        assert len({*output.splits_of(f"dog/{number}.jpg", f"cat/free{number}.jpg")}) == 1


# Copies of each image in as many groups, the first of which have it as well; images of each group.
SHARED = {"pairs of groups": (2, 3), "all groups": (12, 4), "a class of two groups": (2, 1)}


@pytest.mark.parametrize(("groups", "each"), SHARED.values(), ids=SHARED.keys())
@pytest.mark.parametrize("config", [CONFIG, HEADER], ids=["pixels", "header"])
def test_splits_share_nothing(tmp_path: Path, groups: int, each: int, config: IngestConfig) -> None:
    """Groups that share one stay together, or its copies leave them if that is too many images."""
    names, all_groups = {}, range(12 if groups == 2 and each > 1 else groups)
    for label, group, number in itertools.product("ab", all_groups, range(each + 1)):
        # The last image of a group is the same in each of its `groups` neighbors.
        seed = group * 100 + number if number < each else 5_000 + group // groups
        names[f"{label}/{group:02}-{number}.jpg"] = (seed + 10_000 * (label == "b"), 90)
    folder = write_scenes(tmp_path / "images", names)
    group_of = {name: name.partition("-")[0] for name in names}
    manifest = write_manifest(tmp_path / "m.csv", group_of)
    config = dataclasses.replace(config, splits=CONFIG.splits, manifest=manifest)
    output = ingest(folder, tmp_path / "out", config)
    assert output.summary["duplicates"] > 0
    assert output.summary["in_several_splits"] == 0
    labels = read_index(str(output.examples))["labels"]
    assert all(labels[split].keys() == {"a", "b"} for split in ("train", "eval"))
    for _, members in itertools.groupby(sorted(names), key=group_of.__getitem__):
        whole = [name for name in members if groups == 2 or f"-{each}." not in name]
        assert each == 1 or len({*output.splits_of(*whole)}) == 1


def test_a_class_that_is_one_group_is_named(tmp_path: Path) -> None:
    names = [f"{'ab'[n % 2]}/{n}.jpg" for n in range(20)]
    folder = write_scenes(tmp_path / "images", {name: (n, 90) for n, name in enumerate(names)})
    groups = {name: "film" if name.startswith("b") else "" for name in names}
    manifest = write_manifest(tmp_path / "m.csv", groups)
    config = IngestConfig(manifest=manifest)
    output = ingest(folder, tmp_path / "out", config)
    assert output.summary["undivided_classes"] == ["b"]
    # Its images belong to another class now.
    moved = [name for name in names if name.startswith("b") and name != "b/1.jpg"]
    digests = (hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in moved)
    rows = [Correction(digest, "", "relabel", "b", "a") for digest in digests]
    corrections = str(tmp_path / "c.csv")
    write_corrections(corrections, rows)
    config = dataclasses.replace(config, corrections=corrections)
    output = ingest(folder, tmp_path / "corrected", config)
    assert output.summary["undivided_classes"] == []
