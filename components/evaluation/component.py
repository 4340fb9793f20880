"""ImageEvaluator: TFX's Evaluator on the right split, which keeps what the models answered.

No useful model is below its floor: always answering with the most frequent class needs no model.
"""

from __future__ import annotations

import tensorflow_model_analysis as tfma
from tfx import types
from tfx.components.evaluator import component
from tfx.dsl.components.base import executor_spec

from components.contract.configuration import to_json
from components.evaluation import hooks as evaluation_hooks
from components.evaluation.config import EvaluationConfig
from components.evaluation.executor import CONFIG_KEY, Executor


class ImageEvaluator(component.Evaluator):
    """TFX's Evaluator with a baseline that may be missing and the split chosen at run time.

    The evaluation has, beside TFMA's files, `prediction_file.PREDICTIONS_FILE`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        *,
        examples: types.BaseChannel,
        model: types.BaseChannel,
        baseline_model: types.BaseChannel,
        config: EvaluationConfig,
    ) -> None:
        """Take ImageExampleGen's examples, Trainer's model and BaselineFinder's."""
        super().__init__(
            examples=examples,
            model=model,
            baseline_model=baseline_model,
            # Without one TFX takes the model for an Estimator; ours is made by the executor.
            eval_config=tfma.EvalConfig(),
            module_path=evaluation_hooks.__name__,
        )
        self.exec_properties[CONFIG_KEY] = to_json(config)
