"""The specification that kfp_runner.py compiles, for both targets."""

import contextlib
import dataclasses
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kfp_runner
from components.contract.errors import ConfigurationError, UserError
from components.evaluation.config import EvaluationConfig
from components.images.options import TransformConfig
from components.ingest.config import IngestConfig
from components.predict.files import PredictConfig
from components.trainer.config.input import AugmentationConfig, InputConfig
from components.trainer.config.model import ExportConfig, ModelConfig
from components.trainer.config.recipes import resolve
from components.trainer.config.training import TrainingConfig, TransferConfig
from components.validation.config import ValidationConfig
from pipeline_def.config.config import Config, TrackingConfig
from pipeline_def.config.kubeflow import StepConfig
from pipeline_def.kubeflow.compile import compiler, platform
from pipeline_def.kubeflow.compile.platform import check_workers
from pipeline_def.kubeflow.specification import LOOKUPS, Spec, Specification, Target, pod_of
from pipeline_def.kubeflow.step import entrypoint
from pipeline_def.kubeflow.step_interface import EXTRAS, LEARNERS
from pipeline_def.pipeline import create_pipeline
from pipeline_def.steps import STEPS
from tests.conftest import Refusal
from tests.kubeflow.conftest import (
    GPU_STEP,
    MINIMAL,
    compile_file,
    config,
    container,
    interface,
    settings_of,
)
from tests.nodes import NODES
from tests.repository import ROOT

TASKS = {pod_of(name) for name in NODES}


# With every step and lookup that exists.
EVERYTHING = dataclasses.replace(
    config(pipeline_root="gs://bucket/root"),
    model=ModelConfig(name="cnn", weights="gs://bucket/cnn.weights.h5"),
    predict=PredictConfig(folder="minio://bucket/new"),
    training=TrainingConfig(minutes=60),
)


@pytest.fixture
def spec(compiled: list[Spec]) -> Spec:
    return compiled[0]


def steps(spec: Spec) -> dict[str, Spec]:
    return Specification(spec).tasks


def task(spec: Spec, name: str) -> Spec:
    return steps(spec)[name]


@pytest.mark.parametrize("target", ["oss", pytest.param("vertex", marks=pytest.mark.slow)])
def test_every_step_compiles_for_every_target(target: Target) -> None:
    documents = compiler.compile_documents(EVERYTHING, target=target, image="i")
    drivers = {c.id: c.driver_class for c in create_pipeline(EVERYTHING).components}
    looking = {name for name in STEPS if not drivers[name].__module__.startswith("tfx")}
    assert set(steps(documents[0])) == {*map(pod_of, STEPS), LOOKUPS}
    lookups = {part.step: part.lookup for part in interface(documents[0], LOOKUPS).parts}
    assert lookups.keys() == looking
    assert lookups["ImagePredictor"] == "components.predict.files.look_up"
    root = documents[0]["root"]["dag"]["tasks"]
    assert all("Validator-Gate" in root[name]["dependentTasks"] for name in LEARNERS)
    if target == "oss":
        assert with_secrets(documents[0], EVERYTHING) == {"ImagePredictor", LOOKUPS}
    # What changes the training for a run, changes its search.
    given = [task(documents[0], name)["inputs"]["parameters"] for name in LEARNERS]
    assert given[0].keys() >= {"training_seed", "training_epochs"}
    assert given[0].keys() <= given[1].keys()


def longest_chain(whole: Specification, task: str) -> list[str]:
    """Return the tasks that follow one another up to a task."""
    before = whole.tasks[task].get("dependentTasks", [])
    return [*max((longest_chain(whole, earlier) for earlier in before), key=len, default=[]), task]


def test_a_cached_run_has_seven_drivers_six_of_them_in_a_row(spec: Spec) -> None:
    """Each takes Argo's requeue time of 10 s at least, so that this is the time of the run."""
    whole = Specification(spec)
    assert len(whole.tasks) == 7
    assert max((longest_chain(whole, task) for task in whole.tasks), key=len) == [
        *(LOOKUPS, "ImageExampleGen", "Statistics-Schema", "Transform", "Trainer"),
        "Evaluator-Pusher",
    ]


