import dataclasses
from pathlib import Path

import pytest

from benchmarks.scale import compare_grown, compare_planned, fit, tabulate, write_images
from pipeline_def.local.growth import Load, Planned, plan_steps

LOAD = Load(
    images=10_000,
    trained=8_000,
    evaluated=1_000,
    held=9_000,
    read=10.0,
    stored=10.0,
    canonical=10.0,
    values=1e-6,
    pixels=0.001,
    epochs=1,
    tasks=24,
    test_tasks=8,
)
LARGER = dataclasses.replace(LOAD, images=50_000, trained=40_000, evaluated=5_000, read=900.0)
WIDER = dataclasses.replace(LOAD, read=500.0, values=1e-4)


def plan(load: Load, growth: dict[str, object], workers: int = 1) -> list[Planned]:
    return plan_steps(load, {"cores": 2, **growth}, workers=workers, memory=10**9)


@pytest.mark.slow
def test_no_two_images_are_the_same_and_all_classes_have_some(tmp_path: Path) -> None:
    write_images(tmp_path / "images", 1_100)
    write_images(tmp_path / "images", 11, first=1_100)
    files = list((tmp_path / "images").glob("*/*.jpg"))
    assert len(files) == len({file.read_bytes() for file in files}) == 1_111
    assert len(list((tmp_path / "images").iterdir())) == 1_000


def test_a_grown_run_is_compared_step_by_step() -> None:
    whole = {"seconds": 20.0, "peak MB": 5.0, "s of Transform": 10.0, "s of Pusher": None}
    grown = {"seconds": 5.0, "peak MB": 5.0, "s of Transform": 0.5, "s of Pusher": 1.0}
    assert compare_grown(whole, grown) == {
        "seconds: 1% more / all": 0.25,
        "s of Transform: 1% more / all": 0.05,
    }


def test_a_run_is_compared_with_its_plan() -> None:
    planned = compare_planned(LOAD, {"seconds": 10.0, "peak MB of one process": 1_000.0})
    more = compare_planned(
        dataclasses.replace(LOAD, held=LOAD.held + 500_000),
        {"seconds": 20.0, "peak MB of one process": 500.0},
    )
    for name, factor in (("seconds", 0.5), ("peak MB of one process", 2.0)):
        assert planned[f"planned {name}"] > 0
        ratios = [
            of[f"planned / measured {name}"] / of[f"planned {name}"] for of in (planned, more)
        ]
        assert ratios[1] == pytest.approx(ratios[0] * factor)
    peaks = [of["planned peak MB of one process"] for of in (planned, more)]
    assert peaks[1] == pytest.approx(peaks[0] + 500)


def test_the_exponent_tells_twice_the_images_from_twice_the_value() -> None:
    found = {10: {"linear": 1.0, "flat": 5.0}, 40: {"linear": 4.0, "flat": 5.0, "new": 1.0}}
    table = tabulate(found)
    assert [row[-1] for row in table.rows] == ["1.00", "0.00", ""]


def test_slopes_that_are_fitted_to_runs_plan_others() -> None:
    steps = LOAD.amounts()
    slopes = {
        step: {"start": 2.0, **dict.fromkeys(amounts, 0.001)} for step, amounts in steps.items()
    }
    growth = {"steps": {**slopes, "others": {"start": 5.0}}, "disk": {"images": 0.001}}
    runs = (LOAD, LARGER, WIDER)
    figures = [
        {f"s of {row.step}": row.seconds for row in plan(load, growth)}
        | {"peak MB of one process": 900 + load.images / 100 + load.held * load.pixels}
        | {"seconds": sum(row.seconds for row in plan(load, growth))}
        | {"MB of artifacts": load.stored + load.canonical + load.images / 1_000}
        for load in runs
    ]
    fitted = fit(runs, figures)
    other = dataclasses.replace(LARGER, images=70_000, read=50.0)
    for expected, found in zip(plan(other, growth), plan(other, fitted), strict=True):
        assert found[1:] == pytest.approx(expected[1:])
    assert fitted["memory"] == pytest.approx({"start": 900, "images": 0.01})


def test_workers_share_what_can_be_divided_among_that_many_tasks() -> None:
    slopes = {step: {"start": 0.0, "images": 0.01} for step in LOAD.amounts()}
    slopes["ImageExampleGen"]["serial"] = 0.001
    growth = {"steps": {**slopes, "others": {"start": 1.0}}, "disk": {"images": 0.0}}
    alone, few, many = (
        {row.step: row.seconds for row in plan(LOAD, growth, workers)} for workers in (1, 4, 1_000)
    )
    assert few["Transform"] == pytest.approx(alone["Transform"] / 4)
    assert few["ImageExampleGen"] == pytest.approx(10 + 90 / 4), "the listing is not divided"
    assert many["Transform"] == pytest.approx(alone["Transform"] / 12), "24 tasks of a core each"
    assert many["Evaluator"] == pytest.approx(alone["Evaluator"] / 4), "8 tasks"
    assert many["Trainer"] == alone["Trainer"]
