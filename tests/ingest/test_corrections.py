import os
from dataclasses import replace
from pathlib import Path

import pytest

from components.contract.errors import DataError, UserError
from components.ingest.source.corrections import (
    Action,
    Correction,
    load_corrections,
    write_corrections,
)

ONE, TWO = "1" * 64, "ab" * 32
HEADER = "sha256,path,action,from,to,who,when,why"
RELABEL = Correction(
    ONE, "cat/1.jpg", "relabel", "cat", "dog", "Ann", "2026-01-02T03:04:05Z", "a dog"
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    texts = [
        "=1+1",
        "'=x",
        "''",
        "-1",
        " blank, first",
        'a "b"; c',
        "two\nlines\r\n",
        "<b>&é",
        "＝x",
    ]
    rows = [
        replace(RELABEL, sha256=f"{n:064x}", path=text, from_label=text, to_label=text, why=text)
        for n, text in enumerate(texts)
    ]
    path = str(tmp_path / "new" / "c.csv")
    (tmp_path / "link.csv").symlink_to(path)
    write_corrections(
        str(tmp_path / "link.csv"), [*rows, Correction(TWO, "b\udce9.jpg", "unsure", "")]
    )
    assert load_corrections(path).rows == (*rows, Correction(TWO, "b\\udce9.jpg", "unsure", ""))
    cells = Path(path).read_text()
    assert [start for start in ('"=', '"-', '"＝') if start in cells] == []
    assert os.listdir(tmp_path / "new") == ["c.csv"]


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError("the disk is full")

    path = tmp_path / "c.csv"
    write_corrections(str(path), [RELABEL])
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UserError, match=r"Cannot write .*c\.csv: the disk is full"):
        write_corrections(str(path), [])
    assert load_corrections(str(path)).rows == (RELABEL,)
    assert os.listdir(tmp_path) == ["c.csv"]


BY_HAND = {
    "a byte order mark and capitals": f"\ufeffSHA256,Path,Action,From,To\n{ONE},,Remove,cat,\n",
    "semicolons, empty lines": f"sha256;path;action;from;to\r\n\r\n{ONE};;remove;cat;\n;;;;\n",
    "columns in another order": f"action,to,from,path,sha256,why\nremove,,cat,,{ONE},\n",
    "a line twice": f"{HEADER}\n{ONE},,remove,cat,,,,\n{ONE},,remove,dog,,,,\n",
}


@pytest.mark.parametrize("text", BY_HAND.values(), ids=BY_HAND.keys())
def test_reads_what_people_and_spreadsheets_write(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.csv").write_bytes(text.encode())
    first = load_corrections(str(tmp_path / "c.csv")).rows[0]
    assert first == Correction(ONE, "", "remove", "cat")


def test_decisions_that_agree_about_copies_are_no_contradiction(tmp_path: Path) -> None:
    kept = replace(RELABEL, path="dog/1.jpg", action="keep", from_label="dog", to_label="")
    write_corrections(str(tmp_path / "c.csv"), [RELABEL, kept])
    assert load_corrections(str(tmp_path / "c.csv")).rows == (RELABEL, kept)


LINE = f"{ONE},1.jpg,keep,cat,,,,"
MISTAKES: dict[str, tuple[str | bytes, str]] = {
    "no columns": ("", "first line must be sha256,path,action,from,to"),
    "a missing column": ("sha256,path,action,from\n", r"must be .*,to\[,who\].*, but is 'sha256"),
    "an unknown column": (f"{HEADER},color\n", "column 'color' is unknown or occurs twice"),
    "Latin-1": (HEADER.encode() + b"\ncaf\xe9", "not UTF-8 text: save it as UTF-8"),
    "a short digest": (f"{HEADER}\n12,,keep,cat,,,,", "Line 2 .* the sha256 '12': write the 64"),
    "an unknown action": (f"{HEADER}\n{ONE},,drop,cat,,,,", "Line 2 .* 'drop': use keep, relabel,"),
    "no new label": (f"{HEADER}\n\n{ONE},,relabel,cat,,,,", "Line 3 .* but `to` is empty"),
    "a cut line": (f"{HEADER}\n{ONE},,relabel,cat", "Line 2 .* has too few fields"),
    "a comma in why": (f"{HEADER}\n{LINE}a,b", "Line 2 .* has too many fields"),
    "a huge field": (f"{HEADER}\n{LINE}" + "x" * 200_000, "field larger than field limit"),
    "no end of a quote": (f'{HEADER}\n{ONE},a,keep,"cat\n\n', "Line 2 .* has too few fields"),
    "a contradiction": (
        f'{HEADER}\n{ONE},1.jpg,remove,cat,,,,"two\nlines"\n{LINE}',
        r"Lines 2 and 4 of .*c\.csv contradict each other about the image '1\.jpg'",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_sentence(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    (tmp_path / "c.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(DataError, match=sentence) as raised:
        load_corrections(str(tmp_path / "c.csv"))
    assert len(str(raised.value)) < 500


def test_a_pipe_neither_blocks_nor_is_replaced(tmp_path: Path) -> None:
    pipe = str(tmp_path / "c.csv")
    os.mkfifo(pipe)
    with pytest.raises(UserError, match=r"Cannot read .*c\.csv: it is not a regular file\.$"):
        load_corrections(pipe)
    with pytest.raises(UserError, match=r"Cannot write .*c\.csv: it is not a regular file\.$"):
        write_corrections(pipe, [])
    assert os.listdir(tmp_path) == ["c.csv"]


_Decision = tuple[Action, str, str]
SECOND_ROUND: dict[str, tuple[_Decision, _Decision]] = {
    # The action, and the labels seen and chosen; what the file says.
    "kept": (("keep", "dog", ""), ("relabel", "cat", "dog")),
    "another label": (("relabel", "dog", "owl"), ("relabel", "cat", "owl")),
    "back": (("relabel", "dog", "cat"), ("keep", "cat", "")),
    "removed": (("remove", "dog", ""), ("remove", "cat", "")),
    "unsure": (("unsure", "dog", ""), ("unsure", "cat", "")),
    "undone before": (("keep", "cat", ""), ("keep", "cat", "")),
}


@pytest.mark.parametrize(("seen", "kept"), SECOND_ROUND.values(), ids=SECOND_ROUND.keys())
def test_a_second_decision_is_about_the_original_label(seen: _Decision, kept: _Decision) -> None:
    later, expected = (
        Correction(ONE, "cat/1.jpg", action, before, after, "Bob")
        for action, before, after in (seen, kept)
    )
    assert later.after(RELABEL) == expected
    assert later.after(None) == later.after(replace(RELABEL, action="unsure")) == later
