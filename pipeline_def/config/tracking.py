"""The section `tracking`: the MLflow server that a run reports to."""

from components.contract.configuration import Text, configuration, require
from pipeline_def.service_errors import is_http_url

TOKEN_VARIABLE = "MLFLOW_TRACKING_TOKEN"
"""Environment variable with a token, or with USER:PASSWORD; it may be missing."""


@configuration("tracking")
class TrackingConfig:
    """The server that a local run reports to when it ends; an outage costs 10 s, not the run."""

    mlflow: Text | None = None
    """URL of an MLflow server, such as http://localhost:5000. It receives parameters, metrics per
    epoch and of the evaluation, the report and the model card. Its experiment is named after the
    pipeline, `name`. A token, or USER:PASSWORD, is in the environment variable
    MLFLOW_TRACKING_TOKEN."""

    def __post_init__(self) -> None:
        """Check the URL without quoting what may be a secret."""
        url = self.mlflow or "http://unset"
        require(
            not {"@", "?", "#"} & set(url),
            "tracking.mlflow must not contain a user name, a password or a query: set the "
            f"environment variable {TOKEN_VARIABLE}.",
        )
        require(
            is_http_url(url),
            f"tracking.mlflow is {url!r}: it must be a URL such as http://localhost:5000.",
        )
