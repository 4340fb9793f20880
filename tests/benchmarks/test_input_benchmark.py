import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pictures import write_folder


def climb(tmp_path: Path, *options: str) -> Any:
    data = write_folder(tmp_path / "images", each=8)
    file = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks.input_pipeline", "--data", str(data)]
    sizes = ["--size", "32", "--batch", "8", "--images", "20"]
    times = ["--repeats", "1", "--epochs", "1", "--seconds", "0.1"]
    places = ["--json", str(file), "--work", str(tmp_path)]
    done = subprocess.run(
        [*command, *sizes, *times, *places, *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())["figures"]


@pytest.mark.slow
def test_every_rung_on_local_files_and_the_picture(tmp_path: Path) -> None:
    measured = climb(tmp_path)
    assert len(measured["rungs"]) == 17
    assert measured["images"] == 16
    same = [rung["pixels"][0] for rung in measured["rungs"][1:]]
    assert all(text.startswith("the same, ") for text in same)
    assert all(rate > 0 for rung in measured["rungs"] for rate in rung["images_per_second"])
    from benchmarks.ladder.plot import draw

    store = {"latency_ms": 30, "stream_mbps": 160}
    bucket = {**measured, "rungs": measured["rungs"][1:], "store": store}
    pictures = [tmp_path / "ladder.svg", tmp_path / "again.svg"]
    for picture in pictures:
        draw([measured, bucket], picture)
    text, again = (picture.read_text() for picture in pictures)
    assert text == again
    for words in ("bars with … are cut", "not measured", "From a bucket, 30 ms per request"):
        assert words in text


@pytest.mark.slow
@pytest.mark.weekly
def test_rungs_on_a_bucket(tmp_path: Path) -> None:
    words = "one by one,prefetch,decoded"
    bucket = ["--gcs-latency-ms", "20", "--rungs", words]
    measured = climb(tmp_path, *bucket)
    rates = {rung["name"]: rung["images_per_second"][0] for rung in measured["rungs"]}
    assert len(rates) == 3
    # A request of 20 ms for each image.
    assert rates["files one by one"] < 50 < rates["cache decoded"]
