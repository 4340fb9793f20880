"""The pipeline runs on a few images and pushes a model."""

import random
from pathlib import Path

from my_images.pipeline import create_pipeline
from PIL import Image
from tfx.orchestration.local.local_dag_runner import LocalDagRunner


def test_a_model_is_pushed_and_predicts(tmp_path: Path) -> None:
    dice = random.Random(1)
    for color in ("red", "green", "blue"):
        folder = tmp_path / "images" / color
        folder.mkdir(parents=True)
        for number in range(20):
            image = Image.new("RGB", (40, 40), color)
            image.putpixel((dice.randrange(40), number), (255, 255, 255))
            image.save(folder / f"{number}.png")
    LocalDagRunner().run(create_pipeline(str(tmp_path / "images"), str(tmp_path / "out")))
    [model] = (tmp_path / "out" / "pushed").iterdir()
    assert (model / "saved_model.pb").exists()
    predictions = tmp_path / "out" / "artifacts" / "BulkInferrer" / "inference_result"
    assert list(predictions.glob("*/prediction_logs-*"))
