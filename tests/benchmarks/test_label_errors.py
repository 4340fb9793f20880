import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import label_errors
from benchmarks.measuring import options


@pytest.mark.slow
def test_flipped_labels_are_counted_as_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(200):
        label = "cat" if number % 2 else "dog"
        path = tmp_path / "images" / "train" / label / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def pretend(folder: Path, chosen: list[str]) -> tuple[dict[str, Any], Any]:
        assert chosen == ["model.width=16"]
        paths = sorted(folder.rglob("*.png"))
        labels = np.array([path.parent.name for path in paths], object)
        true = np.array([path.name.partition("@")[0] for path in paths])
        features = (true == "cat") + np.random.default_rng(0).normal(0, 0.1, (8, len(paths)))
        columns = {
            "path": np.array([f"{p.parent.name}/{p.name}" for p in paths], object),
            "sha256": np.array([p.name for p in paths], object),
            "split": np.full(len(paths), "train", object),
            "label": labels,
        }
        return columns, features.T

    monkeypatch.setattr(label_errors, "_run", pretend)
    words = ["--data", str(tmp_path / "images"), "--rate", "0.1", "--repeats", "2"]
    words += ["--option", "model.width=16", "--json", str(tmp_path / "result.json")]
    monkeypatch.setattr("sys.argv", ["label_errors", *words])
    assert options.run(label_errors._parser(), label_errors._measure) == 0
    assert "Wrong labels of 200 images" in capsys.readouterr().out
    found = json.loads((tmp_path / "result.json").read_text())["figures"]
    assert found["none"] == [{"listed": 0, "images": 200}]
    for figure in (*found["random, 10%"], *found["similar, 10%"]):
        assert [figure[name] for name in ("flipped", "suspects", "recall", "proposed")] == [
            20,
            1,
            1,
            1,
        ]
        assert figure["low"] <= 20 <= figure["high"]
