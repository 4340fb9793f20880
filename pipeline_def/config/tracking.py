"""The section `tracking`: the services that a run reports to."""

import re
from dataclasses import field
from urllib.parse import urlsplit

from components.contract.configuration import Text, configuration, require

TOKEN_VARIABLES = {
    "mlflow": "MLFLOW_TRACKING_TOKEN",
    "openlineage": "OPENLINEAGE_API_KEY",
    "model_registry": "MODEL_REGISTRY_TOKEN",
}
"""Service → environment variable with its token, unless `tracking.tokens` names another."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@configuration("tracking")
class TrackingConfig:
    """Services that a run reports to when it ends; an outage neither fails nor delays it."""

    mlflow: Text | None = None
    """URL of an MLflow server, such as http://localhost:5000. It receives parameters, metrics per
    epoch and of the evaluation, the report, the model card and, if it was pushed, the model."""

    experiment: Text | None = None
    """Experiment of MLflow; it is created if it does not exist. Unset: the pipeline's name."""

    openlineage: Text | None = None
    """URL that receives OpenLineage events, such as that of Marquez, http://localhost:5000: each
    step with its inputs and outputs. Without a path, `/api/v1/lineage` is added."""

    model_registry: Text | None = None
    """URL of Kubeflow's model registry (Hub), such as http://localhost:8080. It receives each
    pushed model."""

    tokens: dict[Text, Text] = field(default_factory=dict)
    """Service, `mlflow`, `openlineage` or `model_registry` → environment variable with its token,
    or with USER:PASSWORD. Unset: MLFLOW_TRACKING_TOKEN, OPENLINEAGE_API_KEY and
    MODEL_REGISTRY_TOKEN, which may be missing."""

    def __post_init__(self) -> None:
        """Check URLs and names of variables, without quoting what may be a secret."""
        for name in self.urls():
            _check_url(f"tracking.{name}", getattr(self, name))
        for service, variable in self.tokens.items():
            require(
                service in TOKEN_VARIABLES,
                f"tracking.tokens has an unknown service: use {', '.join(TOKEN_VARIABLES)}.",
            )
            require(
                bool(_VARIABLE.fullmatch(variable)),
                f"tracking.tokens.{service} is not the name of an environment variable: it must "
                "not be the token itself.",
            )

    def urls(self) -> dict[str, str]:
        """Return service → its URL, for each service that is set."""
        return {name: url.rstrip("/") for name in TOKEN_VARIABLES if (url := getattr(self, name))}

    def variable(self, service: str) -> str:
        """Return the name of the environment variable with the token of a service."""
        return self.tokens.get(service, TOKEN_VARIABLES[service])


def _check_url(option: str, url: str) -> None:
    """Require a URL without a password; one with a password or a query is not quoted."""
    require(
        not {"@", "?", "#"} & set(url),
        f"{option} must not contain a user name, a password or a query: name the environment "
        "variable of its token in tracking.tokens.",
    )
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    require(bool(valid), f"{option} is {url!r}: it must be a URL such as http://localhost:5000.")