@pytest.mark.slow
def test_compiling_is_deterministic(tmp_path: Path, compiled_file: Path) -> None:
    again = tmp_path / "pipeline.yaml"
    command = [sys.executable, str(ROOT / "kfp_runner.py"), *MINIMAL, "--output", str(again)]
    # Tests of this process set them.
    set_here = ("TF_", "ARROW_")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(set_here)}
    environment = {**plain, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert again.read_bytes() == compiled_file.read_bytes()
    assert done.stderr == ""


def test_lookups_are_never_cached_and_part_of_the_cache_key(spec: Spec) -> None:
    assert set(steps(spec)) == {*TASKS, LOOKUPS}
    for name, definition in steps(spec).items():
        enabled = definition.get("cachingOptions", {}).get("enableCache", False)
        assert enabled is (name != LOOKUPS), name
    sources = {
        name: source["taskOutputParameter"]
        for definition in steps(spec).values()
        for name, source in definition["inputs"]["parameters"].items()
        if "taskOutputParameter" in source
    }
    assert sources == {
        name: {"producerTask": LOOKUPS, "outputParameterKey": f"{step}_resolved"}
        for name, step in (
            ("resolved", "ImageExampleGen"),
            ("ExampleValidator_resolved", "ExampleValidator"),
            ("BaselineFinder_resolved", "BaselineFinder"),
            ("Pusher_resolved", "BaselineFinder"),
        )
    }


def test_lookups_can_tell_that_an_image_has_other_code(spec: Spec) -> None:
    given = task(spec, LOOKUPS)["inputs"]["parameters"]
    digests = {name.partition("_")[0] for name in given if name.endswith("_code_digest")}
    assert digests == {"ImageExampleGen", "ExampleValidator", "BaselineFinder"}


def keys(choices: Config, image: str = "i") -> dict[str, str]:
    """Task → all that KFP's driver and launcher hash for its cache, with the run's defaults."""
    [spec, *platform] = compiler.compile_documents(choices, target="oss", image=image)
    whole = Specification(spec, *platform)
    hashed = {}
    for name in set(whole.tasks) - {LOOKUPS}:
        pod = whole.container(name)
        defaults = {
            key: whole.run_parameters[key]["defaultValue"]
            for source in whole.tasks[name]["inputs"]["parameters"].values()
            if (key := source.get("componentInputParameter"))
        }
        executors = whole.platform.get("platforms", {}).get("kubernetes", {})
        settings = executors.get("deploymentSpec", {}).get("executors", {})
        claims = settings.get(f"{name}_executor", {}).get("pvcMount")
        content = [whole.component(name), whole.tasks[name]["inputs"], defaults, claims]
        hashed[name] = json.dumps([*content, pod["image"], pod["command"], pod["args"]])
    return hashed


EVALUATION = {"Evaluator-Pusher"}
TRAINING = {"Trainer"}
# Option → another value, and the tasks whose own keys it changes. Those after them have new inputs.
CHANGES: dict[str, tuple[Any, set[str]]] = {
    "data": ("gs://bucket/others", {"ImageExampleGen"}),
    "ingest": (IngestConfig(max_image_mib=9.0), {"ImageExampleGen"}),
    "validation.drift": (ValidationConfig(drift="off"), {"Validator-Gate"}),
    "validation.anomalies": (ValidationConfig(anomalies="warn"), {"Validator-Gate"}),
    # The schema holds it.
    "validation.max_label_drift": (
        ValidationConfig(max_label_drift=0.5),
        {"Statistics-Schema", "Validator-Gate"},
    ),
    "transform": (TransformConfig(size=48), {"Transform", "Trainer"}),
    "model": (ModelConfig(name="cnn", dropout=0.4), TRAINING),
    "input": (InputConfig(reader="streamed"), TRAINING),
    "augmentation": (AugmentationConfig(flip=True), TRAINING),
    "training": (TrainingConfig(epochs=3), TRAINING),
    "transfer": (TransferConfig(unfreeze="none"), TRAINING),
    "export": (ExportConfig(max_drop=0.5), EVALUATION),
    "evaluation": (EvaluationConfig(min_accuracy=0.9), EVALUATION),
    "predict": (PredictConfig(folder="gs://bucket/new"), {"ImagePredictor"}),
    "tracking": (TrackingConfig(), set()),
    "given": (["training.epochs"], set()),
    "beam_pipeline_args": (["--direct_num_workers=2"], set()),
    "cache": (False, set()),
    "output": ("elsewhere", set()),
    # Its place is part of what it is: runs, checkpoints and pushed models of another name are not
    # those of this one.
    "name": ("others", {*TASKS}),
}
MACHINE = dataclasses.replace(
    GPU_STEP, memory=64, env={"A": "b"}, secrets={"s": {"k": "V"}}, image=None, volumes={}
)
KUBEFLOW: dict[str, tuple[Any, set[str]]] = {
    "steps": ({"all": MACHINE}, set()),
    "store_secret": ("another", set()),
    "pipeline_root": ("gs://bucket/root", set()),
    # Where models are pushed to; the others keep listings, statistics and checkpoints there.
    "storage": (
        "gs://bucket/models",
        {"ImageExampleGen", "Validator-Gate", "Trainer", "Evaluator-Pusher"},
    ),
}


@pytest.mark.slow
def test_only_what_changes_a_result_is_in_the_cache_key_of_a_step() -> None:
    base = config()
    before = keys(base)
    fields = {item.name for item in dataclasses.fields(Config)}
    assert {name.partition(".")[0] for name in CHANGES} | {"kubeflow"} == fields
    table = {
        name: (dataclasses.replace(base, **{name.partition(".")[0]: value}), tasks)
        for name, (value, tasks) in CHANGES.items()
    }
    table |= {f"kubeflow.{name}": (config(**{name: v}), t) for name, (v, t) in KUBEFLOW.items()}
    for name, (choices, expected) in table.items():
        after = keys(choices)
        assert {task for task in after if after[task] != before.get(task)} == expected, name
    # Other machines for the same number of workers train the same.
    first, second = (
        keys(config(workers=2, pipeline_root="gs://b/r", steps={"Trainer": step}))
        for step in (StepConfig(), MACHINE)
    )
    assert first == second
    assert first["Trainer"] != before["Trainer"]


def test_run_parameters_have_defaults(spec: Spec) -> None:
    params = spec["root"]["inputDefinitions"]["parameters"]
    assert params["data"]["defaultValue"] == "gs://bucket/images"
    unseen, _ = resolve(Config(), shorter_side=96, images=0)
    assert params["training_epochs"]["defaultValue"] == unseen.training.epochs
    assert params["span"].items() >= {"parameterType": "NUMBER_INTEGER", "defaultValue": -1}.items()
    assert all("defaultValue" in definition for definition in params.values())
    for step, name in (("ImageExampleGen", "data"), (LOOKUPS, "ImageExampleGen_data")):
        source = task(spec, step)["inputs"]["parameters"][name]
        assert source == {"componentInputParameter": "data"}
    inputs = [definition["inputs"]["parameters"] for definition in steps(spec).values()]
    used = {source.get("componentInputParameter") for each in inputs for source in each.values()}
    assert used - {None} == set(params)


SETTINGS = {
    "Evaluator-Pusher": StepConfig(
        memory=64, cpu=3, gpus=1, env={"A": "1", "B": "2"}, volumes={"claim": "/mnt/data"}
    ),
    "Lookups": StepConfig(cpu=1),
    "all": StepConfig(
        image_pull_secrets=["login"],
        cpu=2,
        memory="4000M",
        env={"A": "1"},
        secrets={"s": {"key": "VARIABLE"}},
    ),
    "Trainer": GPU_STEP,
}


def test_resources_of_each_step() -> None:
    choices = config(steps=SETTINGS, store_secret="")
    compiled, kubernetes = compiler.compile_documents(choices, target="oss", image="i")
    trainer = container(compiled, "Trainer")
    memory = {"memoryLimit": 4, "memoryRequest": 4}
    gpus = {"accelerator": {"type": "nvidia.com/gpu", "count": "2"}}
    assert trainer["resources"] == {"cpuLimit": 8, "cpuRequest": 8, **memory, **gpus}
    assert trainer["env"][0] == {"name": "A", "value": "1"}
    assert settings_of(compiled, "Trainer").retries == 3
    assert settings_of(compiled, "Transform").secrets == ["VARIABLE"]
    last = container(compiled, "Evaluator-Pusher")
    assert (last["resources"]["memoryLimit"], last["resources"]["cpuLimit"]) == (64, 3)
    assert [var["name"] for var in last["env"]] == ["A", "B", "STEP_SETTINGS"]
    assert (trainer["image"], last["image"]) == ("i:gpu", "i")
    assert task(compiled, "Trainer")["retryPolicy"]["maxRetryCount"] == 3
    assert "retryPolicy" not in task(compiled, "Evaluator-Pusher")
    # A lookup reaches what its step does, but needs no large machine for it.
    lookup = container(compiled, LOOKUPS)
    assert lookup["resources"] == {"cpuLimit": 1, "cpuRequest": 1, **memory}
    settings = kubernetes["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert settings["Trainer_executor"] == {
        "nodeSelector": {"labels": {"pool": "gpu"}},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "podMetadata": {"labels": GPU_STEP.labels, "annotations": {"note": "a"}},
        "imagePullSecret": [{"secretName": "login"}],
        "secretAsEnv": [
            {"secretName": "s", "keyToEnv": [{"secretKey": "key", "envVar": "VARIABLE"}]}
        ],
        "pvcMount": [{"constant": "claim", "mountPath": "/mnt/data"}],
        "emptyDirMounts": [
            {"volumeName": "shm", "mountPath": "/dev/shm", "medium": "Memory", "sizeLimit": "4Gi"}
        ],
    }
    assert set(settings["Transform_executor"]) == {"imagePullSecret", "secretAsEnv"}


def test_resources_on_vertex() -> None:
    steps = {"Trainer": StepConfig(cpu=8, gpus=1)}
    [compiled] = compiler.compile_documents(
        config(steps=steps, pipeline_root="gs://bucket/root"), target="vertex", image="i"
    )
    accelerator = container(compiled, "Trainer")["resources"]["accelerator"]
    assert accelerator == {"type": "NVIDIA_TESLA_T4", "count": "1"}
    assert compiled["defaultPipelineRoot"] == "gs://bucket/root"
    assert interface(compiled, "Trainer").direct
    labels = {"Trainer": StepConfig(labels={"cost": "vision"})}
    for steps, named in ((SETTINGS, "node_selector and tolerations and "), (labels, "labels and ")):
        with pytest.raises(UserError, match=f"reads no platform document: remove {named}") as said:
            compiler.compile_documents(config(steps=steps), target="vertex", image="i")
        assert ("secrets" in str(said.value)) is (steps is SETTINGS)


def with_secrets(spec: Spec, choices: Config) -> set[str]:
    """Tasks that get a secret."""
    document = platform.platform_document(Specification(spec), choices, "oss")
    if document is None:
        return set()
    executors = document["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    return {label.removesuffix("_executor") for label in executors}


def test_only_steps_that_open_the_store_get_its_secret(spec: Spec, compiled: list[Spec]) -> None:
    # Where a namespace lacks it, steps only cannot keep their logs.
    executors = compiled[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    [store] = executors["Trainer_executor"]["secretAsVolume"]
    assert (store["secretName"], store["optional"]) == ("mlpipeline-minio-artifact", True)
    # Every step keeps its log there.
    assert with_secrets(spec, config()) == {*TASKS, LOOKUPS}
    for name, value in (("pipeline_root", "gs://b/r"), ("store_secret", "")):
        assert with_secrets(spec, config(**{name: value})) == set(), name
    other = config(pipeline_root="gs://b/r", storage="minio://b/m")
    opening = {"Validator-Gate", "ImageExampleGen", "Evaluator-Pusher", LOOKUPS}
    assert with_secrets(spec, other) == opening
    images = dataclasses.replace(config(pipeline_root="gs://b/r"), data="minio://bucket/images")
    # The report shows rejected images.
    reading = {"ImageExampleGen", LOOKUPS, "Evaluator-Pusher"}
    assert with_secrets(spec, images) == reading


@pytest.mark.parametrize(
    "own",
    [
        StepConfig(
            secrets={"a-secret": {"id": "AWS_ACCESS_KEY_ID", "key": "AWS_SECRET_ACCESS_KEY"}}
        ),
        StepConfig(env={"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}),
    ],
)
def test_keys_that_the_user_sets_are_not_set_a_second_time(spec: Spec, own: StepConfig) -> None:
    choices = config(steps={"all": own})
    document = platform.platform_document(Specification(spec), choices, "oss")
    assert document
    for executor in document["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values():
        named = [secret["secretName"] for secret in executor.get("secretAsEnv", [])]
        assert named == [*own.secrets]
    workers = config(steps={"all": own}, workers=2, storage="minio://bucket/models")
    assert platform._worker_settings(workers, "i").secrets == own.secrets


def test_beam_on_other_machines_uses_remote_uris() -> None:
    arguments = ["--runner=DataflowRunner", "--project=$(HOME)"]
    remote = dataclasses.replace(config(pipeline_root="gs://b/r"), beam_pipeline_args=arguments)
    [compiled] = compiler.compile_documents(remote, target="oss", image="i")
    assert settings_of(compiled, "Transform").beam_args == arguments
    assert "$" not in str(container(compiled, "Transform")["env"])
    # The launcher has copied the shards for the Trainer, which runs no Beam.
    assert not settings_of(compiled, "Trainer").beam_args
    elsewhere = dataclasses.replace(config(), beam_pipeline_args=arguments)
    with pytest.raises(UserError, match=r"set kubeflow.pipeline_root to a folder on gs://"):
        compiler.compile_documents(elsewhere, target="oss", image="i")


MISTAKES = {
    "--kubeflow.storage gs://bucket/images/models": "/models, which lies in --data",
    "--kubeflow.pipeline_root gs://bucket/images/root": "/root/images, which lies in --data",
    # The pipeline's folder below the root has its name: the folder of the images.
    "--kubeflow.pipeline_root gs://bucket/": "gs://bucket/images, which lies in --data",
    "--kubeflow.steps '{Trainr: {cpu: 4}}'": "an unknown step, Trainr. Did you mean 'Trainer'?",
    "--kubeflow.steps '{Evaluator: {memory: 8}}'": "step, Evaluator. The steps are all, Evaluator-",
    "--name 'My images'": "Invalid pipeline name 'My images'",
    "--kubeflow.pipeline_root /data": "The pipeline root is /data: it must start with gs://",
    "--data http://host/images": "--data is http://host/images: a cluster needs a URL, such",
    "--output /no/such/folder/x.yaml": "Cannot write /no/such/folder/x.yaml",
    "--target eks": "invalid choice: 'eks'",
    "--tracking.mlflow http://mlflow:5000": "--tracking.mlflow is for local runs: docs/how-to",
}


@pytest.mark.parametrize(("argv", "message"), MISTAKES.items())
def test_mistakes_exit_with_one_sentence(
    tmp_path: Path, refusal: Refusal, argv: str, message: str
) -> None:
    words = ("--output", tmp_path / "x.yaml", *shlex.split(argv))
    assert message in refusal(*MINIMAL, *words, program="kfp_runner")


def test_the_image_must_have_the_extras_that_the_training_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.yaml"
    options = ("--model.name", "efficientnet_lite2", "--export.formats", "[onnx]")
    [spec, _] = compile_file(file, *options)
    assert "must be built with --build-arg EXTRA='onnx weights'." in capsys.readouterr().out
    for name in (LOOKUPS, "Trainer"):
        assert settings_of(spec, name).extras == ["onnx", "weights"]
    # The image of the lookups may lack them.
    other = "{Trainer: {image: i:gpu}}"
    [spec, _] = compile_file(file, *options, "--kubeflow.steps", other)
    assert not settings_of(spec, LOOKUPS).extras
    pod = {var["name"]: var["value"] for var in container(spec, "Trainer")["env"]}
    monkeypatch.setenv("STEP_SETTINGS", pod["STEP_SETTINGS"])
    monkeypatch.setitem(EXTRAS, "weights", ("no_such_model",))
    assert entrypoint.main(["--step", "Trainer", "--interface={}", "--executor_input={}"]) == 2
    assert "has no package no-such-model: build it with --build-arg" in capsys.readouterr().err


def test_missing_options_and_help(capsys: pytest.CaptureFixture[str], refusal: Refusal) -> None:
    for word in ("compile", "deploy", ""):
        refusal(*word.split(), program="kfp_runner")
    for argv, text in ((("--help",), "compile|run|"), (("compile", "--help"), "--image")):
        # argparse ends the process itself, with status 0.
        with contextlib.suppress(SystemExit):
            assert kfp_runner.main(argv) == 0
        assert text in capsys.readouterr().out


def test_step_rows_name_the_modules_of_their_components() -> None:
    names = ("run_fn", "preprocessing_fn", "preview_fn")
    for component in create_pipeline(EVERYTHING).components:
        properties = component.exec_properties
        functions = [properties[name] for name in names if properties.get(name)]
        lookup = getattr(component.driver_class, "lookup_function", None)
        named = {
            component.executor_spec.executor_class.__module__,
            lookup.__module__ if lookup else "",
            properties.get("module_path") or "",
            *(path.rpartition(".")[0] for path in functions),
        }
        ours = {name for name in named if name.startswith(("components.", "pipeline_def."))}
        assert set(STEPS[component.id].code) == ours, component.id


BUCKET = "gs://bucket/root"
WORKERS = {
    "all": StepConfig(cpu=1, memory=4, node_selector={"pool": "cpu"}),
    "Trainer": GPU_STEP,
}


@pytest.mark.slow
def test_a_step_starts_workers_from_a_small_machine() -> None:
    choices = config(workers=4, pipeline_root=BUCKET, steps=WORKERS)
    spec, kubernetes = compiler.compile_documents(choices, target="oss", image="i")
    settings = choices.kubeflow.step("Trainer")
    assert interface(spec, "Trainer").workers == 4
    assert settings_of(spec, "Trainer").workers == settings
    resources = {"cpuLimit": 1, "cpuRequest": 1, "memoryLimit": 4, "memoryRequest": 4}
    assert container(spec, "Trainer")["resources"] == resources
    executors = kubernetes["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert executors["Trainer_executor"] == {
        "nodeSelector": {"labels": {"pool": "cpu"}},
        "pvcMount": [{"constant": "claim", "mountPath": "/mnt/data"}],
    }
    assert interface(spec, "Transform").workers == 1


SHARED = {"all": StepConfig(volumes={"claim": "/mnt/shared"})}
ON_GS = {"pipeline_root": BUCKET}


def test_where_workers_can_share() -> None:
    check_workers(config(workers=4, **ON_GS), "oss")
    check_workers(config(workers=4, **ON_GS, storage="/mnt/shared", steps=SHARED), "oss")
    # Artifacts of the cluster's own store travel over the volume.
    check_workers(config(workers=4, storage="/mnt/shared/models", steps=SHARED), "oss")


TOO_MANY: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {}, "cannot share checkpoints in the cluster's own store: set kubeflow.storage"),
    ({"storage": "/mnt/sharedfolder", "steps": SHARED}, {}, "checkpoints in /mnt/sharedfolder"),
    ({"storage": "gs://b/m"}, {}, "artifacts that are not on gs://: set the pipeline root"),
    (ON_GS, {"accelerator": "mirrored"}, "accelerator is mirrored, for one machine"),
    (ON_GS, {"minutes": 60}, "training.minutes searches on one machine: remove one"),
    (ON_GS, {}, "on Vertex AI use one machine with several GPUs"),
]


@pytest.mark.parametrize(("kubeflow", "training", "message"), TOO_MANY)
def test_what_several_workers_cannot_do(
    kubeflow: dict[str, Any], training: dict[str, Any], message: str
) -> None:
    def check(workers: int) -> None:
        choices = config(workers=workers, **kubeflow)
        trained = dataclasses.replace(choices, training=TrainingConfig(**training))
        check_workers(trained, "vertex" if "Vertex" in message else "oss")

    with pytest.raises(ConfigurationError, match=message):
        check(workers=4)
    check(workers=1)
