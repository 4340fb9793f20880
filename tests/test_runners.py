import contextlib
import errno
import os
import re
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from PIL import Image

import local_runner
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local.output.checks import lock_output
from pipeline_def.local.output.locations import make_absolute
from pipeline_def.local.preparation import prepare, use_corrections, write_digits
from tests.apps.serve.serving import push
from tests.config.command import parsed
from tests.conftest import Refusal
from tests.local.run_samples import configure, write_run
from tests.local.test_comparison_command import write_evaluated_run
from tests.pictures import write_folder
from tests.repository import ROOT


def test_a_wrong_folder_is_one_sentence_and_status_2(tmp_path: Path, refusal: Refusal) -> None:
    for path in write_folder(tmp_path / "no images", each=3).rglob("*.*"):
        path.write_text("nothing to see")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("a file")
    for kind, message in {
        "missing": "does not exist",
        "file": "is a file",
        "empty": "has no images in label folders",
        "no images": "None of 9 sampled files .* is a readable image",
    }.items():
        places = ("--data", tmp_path / kind, "--output", tmp_path / "out" / "of" / "run")
        assert re.search(message, refusal(*places))


@pytest.mark.parametrize(
    ("command", "argument", "message"),
    [
        ("run", "--output=ftp://host/x", "--output is ftp://host/x, which is not supported"),
        ("runs", "--output=gs:/b", "--output is gs:/b"),
        ("inspect", "--data=", "data is empty"),
        ("inspect", "--validation.schema=/no/such", "validation.schema: /no/such does not exist"),
        ("inspect", "--predict.folder=/no/such", "There is no file or folder /no/such"),
        ("inspect", "--model.build_fn=no_such.network", "no_such"),
        ("inspect", "--output={data}/out", "lies in --data"),
        ("run", "--output={data}/out", "lies in --data"),
    ],
)
def test_every_command_refuses_what_a_run_would_refuse(
    tmp_path: Path,
    refusal: Refusal,
    monkeypatch: pytest.MonkeyPatch,
    image_folder: Path,
    command: str,
    argument: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    place = [] if command == "runs" else ["--data", image_folder]
    assert message in refusal(command, *place, argument.format(data=image_folder))
    assert not os.listdir(tmp_path)
    assert not (image_folder / "out").exists()


def test_an_output_in_use_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, layout = tmp_path / "empty", Layout(str(tmp_path / "out"))
    data.mkdir()
    os.mkdir(layout.output)
    words = ("--data", str(data), "--output", layout.output)
    waiting = threading.Thread(target=local_runner.main, args=[words])
    shown = ""
    with lock_output(layout):
        waiting.start()
        while waiting.is_alive() and "waiting until" not in shown:
            shown += capsys.readouterr().out
            waiting.join(0.05)
        assert waiting.is_alive()
    assert f"is writing to the output folder {layout.output}: " in shown
    waiting.join()


DATAFLOW = ("--beam_pipeline_args", "[--runner=DataflowRunner, --project=p]")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--epochs", "3"), "Unknown option '--epochs'. Did you mean '--training.epochs'?"),
        (("inspct", "x"), "Unknown command 'inspct'. Did you mean 'inspect'?"),
        (("photo", "--data=x"), "'photo' and --data both name the images: give one."),
        (("/no/such",), "/no/such does not exist"),
        (("run", "/no/such"), "/no/such does not exist"),
        (("inspect",), "Name a folder: local_runner.py inspect DIR."),
        ((), "There are no images to run on: name their folder, as in `local_runner.py DIR`, or"),
        (("--training.epochs=3",), "There are no images to run on"),
        (("/x", "--sample"), "--data and --sample both name the images"),
        (
            ("runs", "--training.epochs", "1"),
            "Unknown option '--training.epochs'. See local_runner",
        ),
        (("--sample", "--output", "/dev/null/out"), "Cannot write to"),
        (
            ("--sample", *DATAFLOW),
            "names Dataflow, whose workers cannot see the folders of this ma",
        ),
        (("--sample", *DATAFLOW, "--output", "gs://bucket/out"), "names Dataflow"),
    ],
)
def test_mistakes_in_commands(
    tmp_path: Path, refusal: Refusal, argv: tuple[str, ...], message: str
) -> None:
    place = () if argv[0:1] == ("runs",) or "--output" in argv else ("--output", tmp_path)
    assert message in refusal(*argv, *place)
    assert {*os.listdir(tmp_path)} <= {".lock"}


def test_other_processes_are_refused(
    tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}'
    monkeypatch.setenv("TF_CONFIG", workers)
    said = refusal("--sample", "--output", tmp_path / "out")
    assert "TF_CONFIG lists 2 processes, but local_runner.py trains in one: unset it" in said
    assert os.listdir(tmp_path) == []


OWN = "out/corrections.csv"


