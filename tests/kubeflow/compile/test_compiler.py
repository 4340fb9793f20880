"""The specification that kfp_runner.py compiles, for both targets."""

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kfp_runner
from components.contract.errors import UserError
from components.ingest.config import IngestConfig
from components.predict.config import PredictConfig
from components.trainer.config.model import ModelConfig
from components.trainer.config.recipes import resolve
from components.trainer.config.training import TrainingConfig
from pipeline_def.config.config import Config
from pipeline_def.config.kubeflow import StepConfig, Toleration
from pipeline_def.config.tracking import TrackingConfig
from pipeline_def.kubeflow.compile import compiler, platform
from pipeline_def.kubeflow.spec_check import find_target
from pipeline_def.kubeflow.specification import Spec, Specification, Target, pod_of
from pipeline_def.kubeflow.step_interface import LEARNERS
from pipeline_def.pipeline import create_pipeline
from pipeline_def.steps import STEPS
from tests.kubeflow.conftest import MINIMAL, compile_file, config, container, interface
from tests.nodes import NODES

ROOT = Path(__file__).parents[3]
LOOKUPS = ["BaselineFinder-lookup", "Data-lookup"]
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
    made = compiler.compile_documents(EVERYTHING, {"small": {}}, target=target, image="i")
    drivers = {c.id: c.driver_class for c in create_pipeline(EVERYTHING).components}
    looking = {
        pod_of(f"{name}-lookup") for name in STEPS if not drivers[name].__module__.startswith("tfx")
    }
    assert looking == {*LOOKUPS, *(f"{name}-lookup" for name in ("ImagePredictor", *LEARNERS))}
    assert set(steps(made[0])) == {*map(pod_of, STEPS), *looking}
    assert interface(made[0], "ImagePredictor-lookup").lookup == "components.predict.files.look_up"
    root = made[0]["root"]["dag"]["tasks"]
    assert find_target(made) == target
    if target == "oss":
        assert with_secrets(made[0], EVERYTHING) == {"ImagePredictor", "ImagePredictor-lookup"}
    else:
        assert all("Validator-Gate" in root[name]["dependentTasks"] for name in LEARNERS)
    # What changes the training for a run, changes its search.
    given = [task(made[0], name)["inputs"]["parameters"] for name in LEARNERS]
    assert given[0].keys() >= {"training_recipe", "training_epochs"}
    assert given[0].keys() - given[1].keys() == {"tuner_fn"}


def test_only_training_waits_for_more_than_its_inputs(spec: Spec) -> None:
    tasks = spec["root"]["dag"]["tasks"]
    waits = {name: one["dependentTasks"] for name, one in tasks.items() if "dependentTasks" in one}
    assert waits == {"Trainer": ["Validator-Gate"]}


def test_only_the_pod_of_the_push_reports_the_run() -> None:
    tracked = dataclasses.replace(config(), tracking=TrackingConfig(mlflow="http://mlflow:5000"))
    made = compiler.compile_documents(tracked, target="oss", image="i")[0]
    tracking = {name: interface(made, name).tracking for name in steps(made)}
    assert {name: place for name, place in tracking.items() if place} == {
        "Report-Pusher": tracked.tracking
    }


def longest_chain(whole: Specification, task: str) -> list[str]:
    """Return the pods that follow one another up to a task if only lookups run."""
    waits = set(whole.tasks[task].get("dependentTasks", []))
    for kind in ("artifacts", "parameters"):
        for source in whole.sources(task, kind).values():
            waits |= {one["producerTask"] for one in source.values() if "producerTask" in one}
    earlier = [longest_chain(whole, other) for other in sorted(waits)]
    pods = [f"{task}-driver", *([task] if task in LOOKUPS else [])]
    return [*max(earlier, key=len, default=["root-driver"]), *pods]


