from pathlib import Path
from typing import Any

import pytest

from components.contract.errors import ConfigurationError, UserError
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_source
from components.ingest.source.spans import find_spans
from tests.ingest import plain
from tests.ingest.test_earlier_shards import content, ingest, reads
from tests.ingest.test_listing import touch
from tests.ingest.test_near_duplicates import write_scenes
from tests.ingest.test_quirks import row, write

__all__ = ["reads"]

DAYS = "{YYYY}/{MM}/{DD}"
FOLDERS = {
    "newest number, not newest text": (["s-9", "s-10"], "s-{SPAN}", (10, None, "s-10")),
    "newest version": (["s-1/v3", "s-2/v1", "s-2/v2"], "s-{SPAN}/v{VERSION}", (2, 2, "s-2/v2")),
    "fixed width": (["s-0007", "s-12"], "s-{SPAN:4}", (7, None, "s-0007")),
    "day": (["2024-12-31", "2025-01-01"], "{YYYY}-{MM}-{DD}", (20089, None, "2025-01-01")),
    "day in folders": (["2025/01/31", "2025/02/01"], DAYS, (20120, None, "2025/02/01")),
    "no day is left out": (["2025/02/30", "2025/02/01"], DAYS, (20120, None, "2025/02/01")),
    "dots are dots": (["s.1", "sx2"], "s.{SPAN}", (1, None, "s.1")),
    "no placeholder": (["images"], "images", (0, None, "images")),
}


@pytest.mark.parametrize(("folders", "pattern", "expected"), FOLDERS.values(), ids=FOLDERS.keys())
def test_the_newest_folder(
    tmp_path: Path, folders: list[str], pattern: str, expected: tuple[int, int | None, str]
) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "s-99").write_bytes(b"a file, not a folder")
    [newest] = find_spans(f"{tmp_path}/{pattern}")
    span, version, name = expected
    assert (newest.span, newest.version, newest.folder) == (span, version, f"{tmp_path}/{name}")


