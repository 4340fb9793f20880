"""The table of suspects."""

from pathlib import Path

from components.contract.suspects import Suspect, read_suspects, write_suspects


def test_the_table_keeps_every_field_and_puts_the_highest_scores_first(tmp_path: Path) -> None:
    low = Suspect("a" * 64, "cat/é.jpg", "train", "cat", "dark", 0.25)
    high = Suspect("b" * 64, "dog/2.jpg", "test", "dog", "label", 0.75, "cat", ("cat/1.jpg",))
    path = str(tmp_path / "suspects.parquet")
    write_suspects(path, [low, high])
    assert read_suspects(path) == [high, low]
    write_suspects(path, [])
    assert read_suspects(path) == []
