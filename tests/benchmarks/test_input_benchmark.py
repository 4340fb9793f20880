import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.ladder.verdict import judge, tabulate
from benchmarks.measuring.limits import COPY_LIMIT, DECODE_LIMIT
from pipeline_def.config.command_line import parse
from tests.pictures import write_folder

RATES = {
    "originals, resized every epoch": 500,
    "files one by one": 1000,
    "files, parallel map": 2000,
    "TFRecord, sequential": 1250,
    "+ prefetch: reader streamed": 4000,
    "reader indexed": 6000,
    "storage raw": 50_000,
    "cache decoded": 100_000,
}


def results(found: int = 1000, size: int = 224, **more: Any) -> dict[str, Any]:
    rungs = [
        {
            "name": name,
            "images_per_second": [rate * 0.97, rate, rate * 1.03],
            "kind": "files",
            "change": "a change",
            "wait_share": [0.1],
            "first_batch_seconds": [0.5],
            "cpu_microseconds": [2e6 / rate],
        }
        for name, rate in RATES.items()
    ]
    limits = {DECODE_LIMIT: [7000], COPY_LIMIT: [110_000]}
    return {
        "rungs": rungs,
        "limits": limits,
        "found": found,
        "size": size,
        "batch": 32,
        "images": 64,
        "different": 60,
        "cores": 2,
        "accelerator_images_per_second": 4800,
        "data": "/data/photos",
        **more,
    }


@pytest.mark.parametrize(
    ("options", "target", "use", "bottleneck"),
    [
        pytest.param({}, None, "cache decoded", "copying", id="all pixels fit into memory"),
        pytest.param({}, 3000, "reader indexed", "the consumer", id="no cache is needed"),
        pytest.param({"found": 10**9}, None, "reader indexed", "decoding", id="they do not fit"),
        pytest.param({"found": 10**9}, 9000, "storage raw", "the consumer", id="decoder too slow"),
        pytest.param(
            {"found": 10**9, "store": {"latency_ms": 30, "stream_mbps": 160}},
            None,
            "+ prefetch: reader streamed",
            "requests and parsing",
            id="from a bucket",
        ),
    ],
)
def test_verdict(options: dict[str, Any], target: float | None, use: str, bottleneck: str) -> None:
    verdict = judge(results(**options), target=target)
    assert verdict["use"] == use
    assert f"Bottleneck: {bottleneck}." in verdict["verdict"][1]


def test_the_verdict_names_the_steps_that_matter_in_a_place() -> None:
    local = judge(results(), target=None)["verdict"][0]
    assert local == (
        "From local files, the largest steps are: storage raw (8.3x), + prefetch: reader "
        "streamed (3.2x), files, parallel map (2.0x)."
    )
    same = results(store={"latency_ms": 30, "stream_mbps": 160})
    same["rungs"] = [{**rung, "images_per_second": [90, 100, 110]} for rung in same["rungs"]]
    assert judge(same, target=None)["verdict"][0].startswith("From the bucket, no rung is faster")


def test_an_unclear_bottleneck_is_called_unclear() -> None:
    unclear = results(found=10**9)
    unclear["limits"][DECODE_LIMIT] = [9000, 10_000, 11_000]
    text = " ".join(judge(unclear, target=None)["verdict"])
    assert "10,000 (9,000 to 11,000) (0.60 x)" in text
    assert "decoding, or requests and parsing (the difference is within the noise)" in text


@pytest.mark.parametrize("found", [1000, 10**9])
def test_the_recommended_file_is_taken_by_the_runner(tmp_path: Path, found: int) -> None:
    measured = results(found=found)
    recommended = judge(measured, target=None)["recommended"]
    file = tmp_path / "recommended.yaml"
    file.write_text(recommended)
    config, _ = parse(["--config", str(file)], prog="", usage="")
    assert config.data == "/data/photos"
    assert config.transform.size == 224
    assert config.input.cache == ("decoded" if found == 1000 else "none")
    assert config.training.batch_size == 32


@pytest.mark.slow
def test_the_table_and_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = results()
    measured |= judge(measured, target=None)
    tabulate(measured).show()
    assert "6,000 (5,820 to 6,180)" in capsys.readouterr().out
    bucket = results(store={"latency_ms": 30, "stream_mbps": 160})
    bucket["rungs"] = bucket["rungs"][1:]
    from benchmarks.ladder.plot import draw

    draw([measured, bucket], tmp_path / "ladder.svg")
    picture = (tmp_path / "ladder.svg").read_text()
    assert "</svg>" in picture
    for text in ("bars with … are cut", "not measured", "From a bucket, 30 ms per request"):
        assert text in picture
    draw([measured, bucket], tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == picture


def climb(tmp_path: Path, *options: str) -> Any:
    data = write_folder(tmp_path / "images", each=8)
    output = tmp_path / "output"
    command = [sys.executable, "-m", "benchmarks.input_pipeline", "--data", str(data)]
    sizes = ["--size", "32", "--batch", "8", "--images", "20"]
    times = ["--repeats", "1", "--epochs", "1", "--seconds", "0.1"]
    places = ["--output", str(output), "--work", str(tmp_path)]
    done = subprocess.run(
        [*command, *sizes, *times, *places, *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Bottleneck" in done.stdout
    assert (output / "ladder.png").stat().st_size > 10_000
    assert yaml.safe_load((output / "recommended.yaml").read_text())["transform"]["size"] == 32
    return json.loads((output / "results.json").read_text())


@pytest.mark.slow
def test_every_rung_on_local_files(tmp_path: Path) -> None:
    measured = climb(tmp_path)
    assert len(measured["rungs"]) == 17
    assert measured["images"] == 16
    same = [rung["pixels"][0] for rung in measured["rungs"][1:]]
    assert all(text.startswith("the same, ") for text in same)
    assert all(rate > 0 for rung in measured["rungs"] for rate in rung["images_per_second"])


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
