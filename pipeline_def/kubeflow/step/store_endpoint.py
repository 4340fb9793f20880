"""The address of the cluster's object store, which Kubeflow Pipelines knows and a step must too.

KFP notes the address with every artifact. A step that reads images has no artifact yet, and reads
KFP's configuration instead (format: `backend/src/v2/config`, `FromConfigMap`, `S3ProviderConfig`).
"""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from components.contract.errors import ServiceError
from components.storage.object_store import SCHEMES
from pipeline_def.kubeflow.kubernetes_api import KubernetesClient
from pipeline_def.kubeflow.step.executor_io import artifacts_of
from pipeline_def.kubeflow.step_interface import DEFAULT_ROOT, STORE_KEYS, STORE_KEYS_FOLDER

_CONFIG_MAP = "kfp-launcher"  # It does not exist where everything has its default.


def choose_endpoint(executor_input: Mapping[str, Any]) -> None:
    """Set AWS_ENDPOINT_URL to the cluster's own store, unless the pod's environment names one.

    Its keys are set alike, where they are a volume.
    """
    if "AWS_ACCESS_KEY_ID" not in os.environ:
        for key, name in STORE_KEYS.items():
            if (file := Path(STORE_KEYS_FOLDER, key)).is_file():
                os.environ[name] = file.read_text(encoding="utf-8").strip()
    if {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} & os.environ.keys():
        return
    endpoint = noted_endpoint(executor_input)
    # The cluster may have closed the way to its API, or this is no pod: ask only if it matters.
    if endpoint is None and any(scheme in str(executor_input) for scheme in SCHEMES):
        with contextlib.suppress(ServiceError):
            endpoint = endpoint_of(KubernetesClient.of_pod().config_map(_CONFIG_MAP))
    if endpoint:
        os.environ["AWS_ENDPOINT_URL"] = endpoint


def noted_endpoint(executor_input: Mapping[str, Any]) -> str | None:
    """Return the URL of the store that KFP has noted with an artifact."""
    for artifact in artifacts_of(executor_input):
        note = json.loads(artifact.get("metadata", {}).get("store_session_info") or "{}")
        if url := _url(note.get("Params") or {}):
            return url
    return None


def endpoint_of(config: Mapping[str, str]) -> str | None:
    """Return the URL of the store that holds KFP's pipeline root.

    `defaultPipelineRoot` is a URL whose query may name the endpoint; `providers` is YAML.
    """
    try:
        root = urlsplit(config.get("defaultPipelineRoot") or DEFAULT_ROOT)
        named = {name: values[0] for name, values in parse_qs(root.query).items()}
        if "endpoint" in named:
            return _url(named)
        providers = yaml.safe_load(config.get("providers") or "") or {}
        return _url((providers.get(root.scheme) or {}).get("default") or {})
    # ValueError: a broken URL, or YAML's parsers of numbers and dates.
    except (yaml.YAMLError, AttributeError, ValueError, TypeError, RecursionError):
        return None


def _url(settings: Mapping[str, Any]) -> str | None:
    """Return the URL that KFP's settings `endpoint` and `disableSSL` stand for."""
    endpoint = str(settings.get("endpoint") or "")
    if not endpoint:
        return None
    plain = str(settings.get("disableSSL", "")).lower() == "true"
    return endpoint if "://" in endpoint else f"http{'' if plain else 's'}://{endpoint}"
