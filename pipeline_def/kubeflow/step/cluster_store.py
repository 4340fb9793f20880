"""The object store that Kubeflow Pipelines is told to use, for steps without input artifacts.

KFP notes the address with every artifact, but a step that reads images has none yet. Source of the
format: `backend/src/v2/config` (`FromConfigMap`, `S3ProviderConfig`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import yaml

from components.contract.errors import ServiceError
from pipeline_def.kubeflow.workers.cluster import Cluster

CONFIG_MAP = "kfp-launcher"
"""Kubernetes' object in the namespace of a run; there is none where all is at its default."""

_DEFAULT_ROOT = "minio://mlpipeline/v2/artifacts"


def configured_endpoint() -> str | None:
    """Return the URL of the store that is configured in the pod's namespace.

    None where nothing is configured, this is no pod, or its account may not read it.
    """
    try:
        return endpoint_of(Cluster.of_pod().config_map(CONFIG_MAP))
    except ServiceError:
        return None


def endpoint_of(config: Mapping[str, str]) -> str | None:
    """Return the URL of the store that holds KFP's pipeline root.

    Args:
        config: data of the config map: `defaultPipelineRoot`, a URL whose query may name the
            endpoint, and `providers`, YAML.
    """
    try:
        root = urlsplit(config.get("defaultPipelineRoot") or _DEFAULT_ROOT)
    except ValueError:  # Of brackets that are no address of IPv6.
        return None
    named: dict[str, Any] = {name: values[0] for name, values in parse_qs(root.query).items()}
    if "endpoint" in named:
        return store_url(named)
    try:
        providers = yaml.safe_load(config.get("providers") or "") or {}
        return store_url(_settings(providers.get(root.scheme) or {}, root))
    # YAML's own parsers of numbers and dates raise ValueError.
    except (yaml.YAMLError, AttributeError, ValueError, TypeError, RecursionError):
        return None


def _settings(provider: Mapping[str, Any], root: SplitResult) -> dict[str, Any]:
    """Return what applies to a bucket: the default, and over it the first override that fits."""
    prefix = f"{root.path.strip('/')}/"
    chosen = (
        one
        for one in provider.get("overrides") or []
        if one.get("bucketName") == root.netloc and prefix.startswith(one.get("keyPrefix") or "")
    )
    return {**(provider.get("default") or {}), **next(chosen, {})}


def store_url(settings: object) -> str | None:
    """Return the URL of a store from KFP's settings `endpoint` and `disableSSL`, if it has any."""
    if not isinstance(settings, Mapping):
        return None
    endpoint = str(settings.get("endpoint") or "")
    if not endpoint:
        return None
    plain = str(settings.get("disableSSL", "")).lower() == "true"
    return endpoint if "://" in endpoint else f"http{'' if plain else 's'}://{endpoint}"
