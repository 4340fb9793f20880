"""Compares scores that tell images of a class that a network has never seen.

    uv run -m benchmarks.unknowns
    uv run -m benchmarks.unknowns --data DIR --option training.epochs=20 --option model.name=cnn

For each choice of two classes, a network is trained without them, as Trainer trains. The AUROC is
that of the other images of the eval split against all images of the two classes; each score is
compared with the highest probability in the same networks. The next table has the fraction of
noise, of blank and of inverted images called unknown, at 5% false alarms; the last one has the time
of an answer of the exported model with and without the score.
"""

import argparse
import dataclasses
import glob
import json
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras
from scipy.special import logsumexp, softmax
from sklearn.metrics import roc_auc_score

from benchmarks.measuring import options
from benchmarks.measuring.process import Progress, run_pipeline
from benchmarks.measuring.results import Figures, Spread, write_results
from components.contract.configuration import from_dict
from components.contract.model_files import TRAINING_FILE
from pipeline_def.config.training import TrainerConfig
from pipeline_def.data.split_statistics import patch_covariance, pixel_moments
from pipeline_def.local.preparation import write_digits
from pipeline_def.model.networks import build_model
from pipeline_def.serving.known import KnownScore, features_or_logits
from pipeline_def.serving.signatures import Classifier, make_signatures
from pipeline_def.serving.transform_graph import TransformGraph
from pipeline_def.training.known import learn_score, leave_out, select
from pipeline_def.training.phases import Training
from pipeline_def.training.training_input import TrainingInput

_MODULE = "benchmarks.unknowns"
_LEFT_OUT, _NEIGHBORS = 2, 10
_BASE, _CHOSEN = "highest probability", "energy + relative distance + unusual residual"
_FALSE_ALARMS, _STRANGE = 0.05, 100

Array = npt.NDArray[Any]
Areas = dict[str, float]
Figure = dict[str, Any]


