"""The configuration of the Evaluator, TFMA's configuration made from it, and the baseline."""

import itertools
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from tensorflow_model_analysis.proto import config_pb2
from tfx.types import standard_artifacts
from tfx.types.standard_artifacts import Model

from components.contract.errors import StorageError, UserError
from components.contract.properties import LookupInput
from components.evaluation.baseline import BaselineFinder
from components.evaluation.baseline_lookup import find_baseline, look_up
from components.evaluation.config import EvaluationConfig, Threshold
from components.evaluation.executor import require_majority_accuracy
from components.evaluation.slice_counts import measures_auc
from components.evaluation.tfma_files import make_eval_config
from components.evaluation.verdict import describe_thresholds
from components.push import versions as push_versions
from components.push.versions import push_model
from components.storage.saved_model import note_candidate
from pipeline_def.config.command_line import parse
from tests.evaluation.saved_model_sample import saved_model


@pytest.mark.parametrize(
    ("pushed", "expected"),
    [
        pytest.param({}, "", id="first run"),
        pytest.param({"99": b"a", "100": b"b", "notes": b"c"}, "100", id="newest by number"),
        pytest.param({"1": b"old", "2": b"new"}, "1", id="the candidate is not its own baseline"),
    ],
)
def test_the_baseline(tmp_path: Path, pushed: dict[str, bytes], expected: str) -> None:
    candidate = saved_model(tmp_path / "candidate", weights=b"new")
    for version, weights in pushed.items():
        saved_model(tmp_path / "pushed" / version, weights=weights)
    baseline = find_baseline(str(tmp_path / "pushed"), str(candidate))
    assert baseline == (str(tmp_path / "pushed" / expected) if expected else "")


def test_another_model_in_the_folder_of_the_baseline_is_noticed(tmp_path: Path) -> None:
    saved_model(tmp_path / "candidate" / "Format-Serving", weights=b"new")
    candidate = {"model": LookupInput(str(tmp_path / "candidate"), 0, "")}
    found = []
    for weights in (b"old", b"old", b"other"):
        shutil.rmtree(tmp_path / "pushed", ignore_errors=True)
        saved_model(tmp_path / "pushed" / "1", weights=weights)
        found.append(look_up(candidate, {"pushed_models": str(tmp_path / "pushed")}))
    assert found[0] == found[1] != found[2]


