import dataclasses
import io
import itertools
import shutil
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest
from components.ingest.near_duplicates.bound_keys import bind_keys
from components.ingest.near_duplicates.picture_rows import picture_row
from components.ingest.near_duplicates.similar_pairs import find_groups
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from components.contract.errors import ConfigurationError, StorageError
from components.images.check import check_image
from components.images.options import ImageOptions
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_source
from components.ingest.near_duplicates import clusters as near_duplicates
from components.ingest.near_duplicates import similar_pairs
from components.ingest.plan.facts import FACTS, plan_path
from components.ingest.plan.shard_plan import read_plan
from components.ingest.write.plan_writer import IngestJob, write_plan
from components.ingest.write.run import ingest_listing
from tests.ingest.plain import ingest
from tests.pictures import encode, turned

CONFIG = IngestConfig(splits={"train": 0.5, "eval": 0.5}, min_shards=3)


def scene(seed: int, size: tuple[int, int] = (96, 72)) -> Image.Image:
    """A picture with structure of all sizes, as photographs have."""
    random = np.random.default_rng(seed)
    layers = [
        np.asarray(Image.fromarray(random.normal(0, 40, (n, n)).astype(np.float32)).resize(size))
        for n in (3, 6, 12, 24, 48)
    ]
    return Image.fromarray(np.clip(sum(layers) + 128, 0, 255).astype(np.uint8)).convert("RGB")


def jpeg(image: Image.Image, **options: object) -> bytes:
    return encode(image, "JPEG", **{"quality": 90, **options})


def crop(image: Image.Image) -> Image.Image:
    width, height = image.size
    return image.crop((round(0.05 * width), 0, width, round(0.95 * height)))


COPIES: dict[str, Callable[[Image.Image], bytes]] = {
    "smaller": lambda image: jpeg(image.resize((48, 36))),
    "squeezed": lambda image: jpeg(image.resize((64, 64))),
    "larger": lambda image: jpeg(image.resize((300, 200))),
    "recompressed": lambda image: jpeg(Image.open(io.BytesIO(jpeg(image))), quality=40),
    "cropped": lambda image: jpeg(crop(image)),
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


def test_only_ingest_that_looks_for_near_duplicates_makes_pictures() -> None:
    for data in (jpeg(scene(1)), encode(scene(1), "PNG")):
        assert check_image(data, CONFIG).thumbprint
        for options in (ImageOptions(), dataclasses.replace(CONFIG, near_duplicates="keep")):
            assert not check_image(data, options).thumbprint


def test_blank_and_tiny_images_are_near_duplicates_only_if_they_are_the_same() -> None:
    blank = [jpeg(Image.new("RGB", (64, 64), (200, 200, 200 + n))) for n in range(4)]
    tiny = [jpeg(scene(1).resize((8, 8)).point(lambda v, n=n: v + n * (v > 90))) for n in (0, 60)]
    groups = find_groups(np.stack([row(data) for data in (*blank, *tiny)]))
    assert groups.tolist() == list(range(6))
    assert find_groups(np.empty((0, 1025), np.uint8)).size == 0


def test_neighbors_are_found_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar_pairs, "_ORDERS", 8)
    random = np.random.default_rng(0)
    codes = random.integers(0, 2**63, (10_000, 2, 2), np.uint64)
    # A few bits of the copies differ.
    codes[:200] = codes[200:400] ^ np.bitwise_and.reduce(codes[400:1200].reshape(4, 200, 2, 2))

    def find(block: int) -> list[NDArray[np.int64]]:
        monkeypatch.setattr(similar_pairs, "_BLOCK", block)
        return [np.unique(near, axis=0) for near in similar_pairs._find_neighbors(codes)]

    whole = find(10_000)
    assert len(whole[0])
    tracemalloc.start()
    for one, other in zip(whole, find(1_000), strict=True):
        np.testing.assert_array_equal(one, other)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * codes.nbytes


