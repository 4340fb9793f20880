"""The launcher harness does what KFP's source says: values, files, metadata, isolation."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubeflow.launcher import Cluster, Release
from tests.kubeflow.launcher.driver import submitted
from tests.kubeflow.launcher.pod import REPOSITORY, isolation
from tests.kubeflow.launcher.records import Metadata
from tests.kubeflow.launcher.store import upload_uri
from tests.kubeflow.launcher.values import (
    MISSING,
    StepError,
    checked_input,
    driver_text,
    launcher_text,
    parsed_output,
    read_executor_output,
)

Compile = Callable[..., Path]
EXAMPLES = {"instanceSchema": "title: tfx.Examples\ntype: object\n"}
PRINT_INPUT = ["sh", "-c", 'printf %s "$0"', "{{$}}"]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "store", publish_logs=False)


@pytest.fixture
def compile_steps(tmp_path: Path) -> Compile:
    """Return what writes a specification of steps: their commands, inputs and outputs."""

    def write(
        steps: dict[str, dict[str, Any]],
        parameters: dict[str, Any] | None = None,
        platform: dict[str, Any] | None = None,
    ) -> Path:
        spec = {
            "pipelineInfo": {"name": "tiny"},
            "schemaVersion": "2.1.0",
            "sdkVersion": "kfp-2.13.0",
            "root": {"dag": {"tasks": {name: _task(name, step) for name, step in steps.items()}}},
            "components": {f"comp-{name}": _component(name, step) for name, step in steps.items()},
            "deploymentSpec": {
                "executors": {
                    f"exec-{name}": {
                        step.get("executor", "container"): {
                            "image": "tiny:1",
                            "command": step["command"],
                            "env": step.get("env", []),
                        }
                    }
                    for name, step in steps.items()
                }
            },
        }
        if parameters:
            spec["root"]["inputDefinitions"] = {"parameters": parameters}  # type: ignore[index]
        executors = {"deploymentSpec": {"executors": platform}}
        documents = [spec, {"platforms": {"kubernetes": executors}}] if platform else [spec]
        path = tmp_path / "tiny.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        return path

    return write


def _task(name: str, step: dict[str, Any]) -> dict[str, Any]:
    return {
        "taskInfo": {"name": f"{name} shown"},
        "componentRef": {"name": f"comp-{name}"},
        "inputs": {
            "parameters": step.get("values", {}),
            "artifacts": {
                key: {"taskOutputArtifact": {"producerTask": task, "outputArtifactKey": output}}
                for key, (task, output) in step.get("artifacts", {}).items()
            },
        },
        **step.get("task", {}),
    }


def _component(name: str, step: dict[str, Any]) -> dict[str, Any]:
    artifacts = {key: {"artifactType": EXAMPLES} for key in step.get("artifacts", {})}
    return {
        "executorLabel": f"exec-{name}",
        "inputDefinitions": {"parameters": step.get("takes", {}), "artifacts": artifacts},
        "outputDefinitions": {
            "parameters": step.get("gives", {}),
            "artifacts": step.get("outputs", {}),
        },
    }


def _constant(value: Any) -> dict[str, Any]:
    return {"runtimeValue": {"constant": value}}


def _output(task: str, key: str) -> dict[str, Any]:
    return {"taskOutputParameter": {"producerTask": task, "outputParameterKey": key}}


def _of(kind: str, **more: Any) -> dict[str, Any]:
    return {"parameterType": kind, **more}


def _shell(script: str, *arguments: str) -> list[str]:
    return ["sh", "-ec", script, "sh", *arguments]


def _python(script: str, *arguments: str) -> list[str]:
    return ["python", "-c", script, *arguments]


def _writes(content: str) -> list[str]:
    """Write an executor output file: `content` is a Python dict, in which `uri` may be named."""
    script = (
        "import json, os, sys\n"
        "outputs = json.loads(sys.argv[1])['outputs']\n"
        "artifacts = outputs.get('artifacts', {})\n"
        "uri = artifacts['x']['artifacts'][0]['uri'] if artifacts else ''\n"
        "os.makedirs(os.path.dirname(outputs['outputFile']), exist_ok=True)\n"
        f"json.dump({content}, open(outputs['outputFile'], 'w'))"
    )
    return _python(script, "{{$}}")


@pytest.mark.slow
def test_parameters_arrive_as_doubles_in_go_s_json(
    cluster: Cluster, compile_steps: Compile
) -> None:
    root = {"n": _of("NUMBER_INTEGER", defaultValue=5), "s": _of("STRING")}
    takes = {
        **root,
        "d": _of("STRING", defaultValue="é", isOptional=True),
        "id": _of("STRING"),
        "task": _of("STRING"),
        "l": _of("LIST"),
    }
    values = {
        "n": {"componentInputParameter": "n"},
        "s": {"componentInputParameter": "s"},
        "id": _constant("{{$.pipeline_job_uuid}}"),
        "task": _constant("{{$.pipeline_task_name}}"),
        "l": _constant([1, 2.5, None]),
    }
    spec = compile_steps({"a": {"command": PRINT_INPUT, "takes": takes, "values": values}}, root)
    run = cluster.run(spec, {"s": "<a>"})
    task = run.tasks["a"]
    assert run.succeeded, task.log
    parameters = task.executor_input["inputs"]["parameterValues"]
    assert parameters == {
        "n": 5.0,
        "s": "<a>",
        "d": "é",
        "id": run.id,
        "task": "a",
        "l": [1.0, 2.5, None],
    }
    assert '"n": 5,' in task.log
    assert '"<a>"' in task.log
    cluster.plain_integers = False
    assert '"n": 5.0,' in cluster.run(spec, {"s": "x"}).tasks["a"].log


PRODUCER = {
    "command": _shell(
        'mkdir -p "$1/sub" "$1/empty"; echo hi > "$1/sub/f"; printf " 7 " > "$2"',
        "{{$.outputs.artifacts['x'].path}}",
        "{{$.outputs.parameters['n'].output_file}}",
    ),
    "outputs": {
        "x": {"artifactType": EXAMPLES, "metadata": {"split": ["a"], "o": {"k": 1}, "n": 3}},
        "none": {"artifactType": {"schemaTitle": "system.Model"}},
    },
    "gives": {"n": _of("NUMBER_INTEGER")},
}


CONSUMER = {
    "command": _shell(
        'find "$1" "$2"; cat "$1/sub/f"; echo "$3"',
        "{{$.inputs.artifacts['i'].path}}",
        "{{$.inputs.artifacts['j'].path}}",
        "{{$}}",
    ),
    "artifacts": {"i": ("a", "x"), "j": ("a", "none")},
    "takes": {"n": _of("NUMBER_INTEGER")},
    "values": {"n": _output("a", "n")},
}


@pytest.mark.slow
def test_artifacts_and_parameters_go_from_task_to_task(
    tmp_path: Path, compile_steps: Compile
) -> None:
    root = "minio://mlpipeline/v2"
    cluster = Cluster(tmp_path / "store", root=root, publish_logs=False)
    # The consumer first: the order is that of the data.
    run = cluster.run(compile_steps({"b": CONSUMER, "a": PRODUCER}))
    producer, task = run.tasks["a"], run.tasks["b"]
    assert producer.parameters == {"n": 7.0}
    assert (producer.outputs["x"].type, producer.outputs["none"].type) == (
        "tfx.Examples",
        "system.Model",
    )
    uri = producer.outputs["x"].uri
    assert uri.startswith(f"{root}/tiny/{run.id}/a/")
    assert uri.endswith("/x")
    assert [path.name for path in cluster.files(uri).rglob("*")] == ["sub", "f"]
    assert f'Local filepath "{_local(uri)[:-1]}none" does not exist' in producer.log
    local = _local(uri)
    # What has no objects has no folder, and the failure of find ends the script.
    assert task.state == "FAILED"
    assert {local, f"{local}/sub", f"{local}/sub/f"} == set(task.log.splitlines()[:3])
    assert "none" in task.log.splitlines()[3]
    given = task.executor_input["inputs"]
    assert given["parameterValues"] == {"n": 7.0}
    artifact = given["artifacts"]["i"]["artifacts"][0]
    assert artifact["name"] == str(producer.outputs["x"].id)
    assert artifact["type"] == {"instanceSchema": ""}
    info = artifact["metadata"].pop("store_session_info")
    assert json.loads(info)["Provider"] == root.partition(":")[0]
    assert artifact["metadata"] == {
        "split": {"list": ["a"]},
        "o": {"struct": {"k": 1.0}},
        "n": 3.0,
        "display_name": "x",
    }


def _local(uri: str) -> str:
    scheme, _, rest = uri.partition("://")
    return f"/{'gcs' if scheme == 'gs' else scheme}/{rest}"


def nested(file: Path) -> Path:
    """Put the steps a and b of a file into a sub-DAG each, and give them to each other by these."""
    documents = list(yaml.safe_load_all(file.read_text()))
    spec = documents[0]
    steps, kind = spec["root"]["dag"]["tasks"], {"artifactType": EXAMPLES}
    for name, step in steps.items():
        step["taskInfo"]["name"] = name
    output = {"producerTask": "first", "outputArtifactKey": "x"}
    selector = {"producerSubtask": "a", "outputArtifactKey": "x"}
    steps["b"]["inputs"]["artifacts"]["i"] = {"componentInputArtifact": "x"}
    outputs = {"artifacts": {"x": {"artifactSelectors": [selector]}}}
    spec["components"]["one"] = {
        "dag": {"tasks": {"a": steps.pop("a")}, "outputs": outputs},
        "outputDefinitions": {"artifacts": {"x": kind}},
    }
    spec["components"]["two"] = {
        "dag": {"tasks": {"b": steps.pop("b")}},
        "inputDefinitions": {"artifacts": {"x": kind}},
    }
    inputs = {"artifacts": {"x": {"taskOutputArtifact": output}}}
    steps["first"] = {"taskInfo": {"name": "first"}, "componentRef": {"name": "one"}}
    steps["second"] = {
        "taskInfo": {"name": "second"},
        "componentRef": {"name": "two"},
        "inputs": inputs,
    }
    file.write_text(yaml.safe_dump_all(documents))
    return file


@pytest.mark.slow
@pytest.mark.parametrize("release", list(Release))
def test_sub_dags_pass_artifacts_on_and_are_skipped_as_a_whole(
    tmp_path: Path, compile_steps: Compile, release: Release
) -> None:
    cluster = Cluster(tmp_path / "store", release=release, publish_logs=False)
    show = _shell('cat "$1/f"', "{{$.inputs.artifacts['i'].path}}")
    make = _shell('mkdir -p "$1"; echo hi > "$1/f"', "{{$.outputs.artifacts['x'].path}}")
    first = {"command": make, "outputs": {"x": {"artifactType": EXAMPLES}}}
    second = {"command": show, "artifacts": {"i": ("a", "x")}}
    spec = nested(compile_steps({"a": first, "b": second}))
    run = cluster.run(spec)
    assert run.succeeded, run.tasks
    assert run.tasks["b"].log == "hi\n"
    assert {name: one.state for name, one in run.sub_dags.items()} == {
        "first": "SUCCEEDED",
        "second": "SUCCEEDED",
    }
    failing = nested(compile_steps({"a": {**first, "command": ["false"]}, "b": second}))
    states = {name: task.state for name, task in cluster.run(failing).tasks.items()}
    assert states == {"a": "FAILED", "b": "SKIPPED"}


@pytest.mark.slow
def test_the_executor_output_is_merged_and_dependants_of_a_failure_are_skipped(
    cluster: Cluster, compile_steps: Compile
) -> None:
    outputs = {"x": {"artifactType": EXAMPLES, "metadata": {"kept": "1", "old": 1}}}
    content = (
        "{'artifacts': {'x': {'artifacts': [{'name': 'n', 'uri': uri + '-2', "
        "'metadata': {'old': True, 'new': 2, 's': {}}}]}}, 'parameterValues': {'q': [1]}}"
    )
    good = {"command": _writes(content), "outputs": outputs, "gives": {"q": _of("LIST")}}
    bad = {"command": ["false"], "artifacts": {"i": ("a", "x")}}
    after = {"command": ["true"], "task": {"dependentTasks": ["b"]}}
    run = cluster.run(compile_steps({"a": good, "b": bad, "c": after, "d": {"command": ["true"]}}))
    states = {name: task.state for name, task in run.tasks.items()}
    assert states == {"a": "SUCCEEDED", "b": "FAILED", "c": "SKIPPED", "d": "SUCCEEDED"}
    artifact = run.tasks["a"].outputs["x"]
    assert artifact.uri.endswith("/x-2")
    assert run.tasks["a"].parameters == {"q": [1.0]}
    metadata = dict(artifact.metadata)
    del metadata["store_session_info"]
    assert metadata == {"kept": "1", "old": 1, "new": 2.0, "s": {"struct": {}}, "display_name": "x"}


@pytest.mark.slow
@pytest.mark.parametrize("release", list(Release))
def test_logs_are_an_artifact_of_their_own(
    tmp_path: Path, compile_steps: Compile, release: Release
) -> None:
    cluster = Cluster(tmp_path / "store", release=release)
    spec = compile_steps(
        {"a": {"command": PRINT_INPUT}, "b": {"command": _shell("echo no >&2; exit 3")}}
    )
    run = cluster.run(spec)
    outputs = json.loads(run.tasks["a"].log)["outputs"]
    listed = outputs["artifacts"]["executor-logs"]["artifacts"][0]
    assert listed["type"] == {"schemaTitle": "system.Artifact"}
    assert cluster.files(listed["uri"]).read_text() == run.tasks["a"].log
    new = release is Release.V2_17
    assert listed["uri"].endswith("/executor-logs-0" if new else "/executor-logs")
    assert ("/a/" in listed["uri"]) == new
    folder = _local(listed["uri"]).rpartition("/")[0] if new else "/tmp/kfp_outputs"
    assert outputs["outputFile"] == f"{folder}/output_metadata.json"
    assert ("name" in listed) == new
    assert run.tasks["b"].log == "no\nexit status 3\n"
    # Of a failed step, only since 2.17.
    assert list(run.tasks["b"].outputs) == (["executor-logs"] if new else [])


PLATFORM = {
    "exec-a": {
        "secretAsEnv": [
            {"secretName": "keys", "keyToEnv": [{"secretKey": "a", "envVar": "KEY"}]},
            {
                "secretNameParameter": _constant("none"),
                "keyToEnv": [{"secretKey": "a", "envVar": "NONE"}],
                "optional": True,
            },
        ],
        "pvcMount": [
            {"mountPath": "/data/here", "constant": "claim"},
            {
                "mountPath": "/mnt/new",
                "pvcNameParameter": _constant("claim"),
                "subPath": "part",
            },
        ],
        "emptyDirMounts": [{"mountPath": "/dev/shm", "volumeName": "shm", "medium": "Memory"}],
        "nodeSelector": {"labels": {"a": "b"}},
    },
    "exec-b": {"secretAsEnv": [{"secretName": "x", "keyToEnv": [{"secretKey": "a"}]}]},
    "exec-c": {"pvcMount": [{"mountPath": "/data", "constant": "absent"}]},
}


@pytest.mark.slow
def test_secrets_volumes_and_variables(tmp_path: Path, compile_steps: Compile) -> None:
    (tmp_path / "disk/part").mkdir(parents=True)
    cluster = Cluster(
        tmp_path / "store",
        volumes={"claim": tmp_path / "disk"},
        secrets={"keys": {"a": "hidden"}},
        env={"FROM_IMAGE": "image", "BOTH": "image"},
        publish_logs=False,
    )
    write = "echo 1 > /data/here/f; echo 2 > /mnt/new/g; env | sort; pwd; echo $(KEY); ls /data"
    steps = {
        "a": {"command": _shell(write), "env": [{"name": "BOTH", "value": "spec"}]},
        "b": {"command": ["true"]},
        "c": {"command": ["true"]},
    }
    tasks = cluster.run(compile_steps(steps, platform=PLATFORM)).tasks
    lines = tasks["a"].log.splitlines()
    assert {"KEY=hidden", "BOTH=spec", "FROM_IMAGE=image", "HOME=/tmp"} <= {*lines}
    assert lines[-3:] == [str(REPOSITORY), "hidden", "here"]
    assert {line.partition("=")[0] for line in lines[:-3]} <= {
        *("KEY", "BOTH", "FROM_IMAGE", "HOME", "LANG", "PATH", "PWD"),
    }
    assert (tmp_path / "disk/f").read_text() == "1\n"
    assert (tmp_path / "disk/part/g").read_text() == "2\n"
    assert tasks["b"].log == 'secret "x" not found\n'
    assert tasks["c"].log == 'persistentvolumeclaim "absent" not found\n'


@pytest.mark.slow
@pytest.mark.skipif(isolation() != "namespaces", reason="needs Linux namespaces")
def test_a_step_sees_neither_other_steps_nor_the_host(
    cluster: Cluster, compile_steps: Compile
) -> None:
    leave = "for d in /tmp /minio /s3 /gcs /dev/shm; do touch $d/left; done; sleep 100 &"
    look = (
        "import os, sys, tempfile, yaml\n"
        "print({d: os.listdir(d) for d in ('/tmp', '/minio', '/s3', '/gcs', '/dev/shm')})\n"
        "print(os.getppid(), len([p for p in os.listdir('/proc') if p.isdigit()]))\n"
        "open(tempfile.mkdtemp() + '/f', 'w').close(); open('/dev/null', 'w').close()\n"
        "import tests\n"
        "for path in ('new', '/new/f', '/usr/new'):\n"
        "    try: open(path, 'w')\n"
        "    except OSError as error: print(error.strerror)\n"
    )
    steps = {
        "a": {"command": _shell(leave)},
        "b": {"command": _python(look), "task": {"dependentTasks": ["a"]}},
    }
    with tempfile.NamedTemporaryFile(dir="/tmp"):
        run = cluster.run(compile_steps(steps))
    assert run.succeeded, run.tasks["b"].log
    assert run.tasks["a"].seconds < 20
    listing, process, *refusals = run.tasks["b"].log.splitlines()
    # A clone of the repository may itself lie in /tmp.
    own = [REPOSITORY.parts[2]] if REPOSITORY.is_relative_to("/tmp") else []
    assert listing == f"{{'/tmp': {own}, '/minio': [], '/s3': [], '/gcs': [], '/dev/shm': []}}"
    assert process == "1 2"
    assert refusals == ["Read-only file system", "No such file or directory", refusals[0]]
    assert not (REPOSITORY / "new").exists()


MAKE = """
name: make
inputs: [{name: text, type: String}]
outputs: [{name: out, type: Dataset}]
implementation:
  container:
    image: i
    command: [sh, -c, 'echo "$0$KEY" > $1', {inputValue: text}, {outputPath: out}]