def main() -> int:
    """Measure what the command line asks for; print the tables."""
    parser = _parser()
    arguments = parser.parse_args()
    return options.run(parser, lambda: _measure(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=10)
    parser.add_argument("--data", help="folder of images; default: the built-in digits")
    parser.add_argument("--option", action="append", default=[], help="of the run: NAME=VALUE")
    return parser


def _measure(arguments: argparse.Namespace) -> None:
    figures: dict[str, list[Figure]] = {"areas": [], "strange": []}
    progress = Progress(arguments.repeats)
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        source = arguments.data or f"{work}/digits"
        if not arguments.data:
            write_digits(source)
        words = [f"--{option}" for option in arguments.option]
        run_pipeline(["--data", source, "--output", f"{work}/out", *words])
        trainer = Trainer(f"{work}/out")
        for number in range(arguments.repeats):
            areas, strange = trainer.compare(number)
            figures["areas"].append(areas)
            figures["strange"].append(strange)
            progress.report(f"choice {number + 1}")
            tables = [_tabulate(figures["areas"]), _tabulate_strange(figures["strange"])]
            write_results(_MODULE, tables, figures, arguments.json)
        seconds = trainer.time_answers()
    tables.append(_tabulate_seconds(seconds))
    write_results(_MODULE, tables, figures, arguments.json)
    for table in tables:
        table.show()


class Trainer:
    """Trains networks on the transformed images of a run."""

    def __init__(self, output: str) -> None:
        """Read what the run in the folder `output` has left."""
        [facts] = glob.glob(f"{output}/artifacts/Trainer/model_run/*/{TRAINING_FILE}")
        [graph] = glob.glob(f"{output}/artifacts/Transform/transform_graph/*")
        [examples] = glob.glob(f"{output}/artifacts/Transform/transformed_examples/*")
        self._graph = TransformGraph(graph)
        arguments = SimpleNamespace(
            train_files=[f"{examples}/Split-train/*"], eval_files=[f"{examples}/Split-eval/*"]
        )
        self._data = TrainingInput.find(
            arguments,
            from_dict(TrainerConfig, json.loads(Path(facts).read_text())["config"]),
            self._graph.transformed_spec,
            replicas=1,
        )
        self._mean, self._variance = pixel_moments(self._data.read_in_order(self._data.train))

    def compare(self, number: int) -> tuple[Areas, dict[str, Areas]]:
        """Train without two classes; return score → AUROC, and score → kind → fraction unknown."""
        classes = len(self._graph.labels)
        group = np.random.default_rng(number).choice(classes, _LEFT_OUT, replace=False)
        data = leave_out(self._data, 1, group)
        model = self._train(data, number)
        measure, fitted = self._make_measure(model), learn_score(model, data)
        train = _predict(measure, data.read_in_order(data.train))
        parts = [
            _predict(measure, data.read_in_order(select(of, group, without=without)))
            for of, without in (
                (self._data.evaluation, True),
                (self._data.evaluation, False),
                (self._data.train, False),
            )
        ]
        usual = len(parts[0][2])
        strange = draw_strange(next(iter(data.read_in_order(self._data.evaluation)))[0].numpy())
        parts += [_predict(measure, [(of, tf.zeros(len(of)))]) for of in strange.values()]
        logits, features, _ = (np.concatenate(column) for column in zip(*parts, strict=True))
        scores = score_all(fitted, train, logits, features, usual=usual)
        rest = np.cumsum([len(of) for _, _, of in parts])[2:-1]
        areas, found = {}, {}
        for name, of in scores.items():
            known, *others = np.split(of, rest)
            areas[name] = float(roc_auc_score(np.arange(len(known)) < usual, known))
            threshold = np.quantile(known[:usual], _FALSE_ALARMS, method="lower")
            found[name] = {
                kind: float((other < threshold).mean())
                for kind, other in zip(strange, others, strict=True)
            }
        return areas, found

    def _train(self, data: TrainingInput, seed: int) -> tf_keras.Model:
        config = data.config
        tf_keras.utils.set_random_seed(seed)
        model = build_model(
            config.model,
            size=config.transform.seen_size,
            classes=len(self._graph.labels),
            mean=self._mean,
            variance=self._variance,
            patches=self._find_patches() if config.model.name == "resnet9" else None,
            seed=seed,
        )
        lengths = Training.full_lengths(config)
        with tempfile.TemporaryDirectory() as folder:
            Training(model, data, f"{folder}/logs", f"{folder}/kept", lengths=lengths).run()
        return model

    def _find_patches(self) -> Any:
        return patch_covariance(self._data.read_in_order(self._data.train))

    @staticmethod
    def _make_measure(model: tf_keras.Model) -> Any:
        @tf.function(input_signature=[tf.TensorSpec(model.input_shape, tf.uint8)], autograph=False)
        def measure(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            logits = model(images, training=False)
            return logits, features_or_logits(logits)

        return measure

    def time_answers(self, repeats: int = 2000) -> dict[str, list[float]]:
        """Return milliseconds of each answer to one file, without and with the score, in turn."""
        data = leave_out(self._data, 1, np.empty(0, np.int64))
        images = next(iter(data.read_in_order(data.train)))[0][:1]
        model = self._train(dataclasses.replace(data, config=_shorten(data.config)), 0)
        known = dataclasses.replace(learn_score(model, data), threshold=0.0)
        kinds = {"without": Classifier(model), "with": Classifier(model, known=known)}
        transform, _tracked = self._graph.load()
        answers = {
            name: make_signatures(
                of,
                transform,
                labels=self._graph.labels,
                raw_spec=self._graph.raw_spec,
                config=data.config.transform,
            )["serving_default"]
            for name, of in kinds.items()
        }
        file = tf.io.encode_png(images[0])[tf.newaxis]
        seconds: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(repeats):
            for name, answer in answers.items():
                started = time.perf_counter()
                answer(file)["probabilities"].numpy()
                seconds[name].append(1000 * (time.perf_counter() - started))
        # The first ones trace the graph.
        return {name: of[repeats // 10 :] for name, of in seconds.items()}


def _shorten(config: TrainerConfig) -> TrainerConfig:
    """Return a training of one epoch, after which an answer takes as long as after all."""
    return dataclasses.replace(config, training=dataclasses.replace(config.training, epochs=1))


def draw_strange(images: Array) -> dict[str, Array]:
    """Return images of no class by kind, uint8, in the shape of `images`."""
    shape = (_STRANGE, *images.shape[1:])
    levels = np.linspace(0, 255, _STRANGE).astype(np.uint8)
    return {
        "noise": np.random.default_rng(0).integers(0, 256, shape, np.uint8),
        "blank": np.broadcast_to(levels[:, np.newaxis, np.newaxis, np.newaxis], shape),
        "inverted": 255 - images,
    }


def _predict(measure: Any, batches: Any) -> tuple[Array, Array, Array]:
    """Return logits, features and label ids."""
    rows = [(*(of.numpy() for of in measure(images)), ids.numpy()) for images, ids in batches]
    logits, features, ids = (np.concatenate(column) for column in zip(*rows, strict=True))
    return logits, features, ids


def score_all(
    known: KnownScore,
    train: tuple[Array, Array, Array],
    logits: Array,
    features: Array,
    *,
    usual: int,
) -> dict[str, Array]:
    """Return the scores of images by name, [images] each, higher for images that are known.

    Args:
        known: fitted on the training images.
        train: logits, features and label ids of the training images.
        logits: of the images, [images, classes].
        features: of the images, [images, features].
        usual: number of the first images, of classes that are known, which give the scale.
    """
    units, energy = _unit(features), logsumexp(logits, axis=1)
    relative = measure_distance(known, units)
    residual = -(((features - known.origin) @ known.outside) ** 2).sum(axis=1)
    parts = np.stack([energy, relative, residual], axis=1).astype(np.float64)
    fitted = known.standardize(parts[:usual])
    standard = (parts - fitted.mean) / fitted.deviation
    cosine = units @ _unit(train[1]).T
    return {
        _BASE: softmax(logits, axis=1).max(axis=1),
        "energy": energy,
        f"{_NEIGHBORS} nearest neighbors": np.sort(cosine, axis=1)[:, -_NEIGHBORS:].mean(axis=1),
        "relative Mahalanobis distance": relative,
        "residual": residual,
        "energy + relative distance": standard[:, :2].sum(axis=1),
        "energy + relative distance + residual": standard.sum(axis=1),
        _CHOSEN: fitted.add(parts),
    }


def _unit(features: Array) -> Array:
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    unit: Array = features / np.maximum(lengths, 1e-12)
    return unit


def measure_distance(known: KnownScore, features: Array) -> Array:
    """Return the relative distance as `KnownScore.measure` does."""
    at = (features - known.center) @ known.projection
    distance: Array = (at**2 * (1 - known.shrinkage)).sum(axis=1)
    return distance - _measure_nearest(known, features)


def _measure_nearest(known: KnownScore, features: Array) -> Array:
    at = (features - known.center) @ known.projection
    nearest: Array = ((at[:, np.newaxis] - known.means) ** 2).sum(axis=2).min(axis=1)
    return nearest


def _tabulate(areas: list[Areas]) -> Figures:
    title = f"AUROC of {_LEFT_OUT} classes left out, {len(areas)} choices"
    table = Figures(title, ("score", "AUROC", "ahead of the highest probability"))
    for name in areas[0]:
        ahead = sum(of[name] > of[_BASE] for of in areas)
        values = Spread.of([of[name] for of in areas]).show(3)
        table.add(name, values, "" if name == _BASE else f"{ahead} of {len(areas)}")
    return table


def _tabulate_strange(found: list[dict[str, Areas]]) -> Figures:
    kinds = list(found[0][_BASE])
    title = f"Called unknown, at {_FALSE_ALARMS:.0%} false alarms"
    table = Figures(title, ("score", *kinds))
    for name in (_BASE, _CHOSEN):
        shares = [Spread.of([of[name][kind] for of in found]).show(2) for kind in kinds]
        table.add(name, *shares)
    return table


def _tabulate_seconds(seconds: dict[str, list[float]]) -> Figures:
    table = Figures("An answer to one image", ("score", "ms, median", "times"))
    for name, of in seconds.items():
        # Answers in a row share what else the machine does.
        times = np.divide(of, seconds["without"])
        table.add(name, f"{np.median(of):.3f}", f"{np.median(times):.3f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
