"""Configuration of prediction, for `local_runner.py predict` and ImagePredictor."""

from components.contract.configuration import Positive, Text, configuration


@configuration("predict")
class PredictConfig:
    """How a model labels files."""

    folder: Text | None = None
    """Folder or URL whose images the model labels at the end of a run if it is blessed. Unset: the
    pipeline has no such step. `local_runner.py predict` takes files as arguments."""

    top: Positive = 3
    """Labels per image, the most probable first."""
