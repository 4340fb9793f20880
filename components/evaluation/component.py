"""ImageEvaluator: TFX's Evaluator with faster counting, kept predictions and a verdict.

It never blesses a model that is not above the majority-class accuracy.
"""

from tensorflow_model_analysis.proto import config_pb2
from tfx import types
from tfx.components.evaluator import component
from tfx.dsl.components.base import executor_spec

from components.contract.configuration import to_json
from components.evaluation.config import EvaluationConfig
from components.evaluation.executor import CONFIG_KEY, MAX_DROP_KEY, Executor


class ImageEvaluator(component.Evaluator):
    """TFX's Evaluator with an optional baseline and a split chosen at run time.

    It writes TFMA's files, and the predictions in `prediction_file.PREDICTIONS_FILE`.

    Example:
        >>> from components import ImageEvaluator, ImageExampleGen
        >>> from tfx.dsl.components.common.importer import Importer
        >>> from tfx.types.standard_artifacts import Model
        >>> example_gen = ImageExampleGen(folder="photos")
        >>> model = Importer(source_uri="trained/1", artifact_type=Model)
        >>> evaluator = ImageEvaluator(
        ...     examples=example_gen.outputs["examples"], model=model.outputs["result"]
        ... )
        >>> sorted(evaluator.outputs)
        ['blessing', 'evaluation']
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        *,
        examples: types.BaseChannel,
        model: types.BaseChannel,
        baseline_model: types.BaseChannel | None = None,
        config: EvaluationConfig | None = None,
        max_format_drop: float = 0.01,
    ) -> None:
        """Evaluate a model on the split `test` if there is one, else on `eval`.

        Args:
            examples: output of ImageExampleGen.
            model: output of ImageTrainer.
            baseline_model: output of BaselineFinder: the current model, if there is one.
            config: conditions for blessing; None: `EvaluationConfig()`.
            max_format_drop: how far, 0 to 1, the accuracy of an export may lie below that of the
                model and still be pushed.
        """
        super().__init__(
            examples=examples,
            model=model,
            baseline_model=baseline_model,
            # Without one TFX expects an Estimator; the executor makes the real one.
            eval_config=config_pb2.EvalConfig(),
        )
        self.exec_properties[CONFIG_KEY] = to_json(config or EvaluationConfig())
        self.exec_properties[MAX_DROP_KEY] = max_format_drop
