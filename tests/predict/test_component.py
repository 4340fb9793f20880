"""ImagePredictor with Beam, on a model that tells colours apart."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tfx import types
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import standard_artifacts

from components.contract.configuration import to_json
from components.contract.tfx_classes import ImagePredictions
from components.images.options import FileOptions
from components.predict.component import Driver
from components.predict.executor import Executor
from components.predict.files import FOUND_KEY, PredictConfig
from tests.nodes import IN_MEMORY, TWO_WORKERS
from tests.pictures import write_folder
from tests.predict.test_flow import write_odd_folder
from tests.predict.test_served_model import save

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> types.Artifact:
    artifact = standard_artifacts.Model()
    artifact.uri = str(tmp_path_factory.mktemp("model"))
    save(Path(artifact.uri) / "Format-Serving")
    return artifact


def ask(
    model: types.Artifact, folder: Path, target: Path, beam_args: Any, *, blessed: bool = True
) -> types.Artifact:
    blessing, predictions = standard_artifacts.ModelBlessing(), ImagePredictions()
    blessing.set_int_custom_property("blessed", int(blessed))
    predictions.uri = str(target)
    Executor(BaseBeamExecutor.Context(beam_pipeline_args=list(beam_args))).Do(
        {"model": [model], "model_blessing": [blessing]},
        {"predictions": [predictions]},
        {
            "folder": str(folder),
            "config": to_json(PredictConfig()),
            "options": to_json(FileOptions()),
        },
    )
    return predictions


@pytest.mark.parametrize("beam_args", [IN_MEMORY, TWO_WORKERS], ids=["one worker", "two workers"])
def test_every_file_of_a_folder_in_its_order(
    model: types.Artifact, beam_args: Any, tmp_path: Path
) -> None:
    folder = write_odd_folder(write_folder(tmp_path / "images", each=15))
    target = tmp_path / "predictions"
    target.mkdir()
    (target / "predictions-00007-of-00008.parquet").write_bytes(b"of an earlier attempt")
    predictions = ask(model, folder, target, beam_args)
    assert predictions.get_int_custom_property("predicted") == 1
    summary = json.loads((target / "summary.json").read_text())
    assert summary == {"files": 61, "answered": 56, "refused": 4, "skipped": 1}
    tables = sorted(target.glob("*.parquet"))
    assert [table.name for table in tables] == [
        f"predictions-{number:05d}-of-{len(tables):05d}.parquet" for number in range(len(tables))
    ]
    assert {path.name for path in target.iterdir()} == {t.name for t in tables} | {"summary.json"}
    rows = [row for table in tables for row in pq.read_table(table).to_pylist()]
    assert len(rows) == summary["files"]
    # But for the one whose name is spelt out.
    names = [row["file"] for row in rows if "\\" not in row["file"]]
    assert names == sorted(names)
    colours = [row for row in rows if row["file"].split("/")[-2] in ("red", "green", "blue")]
    assert len(colours) == 45
    assert all(row["label"] == row["file"].split("/")[-2] for row in colours)


def test_a_model_that_is_not_blessed_is_not_asked(model: types.Artifact, tmp_path: Path) -> None:
    predictions = ask(model, tmp_path / "nowhere", tmp_path / "none", IN_MEMORY, blessed=False)
    assert predictions.get_int_custom_property("predicted") == 0
    assert not (tmp_path / "none").exists()


def test_another_file_is_no_hit_of_the_cache(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=2)
    before = Driver.look_up({}, {"folder": str(folder)})
    assert Driver.look_up({}, {"folder": str(folder)}) == before
    (folder / "red" / "000.png").write_bytes(b"changed")
    assert Driver.look_up({}, {"folder": str(folder)})[FOUND_KEY] != before[FOUND_KEY]
