"""Options that name files and folders: what each target can reach, and what a lookup sees there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import kfp_runner
from components.ingest.source.corrections import COLUMNS
from components.trainer.networks.weights_file import write_weights
from pipeline_def.config.options import list_options
from pipeline_def.kubeflow.specification import LOOKUPS, Spec, Specification
from pipeline_def.kubeflow.step import entrypoint
from pipeline_def.steps import STEPS
from tests.conftest import Refusal
from tests.evaluation.saved_model_sample import saved_model
from tests.kubeflow.conftest import MINIMAL, compile_file, container, executor_input
from tests.pictures import write_folder

OPENED = {option.removesuffix("_file") for row in STEPS.values() for option in row.opens}
# `compile` embeds the schema; the pipeline root is a URL; the others matter in local runs only, or
# lie on the disk of a pod.
ELSEWHERE = {
    *("validation.schema", "kubeflow.pipeline_root", "output"),
    *("input.cache_folder", "tracking.mlflow"),
}
FILES = {
    "data": "images",
    "ingest.manifest": "labels.csv",
    "ingest.corrections": "corrections.csv",
    "model.weights": "backbone.npz",
    "predict.folder": "new",
    "kubeflow.storage": "storage",
}
VOLUMES = "{{all: {{volumes: {{claim: {0}}}}}}}"


def options(folder: str) -> Iterator[str]:
    for option, name in FILES.items():
        yield from (f"--{option}", f"{folder}/{name}")
    yield from ("--model.name", "cnn")


def test_every_option_that_names_a_place_is_opened_by_a_step_or_needs_none() -> None:
    texts = {name: option.text for name, option in list_options().items()}
    named = {
        name for name, text in texts.items() if re.search(r"\bURL\b|^(Local f|F)older\b", text)
    }
    assert FILES.keys() == OPENED
    assert named == OPENED | ELSEWHERE


@pytest.mark.parametrize("target", ["oss", "vertex"])
@pytest.mark.parametrize("option", FILES)
def test_a_path_on_this_machine_is_refused(option: str, target: str, refusal: Refusal) -> None:
    # Another volume, with a name that begins like the path.
    steps = ("--kubeflow.steps", VOLUMES.format("/mnt/dis"))
    argv = (*MINIMAL, "--target", target, *steps, f"--{option}", "/mnt/disk")
    said = refusal(*argv, program="kfp_runner")
    assert f"--{option} is /mnt/disk: a cluster needs a URL" in said
    assert ("a path on a volume" in said) is (target == "oss")


def test_a_volume_that_a_step_lacks_is_named(refusal: Refusal) -> None:
    steps = ("--kubeflow.steps", "{Evaluator-Pusher: {volumes: {claim: /mnt}}}")
    for step, options in {
        "ImageExampleGen": (*steps, "--kubeflow.storage", "/mnt/models"),
        # A run without a search has no Tuner.
        "Trainer": ("--model.weights", "/mnt/backbone.npz"),
    }.items():
        said = refusal(*MINIMAL, *options, program="kfp_runner")
        assert f"that kubeflow.steps mounts in {step}." in said


def test_a_weights_file_names_its_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refusal: Refusal
) -> None:
    steps = ("--kubeflow.steps", VOLUMES.format(tmp_path))
    weights = ("--model.weights", f"{tmp_path}/backbone.npz", "--training.epochs", "3")
    argv = (*MINIMAL, *steps, *weights, "--output", f"{tmp_path}/x.yaml")
    said = refusal(*argv, program="kfp_runner")
    assert "which names its network: set --model.name, too." in said
    write_weights(f"{tmp_path}/backbone.npz", {}, network="resnet50")
    assert kfp_runner.main([*argv, "--transfer.unfreeze", "none"]) == 0
    printed = capsys.readouterr().out
    assert "The model resnet50 takes" in printed
    assert "Note: --training.epochs 3 changes nothing with transfer.unfreeze none." in printed


def resolved(spec: Spec, folder: Path) -> dict[str, dict[str, Any]]:
    """Run the lookups as Kubeflow would; return step → properties that are found."""
    name, whole = LOOKUPS, Specification(spec)
    defaults = {key: definition["defaultValue"] for key, definition in whole.run_parameters.items()}
    defaults["storage"] = str(folder / "storage")
    values = {
        key: source["runtimeValue"]["constant"]
        if "runtimeValue" in source
        else defaults[source["componentInputParameter"]]
        for key, source in whole.tasks[name]["inputs"]["parameters"].items()
    }
    output = folder / "output.json"
    given = executor_input(output, {}, {}, **values)
    command = whole.container(name)["args"]
    assert entrypoint.main([json.dumps(given) if a == "{{$}}" else a for a in command]) == 0
    outputs = json.loads(output.read_text())["parameterValues"]
    parts = {key.removesuffix("_resolved"): json.loads(text) for key, text in outputs.items()}
    # The name of the listing contains the fingerprint.
    parts["ImageExampleGen"].pop("listing")
    return parts


def test_images_of_another_task_do_not_replace_the_model_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = ("--kubeflow.steps", VOLUMES.format(tmp_path), "--data", str(tmp_path / "images"))
    write_folder(tmp_path / "images", each=2)
    model = saved_model(tmp_path / "storage/pushed/7", weights=b"fruits")
    (model / "assets").mkdir()
    (model / "assets/labels").write_text("apple\nplum\n")
    [spec, _] = compile_file(tmp_path / "x.yaml", *steps)
    with pytest.raises(AssertionError):
        resolved(spec, tmp_path)
    assert (
        "Lookups: error: The images have no label in common with the current model, version 7 in "
        f"{model.parent}, which knows apple, plum: compile with another --name, or "
        "kubeflow.storage if that is set, or replace the model with --new_task."
    ) in capsys.readouterr().err
    [new, _] = compile_file(tmp_path / "x.yaml", *steps, "--new_task")
    # In the variable of the pod, so that no cache key changes.
    assert new["root"] == spec["root"]
    with pytest.MonkeyPatch.context() as pod:
        for variable in container(new, LOOKUPS)["env"]:
            pod.setenv(variable["name"], variable["value"])
        assert resolved(new, tmp_path)["BaselineFinder"]["found_baseline"] == str(model)
    (model / "assets/labels").write_text("blue\nplum\n")
    assert resolved(spec, tmp_path)["BaselineFinder"]["found_baseline"] == str(model)


def test_a_file_that_is_replaced_changes_the_cache_key(tmp_path: Path) -> None:
    """Compile before anything is on the volume; each lookup sees what is there when it runs."""
    volume, file = tmp_path / "volume", tmp_path / "pipeline.yaml"
    steps = ("--kubeflow.steps", VOLUMES.format(volume))
    argv = (*MINIMAL, *steps, *options(str(volume)), "--output", str(file))
    assert kfp_runner.main(argv) == 0
    spec = next(yaml.safe_load_all(file.read_text()))
    images, manifest = volume / "images", volume / "labels.csv"
    write_folder(images, each=2)
    write_folder(volume / "new", each=1)
    paths = sorted(str(path.relative_to(images)) for path in images.rglob("*.*"))
    rows = [f"{path},{path.split('/')[0]}" for path in paths]
    manifest.write_text("\n".join(["path,label", *rows]))
    (volume / "backbone.npz").write_bytes(b"first")
    corrections = volume / "corrections.csv"
    corrections.write_text(f"{','.join(COLUMNS)}\n")

    def look() -> dict[str, dict[str, Any]]:
        looking = ("ImageExampleGen", "Trainer", "ImagePredictor", "BaselineFinder")
        options = resolved(spec, tmp_path)
        return {step: options[step] for step in looking}

    before = look()
    assert look() == before
    manifest.write_text("\n".join(["path,label", *reversed(rows[1:]), f"{paths[0]},other"]))
    (volume / "backbone.npz").write_bytes(b"other")
    next((volume / "new").rglob("*.*")).unlink()
    after = look()
    corrections.write_text(f"{','.join(COLUMNS)}\n{'0' * 64},,remove,,,,,\n")
    corrected = look()["ImageExampleGen"]
    assert corrected != after["ImageExampleGen"]
    assert all(after[step] != before[step] for step in before), (before, after)