def test_a_cached_run_waits_for_eleven_pods_in_a_row(spec: Spec) -> None:
    """Each takes Argo's requeue time of 10 s at least, so that this is the time of the run."""
    whole = Specification(spec)
    assert max((longest_chain(whole, task) for task in whole.tasks), key=len) == [
        *("root-driver", "Data-lookup-driver", "Data-lookup", "ImageExampleGen-driver"),
        *("Statistics-Schema-driver", "Transform-driver", "Trainer-driver"),
        *("BaselineFinder-lookup-driver", "BaselineFinder-lookup"),
        *("Baseline-Evaluator-driver", "Report-Pusher-driver"),
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
    assert set(steps(spec)) == {*TASKS, *LOOKUPS}
    for name, definition in steps(spec).items():
        enabled = definition.get("cachingOptions", {}).get("enableCache", False)
        assert enabled is (name not in LOOKUPS), name
    sources = {
        name: source["taskOutputParameter"]
        for definition in steps(spec).values()
        for name, source in definition["inputs"]["parameters"].items()
        if "taskOutputParameter" in source
    }
    early = {
        name: {"producerTask": "Data-lookup", "outputParameterKey": f"{step}_resolved"}
        for name, step in (
            ("resolved", "ImageExampleGen"),
            ("ExampleValidator_resolved", "ExampleValidator"),
        )
    }
    late = {"producerTask": "BaselineFinder-lookup", "outputParameterKey": "resolved"}
    assert sources == {**early, "BaselineFinder_resolved": late}


def test_run_parameters_have_defaults(spec: Spec) -> None:
    found = spec["root"]["inputDefinitions"]["parameters"]
    assert found["data"]["defaultValue"] == "gs://bucket/images"
    unseen, _ = resolve(Config(), shorter_side=96, images=0)
    assert found["training_epochs"]["defaultValue"] == unseen.training.epochs
    assert found["training_recipe"]["defaultValue"] == unseen.training.recipe
    assert found["span"] == {**found["span"], "parameterType": "NUMBER_INTEGER", "defaultValue": -1}
    assert all("defaultValue" in definition for definition in found.values())
    for step, name in (("ImageExampleGen", "data"), ("Data-lookup", "ImageExampleGen_data")):
        source = task(spec, step)["inputs"]["parameters"][name]
        assert source == {"componentInputParameter": "data"}
    whole = Specification(spec)
    sources = [one for task in whole.tasks for one in whole.sources(task, "parameters").values()]
    used = {source.get("componentInputParameter") for source in sources}
    assert used - {None} == set(found)


SETTINGS = {
    "BaselineFinder": StepConfig(memory=64, gpus=1),
    "ImageReport": StepConfig(cpu=3, env={"A": "1"}, volumes={"claim": "/mnt/data"}),
    "Pusher": StepConfig(env={"B": "2"}),
    "BaselineFinder-lookup": StepConfig(cpu=1),
    "all": StepConfig(
        image_pull_secrets=["login"],
        cpu=2,
        memory="4000M",
        env={"A": "1"},
        secrets={"s": {"key": "VARIABLE"}},
    ),
    "Trainer": StepConfig(
        cpu=8,
        gpus=2,
        image="i:gpu",
        retries=3,
        node_selector={"pool": "gpu"},
        tolerations=[Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")],
        volumes={"claim": "/mnt/data"},
        shared_memory="4Gi",
    ),
}


def test_resources_of_each_step() -> None:
    choices = config(steps=SETTINGS, store_secret="")
    made, kubernetes = compiler.compile_documents(choices, target="oss", image="i")
    trainer = container(made, "Trainer")
    memory = {"memoryLimit": 4, "memoryRequest": 4}
    gpus = {"accelerator": {"type": "nvidia.com/gpu", "count": "2"}}
    assert trainer["resources"] == {"cpuLimit": 8, "cpuRequest": 8, **memory, **gpus}
    assert trainer["env"] == [{"name": "A", "value": "1"}]
    # Steps that share a pod share their settings.
    assert container(made, "Baseline-Evaluator")["resources"]["memoryLimit"] == 64
    assert container(made, "Report-Pusher")["resources"]["cpuLimit"] == 3
    assert [one["name"] for one in container(made, "Report-Pusher")["env"]] == ["A", "B"]
    assert "accelerator" not in container(made, "Report-Pusher")["resources"]
    assert (trainer["image"], container(made, "Report-Pusher")["image"]) == ("i:gpu", "i")
    assert task(made, "Trainer")["retryPolicy"]["maxRetryCount"] == 3
    assert "retryPolicy" not in task(made, "Report-Pusher")
    # A lookup reaches what its step does, but needs no large machine for it.
    lookup = container(made, "BaselineFinder-lookup")
    assert lookup["resources"] == {"cpuLimit": 1, "cpuRequest": 1, **memory}
    settings = kubernetes["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert settings["Trainer_executor"] == {
        "nodeSelector": {"labels": {"pool": "gpu"}},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
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


def test_two_values_of_one_setting_in_a_pod_are_refused() -> None:
    differing = {"Evaluator": StepConfig(memory=8), "BaselineFinder": StepConfig(memory=4)}
    with pytest.raises(UserError, match=r"memory of Evaluator is 8.*share a pod.*has 4"):
        compiler.compile_documents(config(steps=differing), target="oss", image="i")


def test_resources_on_vertex() -> None:
    steps = {"Trainer": StepConfig(cpu=8, gpus=1)}
    [made] = compiler.compile_documents(
        config(steps=steps, pipeline_root="gs://bucket/root"), target="vertex", image="i"
    )
    accelerator = container(made, "Trainer")["resources"]["accelerator"]
    assert accelerator == {"type": "NVIDIA_TESLA_T4", "count": "1"}
    assert made["defaultPipelineRoot"] == "gs://bucket/root"
    assert interface(made, "Trainer").direct
    with pytest.raises(UserError, match=r"Vertex AI reads no platform document"):
        compiler.compile_documents(config(steps=SETTINGS), target="vertex", image="i")


def with_secrets(spec: Spec, choices: Config) -> set[str]:
    """Tasks that get a secret."""
    document = platform.platform_document(Specification(spec), choices, "oss")
    if document is None:
        return set()
    executors = document["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    return {label.removesuffix("_executor") for label in executors}


def test_each_run_of_a_schedule_reads_the_newest_spans_and_continues_the_model_in_use() -> None:
    pattern, ingest = "gs://b/day-{SPAN}", IngestConfig(window=3)
    model = ModelConfig(name="cnn", warm_start=True)
    choices = dataclasses.replace(config(), data=pattern, ingest=ingest, model=model)
    made = compiler.compile_documents(choices, target="oss", image="i")[0]
    assert {"Trainer", "Trainer-lookup"} <= with_secrets(made, choices)
    parameters = made["root"]["inputDefinitions"]["parameters"]
    # A schedule gives no values, so that these defaults hold.
    assert parameters["data"]["defaultValue"] == pattern
    assert parameters["span"]["defaultValue"] == -1
    properties = {"Data-lookup": "ImageExampleGen_config", "Trainer-lookup": "custom_config"}
    for step, name in (("ImageExampleGen", "Data-lookup"), ("Trainer", "Trainer-lookup")):
        lookup, key = steps(made)[name], properties[name]
        # What it finds changes from run to run, and decides whether its step is cached.
        assert not lookup.get("cachingOptions", {}).get("enableCache")
        assert name in json.dumps(steps(made)[step]["inputs"])
        found = json.loads(lookup["inputs"]["parameters"][key]["runtimeValue"]["constant"])
        wanted = {"window": 3, "span": None} if step != "Trainer" else {"warm_start": True}
        assert wanted.items() <= found.get("model", found).items()


def test_only_steps_that_open_the_store_get_its_secret(spec: Spec, compiled: list[Spec]) -> None:
    # Where a namespace lacks it, steps only cannot keep their logs.
    executors = compiled[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    [store] = executors["Trainer_executor"]["secretAsVolume"]
    assert (store["secretName"], store["optional"]) == ("mlpipeline-minio-artifact", True)
    # Every step keeps its log there.
    assert with_secrets(spec, config()) == {*TASKS, *LOOKUPS}
    for name, value in (("pipeline_root", "gs://b/r"), ("store_secret", "")):
        assert with_secrets(spec, config(**{name: value})) == set(), name
    other = config(pipeline_root="gs://b/r", storage="minio://b/m")
    opening = {"Validator-Gate", "Baseline-Evaluator", "ImageExampleGen", "Report-Pusher"}
    assert with_secrets(spec, other) == {*opening, *LOOKUPS}
    images = dataclasses.replace(config(pipeline_root="gs://b/r"), data="minio://bucket/images")
    # The report shows rejected images.
    reading = {"ImageExampleGen", "Data-lookup", "Report-Pusher"}
    assert with_secrets(spec, images) == reading


def test_beam_on_other_machines_uses_remote_uris() -> None:
    arguments = ["--runner=DataflowRunner", "--project=p"]
    remote = dataclasses.replace(config(pipeline_root="gs://b/r"), beam_pipeline_args=arguments)
    [made] = compiler.compile_documents(remote, target="oss", image="i")
    assert interface(made, "Transform").direct
    assert container(made, "Transform")["args"][-3:] == ["--", *arguments]
    # The launcher has copied the shards for the Trainer, which runs no Beam.
    assert not interface(made, "Trainer").direct
    assert "--" not in container(made, "Trainer")["args"]
    elsewhere = dataclasses.replace(config(), beam_pipeline_args=arguments)
    with pytest.raises(UserError, match=r"set kubeflow.pipeline_root to a folder on gs://"):
        compiler.compile_documents(elsewhere, target="oss", image="i")


@pytest.mark.slow
def test_the_configurations_in_the_docs_compile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "how-to" / "kubeflow.md").read_text()
    found = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    blocks = [block for block in found if not block.startswith("apiVersion:")]
    assert len(blocks) == 3
    for block in blocks:
        (tmp_path / "cluster.yaml").write_text(block)
        argv = ("--config", str(tmp_path / "cluster.yaml"))
        assert compile_file(tmp_path / "pipeline.yaml", *argv)
    assert "4 workers train together in a Job." in capsys.readouterr().out


MISTAKES = {
    ("--kubeflow.storage", "gs://bucket/images/models"): "lies in --data",
    ("--kubeflow.steps", "{Trainr: {cpu: 4}}"): "an unknown step, Trainr. Did you mean 'Trainer'?",
    ("--name", "My images"): "Invalid pipeline name 'My images'",
    ("--kubeflow.pipeline_root", "/data"): "The pipeline root is /data: it must start with gs://",
    ("--output", "/no/such/folder/x.yaml"): "Cannot write /no/such/folder/x.yaml",
    ("--target", "eks"): "invalid choice: 'eks'",
}


@pytest.mark.parametrize(("argv", "message"), MISTAKES.items())
def test_mistakes_exit_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], message: str
) -> None:
    assert kfp_runner.main([*MINIMAL, "--output", str(tmp_path / "x.yaml"), *argv]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize("argv", [("compile",), ("deploy",), ()])
def test_missing_options(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]) -> None:
    assert kfp_runner.main(argv) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("kfp_runner.py: error: ")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("--help",), "compile|check|run|schedule|runs|logs|stop"),
        (("compile", "--help"), "--image"),
        (("compile", "--help", "kubeflow"), "--kubeflow.storage"),
        (("compile", "--help", "kubeflow.steps"), "image_pull_secrets"),
    ],
)
def test_help(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], text: str) -> None:
    # argparse ends the process itself, with status 0.
    with contextlib.suppress(SystemExit):
        assert kfp_runner.main(argv) == 0
    assert text in capsys.readouterr().out


FUNCTIONS = ("run_fn", "preprocessing_fn", "preview_fn")


def test_step_rows_name_the_modules_of_their_components() -> None:
    for component in create_pipeline(EVERYTHING).components:
        properties = component.exec_properties
        functions = [properties[name] for name in FUNCTIONS if properties.get(name)]
        lookup = getattr(component.driver_class, "lookup_function", None)
        named = {
            component.executor_spec.executor_class.__module__,
            lookup.__module__ if lookup else "",
            properties.get("module_path") or "",
            *(path.rpartition(".")[0] for path in functions),
        }
        ours = {name for name in named if name.startswith(("components.", "pipeline_def."))}
        assert set(STEPS[component.id].code) == ours, component.id
