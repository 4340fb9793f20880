"""What reports say about the gain of their first advice."""

import json
from pathlib import Path

import pytest

from components.report.findings import measured
from components.report.findings.measured import Gain, choose_first, find_gain, read_gains


def gain(options: str, low: float, high: float, images: int = 200, side: int = 96) -> Gain:
    return Gain("photographs", images, side, options, (low + high) / 2, low, high, 3)


@pytest.fixture
def gains(monkeypatch: pytest.MonkeyPatch) -> list[Gain]:
    known: list[Gain] = []
    monkeypatch.setattr(measured, "read_gains", lambda: known)
    return known


def test_gains_are_those_of_the_most_similar_images(gains: list[Gain]) -> None:
    gains += [gain("--a.b 8", 0.1, 0.2), gain("--a.b 9", 0.3, 0.4, images=700)]
    gains += [gain("--a.b 7", 0.5, 0.6, side=32)]
    assert find_gain("--a.b 30", images=250, side=224) == gains[0]
    assert find_gain("--a.b 30", images=500, side=224) == gains[1]
    assert find_gain("--a.b 30", images=250, side=64) == gains[2]
    assert find_gain("--a.b 30", images=49, side=224) is None
    assert find_gain("--a.b 30", images=250, side=224) != find_gain("--a.c 8", images=250, side=224)
    assert find_gain("--a.b x", images=250, side=224) is None


def test_proven_gains_come_first_and_proven_losses_never(gains: list[Gain]) -> None:
    gains += [gain("--loss.x 1", -0.2, -0.1), gain("--open.x 1", -0.1, 0.1)]
    gains += [gain("--some.x 1", 0.01, 0.03), gain("--much.x 1", 0.02, 0.1)]
    like = {"images": 200, "side": 96}
    assert choose_first(["--loss.x 2", "--open.x 2", "--new.x 1"], **like)[0] == "--open.x 2"
    assert choose_first(["--new.x 1", "--open.x 2"], **like) == ("--new.x 1", None)
    best, found = choose_first(["--open.x 2", "--some.x 2", "--much.x 2"], **like)
    assert (best, found) == ("--much.x 2", gains[3])
    assert choose_first(["--loss.x 2"], **like) == ("", None)


def test_the_gain_is_said_with_its_interval() -> None:
    assert gain("--a.b 1", 0.02, 0.06).text == (
        "measured on 200 photographs, 3 seeds: +0.040 accuracy (+0.020 to +0.060)"
    )
    assert "no proven change of accuracy (-0.020 to +0.060)" in gain("--a.b 1", -0.02, 0.06).text


def test_the_gains_in_the_package_are_whole() -> None:
    assert read_gains()
    assert all(of.low <= of.gain <= of.high and of.seeds >= 2 for of in read_gains())
    assert len(json.loads(Path(measured.GAINS_FILE).read_text())) == len(read_gains())