def test_the_baseline_is_found_before_there_is_a_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Kubeflow all lookups run first; an unchanged run must find what the run before it did."""
    pushed, seconds = tmp_path / "pushed", itertools.count(1)
    monkeypatch.setattr(push_versions, "time", SimpleNamespace(time=lambda: next(seconds)))

    def versions() -> list[str]:
        return sorted((path.name for path in pushed.iterdir() if path.name.isdigit()), key=int)

    def look(training: str) -> tuple[str, str, str]:
        answer = look_up({}, {"pushed_models": str(pushed), "training": training, "epochs": 3.0})
        return answer["found_baseline"], answer["training_key"], answer["lost_version"]

    def run(training: str, weights: bytes, meanwhile: bytes = b"") -> tuple[str, str]:
        """Return the version that the lookup finds, and the one that is compared with."""
        (found, key, _), candidate, copy = look(training), Model(), Model()
        if meanwhile:
            push_model(str(saved_model(tmp_path / "another", weights=meanwhile)), str(pushed))
        candidate.uri, copy.uri = f"{tmp_path}/{training}", f"{tmp_path}/copy"
        model = saved_model(Path(candidate.uri, "Format-Serving"), weights=weights)
        BaselineFinder.test_call(candidate, copy, str(pushed), found, key)
        version = Path(push_model(str(model), str(pushed))).name
        note_candidate(str(pushed), key, str(model), version)
        return Path(found).name, copy.get_string_custom_property("version")

    assert run("a", b"1") == ("", "")
    [first] = versions()
    assert run("b", b"2") == (first, first)
    two = versions()[-1]
    # The model in use is the candidate's own copy, so the baseline is the one before it.
    assert [Path(look(training)[0]).name for training in ("b", "c")] == [first, two]
    # Another run may push while this one trains: what counts is the model in use then.
    assert run("c", b"3", meanwhile=b"4") == (two, versions()[-2])
    assert versions()[-2] != two
    # A pushed model that is gone, once or again, is pushed again: no earlier finding is like this.
    seen = [look("c")]
    assert seen[0][2] == ""
    for _ in range(2):
        lost = versions()[-1]
        shutil.rmtree(pushed / lost)
        seen.append(look("c"))
        assert seen[-1] == (*seen[0][:2], lost)
        shutil.rmtree(tmp_path / "c")
        run("c", b"3")
        assert look("c") == seen[0]
    assert len({*seen}) == 3


def test_a_baseline_is_copied_without_broken_links_or_not_at_all(tmp_path: Path) -> None:
    version = saved_model(tmp_path / "pushed" / "1", weights=b"old")
    (version / ".#MODEL_CARD.md").symlink_to("user@host.17")
    (version / "card").symlink_to("saved_model.pb")
    candidate, copy = standard_artifacts.Model(), standard_artifacts.Model()
    candidate.uri, copy.uri = str(tmp_path / "candidate"), str(tmp_path / "copy")
    saved_model(tmp_path / "candidate" / "Format-Serving", weights=b"new")
    BaselineFinder.test_call(candidate, copy, str(tmp_path / "pushed"), None)
    copied = {path.name for path in (tmp_path / "copy" / "Format-Serving").iterdir()}
    assert copied == {path.name for path in version.iterdir()} - {".#MODEL_CARD.md"}
    os.mkfifo(version / "pipe")
    with pytest.raises(StorageError, match=r"Cannot copy .*pipe: not a regular file"):
        BaselineFinder.test_call(candidate, copy, str(tmp_path / "pushed"), None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("thresholds: [{metric: acuracy, at_least: 0.7}]", "acuracy"),
        ("thresholds: [{metric: accuracy, slice: colour, at_least: 0.7}]", "slice is 'colour'"),
        ("thresholds: [{metric: accuracy}]", "set at_least, at_most or max_worsening"),
        ("thresholds: [{metric: accuracy, max_worsening: -1}]", "max_worsening is -1"),
        ("min_accuracy: 1.5", r"evaluation\.min_accuracy is 1\.5"),
    ],
)
def test_mistakes_in_a_file_are_explained(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.yaml").write_text(f"evaluation:\n  {text}\n")
    with pytest.raises(UserError, match=message):
        parse(["--config", str(tmp_path / "config.yaml")], prog="", usage="")


def thresholds(config: config_pb2.EvalConfig) -> list[config_pb2.PerSliceMetricThreshold]:
    return [
        threshold
        for specs in config.metrics_specs
        for metric in specs.metrics
        for threshold in metric.per_slice_thresholds
    ]


@pytest.mark.parametrize(("minimum", "bound"), [(0.0, 0.3), (0.9, 0.9)])
def test_no_model_below_the_majority_class_accuracy(minimum: float, bound: float) -> None:
    """Over all examples together, not in each class."""
    more = [
        Threshold("accuracy", slice="class", at_least=0.1),
        Threshold("macro_f1", at_least=0.1),
        Threshold("accuracy", max_worsening=0.5),
    ]
    given = EvaluationConfig(min_accuracy=minimum, thresholds=more)
    config = require_majority_accuracy(given, 0.3)
    assert describe_thresholds(config) == {
        "accuracy": f"at least {bound}, at most 0.02 worse than the current model; at most 0.5 "
        "worse than the current model",
        "accuracy on class": "at least 0.1",
        "macro_f1": "at least 0.1",
    }
    first = thresholds(make_eval_config(config))[0]
    assert list(first.slicing_specs) == [config_pb2.SlicingSpec()]
    assert first.threshold.value_threshold.lower_bound.value == bound
    assert first.threshold.change_threshold.absolute.value == pytest.approx(-0.02)


def test_lower_is_better_for_errors() -> None:
    more = [Threshold("ece", max_worsening=0.02), Threshold("auc", max_worsening=0.02)]
    _, auc, ece = thresholds(make_eval_config(EvaluationConfig(thresholds=more)))
    changes = [bounds.threshold.change_threshold for bounds in (auc, ece)]
    assert [change.absolute.value for change in changes] == [-0.02, 0.02]
    assert [change.direction for change in changes] == [
        config_pb2.MetricDirection.HIGHER_IS_BETTER,
        config_pb2.MetricDirection.LOWER_IS_BETTER,
    ]


@pytest.mark.parametrize("wanted", [False, True])
def test_auc_of_very_many_predictions_only_if_a_threshold_needs_it(wanted: bool) -> None:
    more = [Threshold("auc", at_least=0.9)] if wanted else []
    config = EvaluationConfig(thresholds=more)
    assert measures_auc(config, scores=1)
    assert measures_auc(config, scores=10**9) == wanted
    assert ("auc" in str(make_eval_config(config, with_auc=wanted))) == wanted
