"""The steps of the pipeline: one row each, from which every other table of steps is derived.

To add a step: write its component, name it in `COMPONENTS` of `components/__init__.py`, add a row
here, and wire it in `pipeline.py`, which takes its ids from the rows.
"""

from dataclasses import dataclass

# This package and `components` lie in the same folder.
_COMPONENTS = f"{__package__.removesuffix('pipeline_def')}components"

DATA = "data"
MANIFEST = "ingest.manifest"
CORRECTIONS = "ingest.corrections"
WEIGHTS = "model.weights_file"
PREDICT_FOLDER = "predict.folder"
STORAGE = "kubeflow.storage"


@dataclass(frozen=True)
class PipelineStep:
    """One row of the table."""

    id: str
    component: str
    """Class, as `components` exports it."""
    modules: tuple[str, ...]
    """Modules of `components` that the component names: lookup, executor, and functions by dotted
    path."""
    needs: str = ""
    """Option without which a run has no such step."""
    opens: tuple[str, ...] = ()
    """Options that name places outside the pipeline's artifacts which the step or its lookup opens:
    STORAGE holds pushed models, listings and statistics of earlier runs."""

    @property
    def code(self) -> tuple[str, ...]:
        """Dotted paths of `modules`, here and in the wheel."""
        return tuple(f"{_COMPONENTS}.{name}" for name in self.modules)


EXAMPLE_GEN = PipelineStep(
    "ImageExampleGen",
    "ImageExampleGen",
    modules=("ingest.lookup", "ingest.executor"),
    opens=(DATA, MANIFEST, CORRECTIONS, STORAGE),
)
STATISTICS_GEN = PipelineStep(
    "StatisticsGen", "ImageStatisticsGen", modules=("validation.statistics_gen",)
)
SCHEMA_GEN = PipelineStep("SchemaGen", "ImageSchemaGen", modules=("validation.schema_gen",))
EXAMPLE_VALIDATOR = PipelineStep(
    "ExampleValidator",
    "ImageValidator",
    modules=("validation.lookup", "validation.validator"),
    opens=(STORAGE,),
)
ANOMALY_GATE = PipelineStep(
    "AnomalyGate", "AnomalyGate", modules=("validation.gate",), opens=(STORAGE,)
)
TRANSFORM = PipelineStep("Transform", "ImageTransform", modules=("transform.executor",))
TUNER = PipelineStep(
    "Tuner",
    "ImageTuner",
    modules=("trainer.networks.weights_file", "tuner.executor"),
    needs="training.minutes",
    opens=(WEIGHTS,),
)
TRAINER = PipelineStep(
    "Trainer",
    "ImageTrainer",
    modules=("trainer.networks.weights_file", "trainer.component", "trainer.run_fn"),
    opens=(WEIGHTS,),
)
BASELINE_FINDER = PipelineStep(
    "BaselineFinder",
    "BaselineFinder",
    modules=("evaluation.baseline_lookup", "evaluation.baseline"),
    opens=(STORAGE,),
)
EVALUATOR = PipelineStep("Evaluator", "ImageEvaluator", modules=("evaluation.executor",))
REPORT = PipelineStep(
    "ImageReport",
    "ImageReport",
    modules=("report.component", "trainer.input.augment"),
    opens=(DATA,),  # The rejected images.
)
PUSHER = PipelineStep("Pusher", "ImagePusher", modules=("push.executor",), opens=(STORAGE,))
PREDICTOR = PipelineStep(
    "ImagePredictor",
    "ImagePredictor",
    modules=("predict.files", "predict.executor"),
    needs=PREDICT_FOLDER,
    opens=(PREDICT_FOLDER,),
)

STEPS = {row.id: row for row in tuple(globals().values()) if isinstance(row, PipelineStep)}
"""Id → row, in the order of a run."""
