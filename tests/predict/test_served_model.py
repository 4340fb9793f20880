"""SavedModels with and without the output `error`, and the command that asks them."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import local_runner
from components.contract.errors import ModelError
from components.images.options import FileOptions
from components.predict.model import RankingModel
from pipeline_def.config.config import Config
from pipeline_def.local.pushed_model import find_model, find_options
from pipeline_def.runs.record import Pushed
from tests.local.run_samples import configure, write_run
from tests.pictures import encode, picture, write_folder

SPEC = [tf.TensorSpec([None], tf.string, name="image_bytes")]


def save(folder: Path, *, with_error: bool = False) -> Path:
    """Save a model of three labels that tells red, green and blue images apart."""

    def mean(file: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_image(file, channels=3, expand_animations=False)
        return tf.reduce_mean(tf.cast(image, tf.float32), axis=[0, 1]) / 16

    def mean_of_any(file: tf.Tensor) -> tf.Tensor:
        known = tf.io.is_jpeg(file) | (tf.strings.substr(file, 1, 3) == "PNG")
        return tf.cond(known, lambda: mean(file), lambda: tf.zeros([3]))

    @tf.function(input_signature=SPEC, autograph=False)
    def serve(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        mean_of_file = mean_of_any if with_error else mean
        colours = tf.map_fn(
            mean_of_file, image_bytes, fn_output_signature=tf.TensorSpec([3], tf.float32)
        )
        labels = tf.constant(["red", "green", "blue"])
        answer = {
            "probabilities": tf.nn.softmax(colours),
            "labels": tf.tile(labels[tf.newaxis], [tf.shape(colours)[0], 1]),
        }
        known = tf.reduce_any(colours > 0, axis=1)
        return {**answer, "error": tf.where(known, "", "no image")} if with_error else answer

    tf.saved_model.save(tf.Module(), str(folder), signatures={"serving_default": serve})
    return folder


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder with two pushed models, one of them unfinished, and a third one."""
    folder = tmp_path_factory.mktemp("out")
    save(folder / "pushed" / "99")
    save(folder / "pushed" / "100", with_error=True)
    (folder / "pushed" / "101").mkdir()
    return folder


@pytest.mark.parametrize(("version", "reason"), [("99", "Unknown image"), ("100", "no image")])
def test_one_bad_image_does_not_fail_its_batch(output: Path, version: str, reason: str) -> None:
    model = RankingModel(str(output / "pushed" / version), top=2)
    colours = ("red", "green", "blue", "green", "red")
    images = [encode(picture(n, colour=colour), "PNG") for n, colour in enumerate(colours)]
    images[3] = b"no image"
    answers = model.predict(images)
    assert isinstance(answers[3], str)
    assert reason in answers[3]
    assert "{{" not in answers[3]
    rest = [answer for answer in answers if not isinstance(answer, str)]
    assert [answer.ranking[0][0] for answer in rest] == ["red", "green", "blue", "red"]
    for first, second in (answer.ranking for answer in rest):
        assert first[1] > second[1]


def test_models_of_others_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="Cannot load a SavedModel"):
        RankingModel(str(tmp_path), top=1)
    tf.saved_model.save(tf.Module(), str(tmp_path / "empty"))
    with pytest.raises(ModelError, match="does not take image files"):
        RankingModel(str(tmp_path / "empty"), top=1)


def test_the_model_that_a_person_means(output: Path, tmp_path: Path) -> None:
    pushed = output / "pushed"
    assert find_model(str(output), None) == str(pushed / "100")
    assert find_model(str(output), "99") == str(pushed / "99")
    for named in (f"{pushed}/99/", f"file://{pushed}/99"):
        assert find_model("elsewhere", named) == str(pushed / "99")
    for folder, wanted, sentence in (
        (output, "7", r"no version 7 in .*\. There are 100, 99\.$"),
        (output, "101", r"no version 101 in .*"),
        (tmp_path, None, r"There is no model in .*: run the pipeline"),
        (output, "nowhere", "nowhere is not a model"),
    ):
        with pytest.raises(ModelError, match=sentence):
            find_model(str(folder), wanted)


def test_images_are_read_as_the_run_that_pushed_the_model_read_them(output: Path) -> None:
    settings = configure(ingest={"shrink": 48, "max_image_mpixels": 2.0, "threads": 7})
    del settings["ingest"]["min_image_pixels"]
    pushed = Pushed("99", "/moved/since/pushed/99")
    write_run(output, 1, configuration=settings, pushed=pushed)
    config = Config(output=str(output))
    options = find_options(config, str(output / "pushed" / "99"))
    # As if the run were older than an option.
    assert options == FileOptions(shrink=48, max_image_mpixels=2.0)
    given = Config(output=str(output), given=["ingest.shrink"])
    assert find_options(given, str(output / "pushed" / "99")).shrink is None
    assert find_options(config, str(output / "pushed" / "101")) == FileOptions()


@pytest.mark.slow
def test_the_command(
    output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_folder(tmp_path / "images", each=8)
    (folder / "red" / "\x1b[31mcut\udcff.jpg").write_bytes(b"\xff\xd8\xff")
    argv = ["predict", "images/red", "images/blue/001.jpeg", "--output", str(output)]
    assert local_runner.main(argv) == 0
    printed = capsys.readouterr().out
    assert "10 files: 9 answered, 1 refused" in printed
    assert "red 8, blue 1" in printed
    assert r"images/red/\x1b[31mcut\udcff.jpg: " in printed
    assert "images/red/000.png" in printed
    assert local_runner.main([*argv, "--predict.top", "1"]) == 0
    assert "images/blue/001.jpeg" in capsys.readouterr().out
    more = ["--to", "t.csv", "--model=99", "--predict.top", "1"]
    assert local_runner.main([*argv, *more]) == 0
    assert f"Model        {output}/pushed/99" in capsys.readouterr().out
    head, *rows = (tmp_path / "t.csv").read_bytes().splitlines()
    assert head.startswith(b'"file","status","label","probability","known","known_score",')
    assert rows[-1].startswith(b'"images/blue/001.jpeg","answered","blue",')
    assert local_runner.main([*argv, *more]) == 0
    assert "Table        t.csv (replaced)" in capsys.readouterr().out
    to = ["--to", "missing/t.csv"]
    for words, said in (
        (["predict", "images/red/000.png", "--model"], "--model needs a value"),
        (["predict", "--output", "x"], "Name files or folders"),
        ([*argv, "--model", "99", "--unblessed"], "--model and --unblessed both choose"),
        ([*argv, *to], f"Cannot write missing/t.csv: there is no folder {tmp_path}/missing."),
    ):
        assert local_runner.main(words) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "none.jpg").write_bytes(b"")
    assert local_runner.main(["predict", "none.jpg", "--output", str(output)]) == 1
