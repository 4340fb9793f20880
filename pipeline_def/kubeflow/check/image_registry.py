"""Asks a registry whether it has an image, as a node of the cluster will: over its HTTP API.

Source: the OCI distribution specification, and Docker's for tokens and names of Docker Hub.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlencode

from pipeline_def.kubeflow.check.finding import Finding
from pipeline_def.kubeflow.service_errors import one_line

_DOCKER_HUB = "registry-1.docker.io"
_KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_LIMIT = 15.0
"""Seconds for a request."""


def split_name(image: str) -> tuple[str, str, str]:
    """Return registry, repository, and tag or digest of an image.

    Example:
        >>> split_name("python")
        ('registry-1.docker.io', 'library/python', 'latest')
        >>> split_name("localhost:5000/team/images:1")
        ('localhost:5000', 'team/images', '1')
    """
    name, _, digest = image.partition("@")
    first, slash, rest = name.partition("/")
    has_host = slash and (first == "localhost" or "." in first or ":" in first)
    host, path = (first, rest) if has_host else (_DOCKER_HUB, name)
    path, colon, tag = path.partition(":")
    if host in ("docker.io", "index.docker.io"):
        host = _DOCKER_HUB
    if host == _DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    return host, path, digest or (tag if colon else "latest")


def find_image(image: str) -> Finding:
    """Say whether an image is in its registry."""
    import urllib3

    host, path, reference = split_name(image)
    plain = re.fullmatch(r"(localhost|127\.0\.0\.1)(:\d+)?", host)
    url = f"http{'' if plain else 's'}://{host}/v2/{path}/manifests/{reference}"
    with urllib3.PoolManager(timeout=_LIMIT, retries=False) as pool:
        try:
            status = _ask(pool, url)
        except (urllib3.exceptions.HTTPError, ValueError, KeyError) as error:
            return Finding(
                "unknown", f"image {image}: no answer from {host}: {one_line(str(error))}"
            )
    if status == 200:
        return Finding("ok", f"image {image}")
    if status == 404:
        return Finding(
            "wrong", f"There is no image {image} in {host}: push it or correct its name."
        )
    # Registries say so of what does not exist as well as of what is private.
    why = "it asks for credentials" if status in (401, 403) else f"it answers {status}"
    return Finding("unknown", f"image {image}: {host} does not tell: {why}")


def _ask(pool: Any, url: str) -> int:
    """Return the status of an image's manifest, asked for without credentials."""
    headers = {"Accept": ", ".join(_KINDS)}
    answer = pool.request("HEAD", url, headers=headers)
    challenge = answer.headers.get("WWW-Authenticate", "")
    if answer.status == 401 and challenge.startswith("Bearer "):
        asked = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        realm = asked.pop("realm")
        given = pool.request("GET", f"{realm}?{urlencode(asked)}")
        if given.status != 200:
            return int(given.status)
        token = json.loads(given.data)
        headers["Authorization"] = f"Bearer {token.get('token') or token['access_token']}"
        answer = pool.request("HEAD", url, headers=headers)
    return int(answer.status)