def test_a_link_counts_as_the_newest_folder_even_if_it_is_broken(tmp_path: Path) -> None:
    (tmp_path / "s-1" / "v1").mkdir(parents=True)
    (tmp_path / "s-2").symlink_to(tmp_path / "elsewhere")
    for broken in (True, False):
        assert find_spans(f"{tmp_path}/s-{{SPAN}}")[-1].folder == f"{tmp_path}/s-2"
        if broken:
            (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere").rmdir()
    with pytest.raises(UserError, match=r"Cannot list .*/s-2/: .*No such"):
        find_spans(f"{tmp_path}/s-{{SPAN}}/v{{VERSION}}")


MISTAKES = {
    "nothing matches": ("x-{SPAN}", None, r"No folder matches .*x-\{SPAN\}\."),
    "no such span": ("s-{SPAN}", 7, r"No folder matches .*s-\{SPAN\} with span 7\."),
    "two spellings of a span": ("s-{SPAN}", 1, "are the same span"),
    "half a date": ("{YYYY}-{MM}", None, r"needs either \{SPAN\} or"),
    "span and date": ("{SPAN}-{YYYY}-{MM}-{DD}", None, r"needs either \{SPAN\} or"),
    "version alone": ("v{VERSION}", None, r"needs either \{SPAN\} or"),
    "twice": ("{SPAN}/{SPAN}", None, "a placeholder twice"),
    "a span without a pattern": ("images", 3, r"ingest\.span is 3, but"),
}


@pytest.mark.parametrize(("pattern", "span", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_named(tmp_path: Path, pattern: str, span: int | None, message: str) -> None:
    for name in ("s-1", "s-01", "s-2"):
        (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=message):
        find_spans(f"{tmp_path}/{pattern}", span)


def window(folder: Path, window: Any, pattern: str = "s-{SPAN}", **options: Any) -> Any:
    return list_source(f"{folder}/{pattern}", IngestConfig(window=window, **options))


def spans_of(listing: Any) -> dict[str, Any]:
    return {file.path: file.columns["span"] for file in listing.files}


WEEK = ("s-1/cat/1", "s-2/cat/1", "s-2/dog/1", "s-4/bird/1", "s-4/dog/2", "s-9/cat/1")


def test_a_window_is_the_union_of_its_spans(tmp_path: Path) -> None:
    touch(tmp_path, *WEEK, "s-9/Thumbs.db")
    listing = window(tmp_path, 3)
    assert spans_of(listing) == {path: int(path[2]) for path in WEEK[1:]}
    assert [file.label for file in listing.files] == ["cat", "dog", "bird", "dog", "cat"]
    assert [*listing.skipped] == ["s-9/Thumbs.db"]
    assert listing.root == str(tmp_path)
    assert f"5 spans are missing between {tmp_path}/s-2 and {tmp_path}/s-9." in listing.notes
    assert list(spans_of(window(tmp_path, 2, span=4))) == list(WEEK[1:5])
    assert list(spans_of(window(tmp_path, 1))) == ["s-9/cat/1"]
    assert spans_of(window(tmp_path, "all")).keys() == set(WEEK)


def test_notes_on_windows(tmp_path: Path) -> None:
    touch(tmp_path, "2025-01-01/cat/1", "2025-01-03/cat/a", "2025-01-03/old/b")
    (tmp_path / "2025-01-20").mkdir()
    listing = window(tmp_path, 9, "{YYYY}-{MM}-{DD}", exclude=["old", "older"])
    assert listing.notes == (
        f"17 spans are missing between {tmp_path}/2025-01-01 and {tmp_path}/2025-01-20.",
        "ingest.window is 9, but only 3 spans exist.",
        f"{tmp_path}/2025-01-20 is empty.",
        "Nothing matches 'older' of ingest.exclude.",
    )


def test_the_newest_version_of_each_span_and_given_splits(tmp_path: Path) -> None:
    old = ["s-1/v1/x/train/cat/1"]
    new = ["s-1/v2/x/train/cat/1", "s-1/v2/x/val/cat/2", "s-2/v1/x/train/dog/1", "s-2/v1/x/val/a/1"]
    touch(tmp_path, *old, *new)
    listing = window(tmp_path, "all", "s-{SPAN}/v{VERSION}/x")
    assert [file.path for file in listing.files] == new
    assert {file.label for file in listing.files} == {"cat", "dog", "a"}
    assert listing.layout == "split"
    touch(tmp_path, "s-3/v1/x/cat/1")
    with pytest.raises(UserError, match=r"layout of .*s-1/v2/x is split, but that of .*s-3.* is l"):
        window(tmp_path, "all", "s-{SPAN}/v{VERSION}/x")


def test_windows_that_cannot_be_read(tmp_path: Path) -> None:
    touch(tmp_path, "s-1/cat/1", "t-1/cat/1", "t-01/cat/1", "t-2/cat/1")
    (tmp_path / "u-1").mkdir()
    with pytest.raises(ConfigurationError, match=r"ingest\.window is set, but .* has no"):
        window(tmp_path, 2, "s-1")
    with pytest.raises(UserError, match="are the same span"):
        window(tmp_path, 2, "t-{SPAN}")
    with pytest.raises(UserError, match="are empty: add images"):
        window(tmp_path, 2, "u-{SPAN}")
    with pytest.raises(ConfigurationError, match="set only one of them"):
        IngestConfig(window=2, manifest="labels.csv")


def test_numbers_of_one_span_and_names_of_another(tmp_path: Path) -> None:
    write(tmp_path, {"1/a.tfrecord": [row(0)], "1/labels.txt": "cat\n", "2/a.tfrecord": [row(0)]})
    with pytest.raises(UserError, match=r"labels of .*2/a.tfrecord#0 .* numbers, .*1/a.tfrecord#0"):
        list_source(f"{tmp_path}/{{SPAN}}", IngestConfig(window="all"))


def test_only_the_images_of_a_new_span_are_read(tmp_path: Path, reads: list[str]) -> None:
    def add(span: int) -> None:
        names = {f"{'cat' if n % 2 else 'dog'}/{n}.jpg": (100 * span + n, 90) for n in range(24)}
        write_scenes(tmp_path / f"images/s-{span}", names)

    pattern = tmp_path / "images/s-{SPAN}"
    config = IngestConfig(window=2, splits={"train": 0.6, "eval": 0.4}, min_shard_images=8)
    for span in (1, 2):
        add(span)
    ingest(pattern, tmp_path / "out", 1, config)
    ingest(pattern, tmp_path / "anew", 1, config, "other code")
    add(3)
    reads.clear()
    assert ingest(pattern, tmp_path / "out", 2, config).read == 24
    assert {path.split("/")[0] for path in reads} == {"s-3"}
    assert ingest(pattern, tmp_path / "anew", 2, config).read == 48
    assert content(tmp_path / "out", 2) == content(tmp_path / "anew", 2)


def test_twins_of_a_new_span_leave_the_earlier_ones_where_they_are(tmp_path: Path) -> None:
    """Also where nothing is left of an earlier ingest."""
    names = [f"{'cat' if number % 2 else 'dog'}/{number}.jpg" for number in range(40)]
    config = IngestConfig(window="all", splits={"train": 0.5, "eval": 0.5})
    splits = []
    for span, quality in ((1, 95), (2, 60)):
        scenes = {name: (number, quality) for number, name in enumerate(names)}
        write_scenes(tmp_path / f"images/s-{span}", scenes)
        output = plain.ingest(tmp_path / "images/s-{SPAN}", tmp_path / f"out-{span}", config)
        splits.append(output.splits_of(*(f"s-1/{name}" for name in names)))
    assert output.summary["near_duplicates"] == 40
    assert splits[0] == splits[1]
