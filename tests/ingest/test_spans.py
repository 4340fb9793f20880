from pathlib import Path

import pytest

from components.contract.errors import UserError
from components.ingest.source.spans import find_span

FOLDERS = {
    "newest number, not newest text": (["s-9", "s-10"], "s-{SPAN}", (10, None, "s-10")),
    "newest version": (["s-1/v3", "s-2/v1", "s-2/v2"], "s-{SPAN}/v{VERSION}", (2, 2, "s-2/v2")),
    "version beside the span": (["s1v1", "s1v2"], "s{SPAN}v{VERSION}", (1, 2, "s1v2")),
    "fixed width": (["s-0007", "s-12"], "s-{SPAN:4}", (7, None, "s-0007")),
    "day": (["2024-12-31", "2025-01-01"], "{YYYY}-{MM}-{DD}", (20089, None, "2025-01-01")),
    "day in folders": (
        ["2025/01/31", "2025/02/01"],
        "{YYYY}/{MM}/{DD}",
        (20120, None, "2025/02/01"),
    ),
    "no day is left out": (
        ["2025-02-30", "2025-02-01"],
        "{YYYY}-{MM}-{DD}",
        (20120, None, "2025-02-01"),
    ),
    "fixed folder behind": (
        ["s-1/images", "s-2/images"],
        "s-{SPAN}/images",
        (2, None, "s-2/images"),
    ),
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
    found = find_span(f"{tmp_path}/{pattern}")
    span, version, name = expected
    assert (found.span, found.version, found.folder) == (span, version, f"{tmp_path}/{name}")


def test_a_given_span_or_version(tmp_path: Path) -> None:
    for name in ("s-1/v1", "s-1/v2", "s-2/v1"):
        (tmp_path / name).mkdir(parents=True)
    pattern = f"{tmp_path}/s-{{SPAN}}/v{{VERSION}}"
    assert find_span(pattern, 1).folder == f"{tmp_path}/s-1/v2"


def test_a_link_counts_as_the_newest_folder_even_if_it_is_broken(tmp_path: Path) -> None:
    for name in ("s-1", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "s-2").symlink_to(tmp_path / "elsewhere")
    assert find_span(f"{tmp_path}/s-{{SPAN}}").folder == f"{tmp_path}/s-2"
    (tmp_path / "elsewhere").rmdir()
    assert find_span(f"{tmp_path}/s-{{SPAN}}").folder == f"{tmp_path}/s-2"
    (tmp_path / "s-1" / "v1").mkdir()
    with pytest.raises(UserError, match=r"Cannot list .*/s-2/: .*No such"):
        find_span(f"{tmp_path}/s-{{SPAN}}/v{{VERSION}}")


MISTAKES = {
    "nothing matches": ("x-{SPAN}", None, r"No folder matches .*x-\{SPAN\}\."),
    "no such span": ("s-{SPAN}", 7, r"No folder matches .*s-\{SPAN\} with span 7\."),
    "two spellings of a span": ("s-{SPAN}", 1, "are the same span"),
    "half a date": ("{YYYY}-{MM}", None, r"needs all of \{YYYY\}"),
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
        find_span(f"{tmp_path}/{pattern}", span)