def test_rows_of_a_file_need_no_memory(tmp_path: Path) -> None:
    rows = np.memmap(tmp_path / "rows", np.uint8, "w+", shape=(40_000, 1025))
    before = psutil.Process().memory_info().shared
    assert find_groups(rows).tolist() == [*range(40_000)]
    assert psutil.Process().memory_info().shared - before < rows.nbytes / 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten scenes of each of two labels; eight have a recompressed twin, one with another label."""
    for label, first in (("cat", 0), ("dog", 100)):
        (tmp_path / "images" / label).mkdir(parents=True)
        for seed in range(first, first + 10):
            path = tmp_path / "images" / label / f"{seed}.jpg"
            path.write_bytes(jpeg(scene(seed)))
            if seed % 100 < 4:
                path.with_name(f"twin-{seed}.jpg").write_bytes(jpeg(scene(seed), quality=60))
    shutil.move(tmp_path / "images/cat/twin-0.jpg", tmp_path / "images/dog")
    return tmp_path / "images"


def test_together_keeps_twins_in_one_split(folder: Path, tmp_path: Path) -> None:
    made = ingest(folder, tmp_path / "together", CONFIG)
    lines = made.lines("near_duplicates.jsonl")
    assert [len(line["paths"]) for line in lines] == [2] * 8
    assert all(len({*line["splits"]}) == 1 for line in lines)
    counts = ("near_duplicates", "near_duplicates_in_several_splits")
    assert [made.summary[name] for name in counts] == [8, 0]
    assert made.summary["near_duplicates_of_several_labels"] == 1
    kept = ingest(folder, tmp_path / "keep", dataclasses.replace(CONFIG, near_duplicates="keep"))
    assert not kept.lines("near_duplicates.jsonl")
    names = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))
    listed = {path for line in lines for path in line["paths"]}
    alone = [name for name in names if name not in listed]
    assert made.splits_of(*alone) == kept.splits_of(*alone)
    assert sum(made.counts.values()) == sum(kept.counts.values()) == 28
    # Moved records are whole, and in the order in which reading the files again would write them.
    for split, paths in ((s, [p for p in names if made.splits_of(p) == [s]]) for s in made.counts):
        assert sorted(paths) == sorted(p for p in names if p.encode() in made.shards(split))


def test_twins_that_arrive_later_move_no_other_image(folder: Path, tmp_path: Path) -> None:
    before = ingest(folder, tmp_path / "before", CONFIG)
    names = [str(path.relative_to(folder)) for path in folder.glob("*/*")]
    splits = before.splits_of(*names)
    (folder / "cat/new.jpg").write_bytes(jpeg(scene(9), quality=50))
    after = ingest(folder, tmp_path / "after", CONFIG).splits_of(*names)
    moved = [n for n, old, new in zip(names, splits, after, strict=True) if old != new]
    assert set(moved) <= {"cat/9.jpg"}


def test_drop_keeps_one_image_of_each_label(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "cat/9.jpg", folder / "cat/same.jpg")
    config = dataclasses.replace(CONFIG, near_duplicates="drop", max_reject_fraction=0)
    made = ingest(folder, tmp_path / "out", config)
    rejects = made.lines("rejects.jsonl")
    assert {reject["category"] for reject in rejects} == {"near duplicate"}
    assert len(rejects) == 8
    assert {"cat/same.jpg"} < {reject["path"] for reject in rejects}
    assert sum(made.counts.values()) == made.summary["examples"] == 21
    for reject in rejects:
        kept = reject["reason"].removeprefix("a copy of ")
        assert kept.split("/")[0] == reject["path"].split("/")[0]
        assert made.splits_of(f"{kept}")
    across = next(
        line
        for line in made.lines("near_duplicates.jsonl")
        if "dog" in {*line["labels"]} and "cat" in {*line["labels"]}
    )
    assert len({*across["splits"]} - {None}) == 1


def test_given_splits_stay_and_their_copies_are_counted(tmp_path: Path) -> None:
    for split, quality in (("train", 90), ("test", 60), ("val", 90)):
        for label, first in (("cat", 0), ("dog", 100)):
            target = tmp_path / "images" / split / label
            target.mkdir(parents=True)
            for seed in range(first, first + 5):
                shift = 1000 if split == "val" else seed % 2 * 500 * (split == "test")
                (target / f"{seed}.jpg").write_bytes(jpeg(scene(seed + shift), quality=quality))
    for mode in ("together", "drop"):
        config = IngestConfig(near_duplicates=mode)
        made = ingest(tmp_path / "images", tmp_path / mode, config)
        assert made.counts == {"train": 10, "test": 10, "eval": 10}
        assert made.summary["near_duplicates_in_several_splits"] == 6


def test_groups_of_a_manifest_stay_whole(folder: Path, tmp_path: Path) -> None:
    films = [f"dog/{seed}.jpg" for seed in range(100, 110)]
    rows = ["path,label,group"]
    for path in sorted(folder.glob("*/*")):
        name = str(path.relative_to(folder))
        rows.append(f"{name},{path.parent.name},{'film' if name in films else ''}")
    (tmp_path / "m.csv").write_text("\n".join(rows))
    config = IngestConfig(splits=CONFIG.splits, manifest=str(tmp_path / "m.csv"), conflicts="drop")
    made = ingest(folder, tmp_path / "out", config)
    twins = [f"dog/twin-{seed}.jpg" for seed in range(100, 104)]
    assert len(set(made.splits_of(*films, *twins))) == 1


def test_no_class_disappears_from_train(tmp_path: Path) -> None:
    for label, seeds in (("cat", range(20)), ("dog", [99] * 6)):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number, seed in enumerate(seeds):
            data = jpeg(scene(seed), quality=95 - 3 * number if label == "dog" else 90)
            (tmp_path / "images" / label / f"{number}.jpg").write_bytes(data)
    made = ingest(tmp_path / "images", tmp_path / "out", CONFIG)
    [cluster] = made.lines("near_duplicates.jsonl")
    assert set(cluster["splits"]) == {"train"}


def test_large_clusters_are_left_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(near_duplicates, "_MOST", 5)
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(20):
            image = scene(7 if label == "dog" else number)
            (tmp_path / f"images/{label}/{number}.jpg").write_bytes(
                jpeg(image, quality=95 - number)
            )
    made = ingest(tmp_path / "images", tmp_path / "out", CONFIG)
    assert made.summary["near_duplicates_in_several_splits"] == 1
    assert "20 images look almost the same, too many for one split" in caplog.text


def test_without_pixels_nothing_is_searched_for(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = ingest(folder, tmp_path / "out", IngestConfig(check="header"))
    assert made.summary["near_duplicates"] == 0
    assert caplog.text.count("Near duplicates are not searched for") == 1
    with pytest.raises(ConfigurationError, match=r"ingest\.near_duplicates is drop"):
        IngestConfig(check="header", near_duplicates="drop")


def test_no_split_is_emptied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for seed, label in enumerate("abcd"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(5):
            data = jpeg(scene(seed), quality=95 - number)
            (tmp_path / f"images/{label}/{number}.jpg").write_bytes(data)
    kept = ingest(tmp_path / "images", tmp_path / "keep", IngestConfig(near_duplicates="keep"))
    made = ingest(tmp_path / "images", tmp_path / "out", IngestConfig())
    assert made.counts == kept.counts
    assert "eval would have no images. They are left where they are" in caplog.text


def test_a_cluster_of_most_images_is_left_where_it_is(tmp_path: Path) -> None:
    for number in range(40):
        path = tmp_path / f"images/{number % 2}/{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(scene(max(0, number - 20)), quality=95 - number))
    made = ingest(tmp_path / "images", tmp_path / "out", IngestConfig())
    assert 6 <= made.counts["eval"] <= 10
    assert made.summary["near_duplicates_in_several_splits"] == 1


def test_a_picture_that_all_groups_share_does_not_bind_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sizes = dict.fromkeys(["a", "b", "c", "d", "e"], 20) | {"x": 1, "y": 1}
    assert bind_keys([{"a", "x"}, {"c"}], sizes, most=10) == {"a": "a", "x": "a", "c": "c"}
    assert not caplog.text
    assert bind_keys([{"a", "b"}, {"b", "c", "x"}, {"d", "y"}], sizes, most=10) == {
        "d": "d",
        "y": "d",
    }
    assert "connect 61 images of several groups" in caplog.text


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

    listing = list_source(str(folder), CONFIG)
    with pytest.raises(StorageError, match="are not its own: run again"):
        ingest_listing(
            listing,
            CONFIG,
            examples=str(tmp_path / "examples"),
            rejects=str(tmp_path / "rejects"),
            write=write_twice,
        )


def test_copies_of_an_image_with_several_labels_share_a_split(tmp_path: Path) -> None:
    rows = ["path,label,split"]
    for label, numbers in (("cat", range(30)), ("dog", range(1100, 1107))):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in numbers:
            (tmp_path / f"images/{label}/{number}.jpg").write_bytes(jpeg(scene(number)))
            rows.append(f"{label}/{number}.jpg,{label},")
    # The splits of all copies are train and eval, whichever the dog is in.
    for number, name in itertools.product(range(1100, 1107), ("", "train", "eval")):
        copy = f"cat/{name or 'free'}{number}.jpg"
        shutil.copy(tmp_path / f"images/dog/{number}.jpg", tmp_path / "images" / copy)
        rows.append(f"{copy},cat,{name}")
    (tmp_path / "m.csv").write_text("\n".join(rows))
    splits = {"train": 0.6, "eval": 0.4}
    config = IngestConfig(manifest=str(tmp_path / "m.csv"), splits=splits, check="header")
    made = ingest(tmp_path / "images", tmp_path / "out", config)
    for number in range(1100, 1107):
        assert len({*made.splits_of(f"dog/{number}.jpg", f"cat/free{number}.jpg")}) == 1