@pytest.mark.parametrize(
    ("own", "last", "option", "used"),
    [
        (False, None, "", None),
        (True, None, "", OWN),
        (False, "mine.csv", "", "mine.csv"),
        (True, OWN, "", OWN),
        (True, "mine.csv", "--ingest.corrections=mine.csv", "mine.csv"),
        (True, "mine.csv", "--ingest.corrections=none", None),
        (True, "mine.csv", "--ingest.corrections=null", None),
    ],
)
def test_corrections_of_an_output_are_not_forgotten(
    tmp_path: Path, own: bool, last: str | None, option: str, used: str | None
) -> None:
    output, images = tmp_path / "out", tmp_path / "images"
    configuration = configure(str(images), ingest={"corrections": last and str(tmp_path / last)})
    write_run(output, 1, configuration=configuration)
    write_run(output, 2, configuration=configure("/elsewhere"))
    if own:
        (tmp_path / OWN).touch()
    words = (f"--data={images}", f"--output={output}", *option.split())
    with contextlib.chdir(tmp_path):
        config = make_absolute(parsed(*words))
    chosen = use_corrections(config, str(output)).ingest.corrections
    assert chosen == (used and str(tmp_path / used))


def test_two_files_of_corrections_stop_a_run(tmp_path: Path, refusal: Refusal) -> None:
    configuration = configure(str(tmp_path / "images"), ingest={"corrections": "/mine.csv"})
    write_run(tmp_path / "out", 1, configuration=configuration)
    (tmp_path / "out" / "corrections.csv").touch()
    for command in ("run", "inspect"):
        said = refusal(command, f"--data={tmp_path}/images", f"--output={tmp_path}/out")
        assert "used the corrections /mine.csv, but there is also " in said
        assert "choose with --ingest.corrections FILE, or none" in said


@pytest.mark.parametrize("command", ["", "run", "inspect", "runs"])
def test_the_version_and_a_screen_of_its_own_for_each_command(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert local_runner.main(["--version"]) == 0
    n = r"[\d.]+"
    said = rf"tfx-image-pipeline {n} \(tfx {n}, tensorflow {n}, python {n}\)\n"
    assert re.fullmatch(said, capsys.readouterr().out)
    assert local_runner.main(["help", "runns"]) == 2
    with pytest.raises(SystemExit) as caught:
        local_runner.main(["help", *filter(None, [command])])
    assert caught.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    name = command if command not in ("", "run") else "[COMMAND]"
    assert lines[0].startswith(f"usage: local_runner.py {name} ")
    assert len(lines) <= 36
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("program", ["local_runner.py", "kfp_runner.py"])
def test_a_python_without_the_libraries_is_named(program: str) -> None:
    # -S: without installed packages.
    done = subprocess.run(
        [sys.executable, "-S", ROOT / program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{program}: error: {sys.executable} does not have the libraries of this program: start "
        f"it with `uv run {program}`.\n"
    )


def test_images_of_another_task_do_not_replace_the_model_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refusal: Refusal
) -> None:
    output, layout = tmp_path / "out", Layout(str(tmp_path / "out"))
    write_evaluated_run(output, 1, right=20)  # blue and red
    push(output / "pushed", "1")
    with contextlib.closing(sqlite3.connect(layout.metadata)) as metadata:
        metadata.execute("CREATE TABLE MLMDEnv (schema_version INTEGER)")
    others = write_folder(tmp_path / "others", each=30, labels=("green", "red"))
    (others / "red").rename(others / "orange")
    assert refusal("--data", others, "--output", output) == (
        "local_runner.py: error: The images have no label in common with the current model, "
        f"version 1 in {layout.pushed}, which knows blue, red: choose another --output, or replace "
        "the model with --new_task."
    )
    prepare(Config(data=str(others), output=str(output)), new_task=True)
    assert "does not know" not in capsys.readouterr().out
    write_folder(others, each=30, labels=("blue",))
    prepare(Config(data=str(others), output=str(output)))
    assert "Note:    version 1, the current model, does not know green, orange: both models" in (
        capsys.readouterr().out
    )


@pytest.mark.slow
def test_nobody_reads_the_output(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "local_runner.py", "--help-all"]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.slow
def test_every_digit_is_written_whole_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(image: Image.Image, path: str, *_: object) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sample = tmp_path / "sample"
    with monkeypatch.context() as full:
        full.setattr(Image.Image, "save", save)
        with pytest.raises(OSError, match="space"):
            write_digits(str(sample))
    assert write_digits(str(sample)) == 1797
    files = sorted(path for path in sample.rglob("*") if path.is_file())
    assert len(files) == 1797
    assert all(path.read_bytes() != b"half" for path in files)
    assert {path.parent.name for path in files} == set("0123456789")
    times = [path.stat().st_mtime_ns for path in files]
    write_digits(str(sample))
    assert [path.stat().st_mtime_ns for path in files] == times
