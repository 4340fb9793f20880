"""The steps of the pipeline: one row each, from which every other table of steps is derived.

To add a step: write its component, name it in `COMPONENTS` of `components/__init__.py`, add a row
here, and wire it in `pipeline.py`, which takes its ids from the rows.
"""

from dataclasses import dataclass

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
    code: tuple[str, ...]
    """Modules that the component names: lookup, executor, and functions by dotted path."""
    settings: tuple[str, ...] = ()
    """Configuration sections that decide what the step does."""
    needs: str = ""
    """Option without which a run has no such step."""
    opens: tuple[str, ...] = ()
    """Options that name places outside the pipeline's artifacts which the step or its lookup opens:
    STORAGE holds pushed models, listings and statistics of earlier runs."""


EXAMPLE_GEN = PipelineStep(
    id="ImageExampleGen",
    component="ImageExampleGen",
    code=("components.ingest.lookup", "components.ingest.executor"),
    settings=("data", "ingest"),
    opens=(DATA, MANIFEST, CORRECTIONS, STORAGE),
)
STATISTICS_GEN = PipelineStep(
    id="StatisticsGen",
    component="ImageStatisticsGen",
    code=("components.validation.statistics_gen",),
)
SCHEMA_GEN = PipelineStep(
    id="SchemaGen",
    component="ImageSchemaGen",
    code=("components.validation.schema_gen",),
    settings=("validation",),
)
EXAMPLE_VALIDATOR = PipelineStep(
    id="ExampleValidator",
    component="ImageValidator",
    code=("components.validation.lookup", "components.validation.validator"),
    settings=("validation",),
    opens=(STORAGE,),
)
ANOMALY_GATE = PipelineStep(
    id="AnomalyGate",
    component="AnomalyGate",
    code=("components.validation.gate",),
    settings=("validation",),
    opens=(STORAGE,),
)
TRANSFORM = PipelineStep(
    id="Transform",
    component="ImageTransform",
    code=("components.transform.executor",),
    settings=("transform",),
)
_TRAINING = ("transform", "input", "augmentation", "model", "training", "transfer")
TUNER = PipelineStep(
    id="Tuner",
    component="ImageTuner",
    code=("components.trainer.networks.weights_file", "components.tuner.executor"),
    settings=_TRAINING,
    needs="training.minutes",
    opens=(WEIGHTS,),
)
TRAINER = PipelineStep(
    id="Trainer",
    component="ImageTrainer",
    code=(
        *("components.trainer.networks.weights_file", "components.trainer.executor"),
        "components.trainer.run_fn",
    ),
    settings=_TRAINING,
    opens=(WEIGHTS,),
)
BASELINE_FINDER = PipelineStep(
    id="BaselineFinder",
    component="BaselineFinder",
    code=("components.evaluation.baseline_lookup", "components.evaluation.baseline"),
    opens=(STORAGE,),
)
EVALUATOR = PipelineStep(
    id="Evaluator",
    component="ImageEvaluator",
    code=("components.evaluation.executor",),
    settings=("evaluation",),
)
REPORT = PipelineStep(
    id="ImageReport",
    component="ImageReport",
    code=("components.report.executor", "components.trainer.input.preview"),
    opens=(DATA,),  # The rejected images.
)
PUSHER = PipelineStep(
    id="Pusher",
    component="ImagePusher",
    code=("components.push.executor",),
    opens=(STORAGE,),
)
PREDICTOR = PipelineStep(
    id="ImagePredictor",
    component="ImagePredictor",
    code=("components.predict.files", "components.predict.executor"),
    settings=("predict",),
    needs=PREDICT_FOLDER,
    opens=(PREDICT_FOLDER,),
)

STEPS = {row.id: row for row in tuple(globals().values()) if isinstance(row, PipelineStep)}
"""Id → row, in the order of a run."""