"""
SHOW = """
name: show
inputs: [{name: data, type: Dataset}]
implementation: {container: {image: i, command: [cat, {inputPath: data}]}}
"""


@pytest.mark.slow
def test_what_the_kfp_sdk_compiles_runs(tmp_path: Path, cluster: Cluster) -> None:
    from kfp import compiler, components, dsl, kubernetes

    make = components.load_component_from_text(MAKE)
    show = components.load_component_from_text(SHOW)

    def two(text: str = "x") -> None:
        made = make(text=text)
        kubernetes.use_secret_as_env(made, secret_name="keys", secret_key_to_env={"a": "KEY"})
        show(data=made.outputs["out"])

    # The SDK looks at types, not at their names, which this module has instead.
    two.__annotations__ = {"text": str}
    path = tmp_path / "two.yaml"
    compiler.Compiler().compile(dsl.pipeline(name="two")(two), str(path))
    cluster.secrets = {"keys": {"a": "!"}}
    tasks = cluster.run(path, {"text": "hello"}).tasks
    assert tasks["show"].log == "hello!\n"
    assert tasks["make"].outputs["out"].type == "system.Dataset"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ('{"artifacts": {"x": {"artifacts": [{"colour": "red"}]}}}', "failed to unmarshall"),
        ('{"parameterValues": {"a": NaN}}', "failed to unmarshall"),
    ],
)
def test_the_executor_output_is_read_strictly(tmp_path: Path, written: str, message: str) -> None:
    file = tmp_path / "output_metadata.json"
    file.write_text(written)
    with pytest.raises(StepError, match=message):
        read_executor_output(file, "/minio/output_metadata.json")


def test_metadata_cannot_be_null() -> None:
    with pytest.raises(StepError, match="Value_NullValue"):
        Metadata("").record("x", {"type": EXAMPLES, "metadata": {"a": None}})


def test_parameters_of_a_run_are_checked_when_it_is_submitted() -> None:
    root = {"inputDefinitions": {"parameters": {"n": _of("NUMBER_INTEGER")}}}
    for given, message in (
        ({}, "neither default value"),
        ({"n": 1, "m": 1}, "not required by pipeline: m"),
        ({"n": "1"}, "requires type NUMBER_INTEGER"),
    ):
        with pytest.raises(ValueError, match=message):
            submitted(root, given)


@pytest.mark.parametrize(
    ("kind", "value", "taken"),
    [
        ("NUMBER_INTEGER", 5.0, 5.0),
        ("NUMBER_INTEGER", "5", "type mismatch: expect NUMBER_INTEGER, got string"),
        ("BOOLEAN", 1.0, "type mismatch: expect BOOLEAN, got number"),
        ("LIST", None, "got null for input parameter"),
        ("NUMBER_DOUBLE", MISSING, "unknown protobuf.Value type: <nil>"),
        ("STRING", 5.0, "5"),
        ("STRING", [1.0, "<"], '[1,"\\u003c"]'),
        # A default of a parameter that is not optional is lost.
        ("STRING", MISSING, ""),
    ],
)
def test_an_input_is_checked_and_converted_by_its_type(kind: str, value: Any, taken: Any) -> None:
    if kind != "STRING" and isinstance(taken, str):
        with pytest.raises(StepError, match=taken):
            checked_input("p", kind, value)
    else:
        assert checked_input("p", kind, value) == taken


def test_text_of_values_is_go_s() -> None:
    values = (1234567.5, 123456.5, 0.00001, 1e22, -1234567.25, 5.0)
    assert [driver_text(value) for value in values] == [
        *("1.2345675e+06", "123456.5", "1e-05", "1e+22", "-1.23456725e+06", "5")
    ]
    assert [launcher_text(value) for value in values[:4]] == [
        *("1234567.5", "123456.5", "0.00001", "1" + "0" * 22)
    ]


def test_output_parameters_are_parsed_by_type() -> None:
    assert parsed_output(" 5\n", "NUMBER_INTEGER") == 5.0
    assert parsed_output("5\n", "STRING") == "5\n"
    assert parsed_output("[1, {}]", "LIST") == [1.0, {}]
    for text, kind in (("5.0", "NUMBER_INTEGER"), ("yes", "BOOLEAN"), ("{}", "LIST"), ("x", "")):
        with pytest.raises(StepError, match="TextToPbValue"):
            parsed_output(text, kind)


def test_an_upload_stays_below_the_root() -> None:
    assert upload_uri("s3://b/r/k", "s3://b/r") == "s3://b/r/k"
    # KFP compares prefixes of text.
    assert upload_uri("s3://b/rx/k", "s3://b/r") == "s3://b/r/x/k"
    for elsewhere in ("s3://b/r/", "s3://c/k"):
        with pytest.raises(StepError):
            upload_uri(elsewhere, "s3://b/r")
