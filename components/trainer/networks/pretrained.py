"""ImageNet's weights: found on this machine, downloaded, or carried here in a file.

Keras downloads them without a time limit. Here a run waits a few seconds at most, and a proxy that
does not answer cannot stop it. A file is checked by the checksum that Keras publishes.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import math
import os
import re
import shutil
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from components.contract.errors import ModelError
from components.trainer.config.model import APPLICATIONS
from components.trainer.networks.weights_file import count_weights

_SERVER = "https://storage.googleapis.com/tensorflow/keras-applications/"
_CHUNK_BYTES = 2**16
# A file has its weights in float32, and names of layers.
_MOST_BYTES_PER_WEIGHT = 6
_STORED = re.compile(r"(\w+)-([0-9a-f]{16})\.h5")


class Release(NamedTuple):
    """The file of a network's weights without its layer of classes."""

    path: str
    """On Keras's server."""
    checksum: str
    """MD5 or SHA-256 in hexadecimal digits; empty if Keras publishes none."""


_EFFICIENTNET, _CONVNEXT = "efficientnet_v2/efficientnetv2-", "convnext/convnext_"
_KERNELS = "_weights_tf_dim_ordering_tf_kernels_"

# Source: the modules of tf_keras.applications.
RELEASES = {
    name: Release(f"{path}.h5", checksum)
    for name, path, checksum in (
        ("mobilenet_v2", f"mobilenet_v2/mobilenet_v2{_KERNELS}1.0_224_no_top", ""),
        (
            "mobilenet_v3_small",
            "mobilenet_v3/weights_mobilenet_v3_small_224_1.0_float_no_top_v2",
            "d3e8ec802a04aa4fc771ee12a9a9b836",
        ),
        (
            "mobilenet_v3_large",
            "mobilenet_v3/weights_mobilenet_v3_large_224_1.0_float_no_top_v2",
            "07fb09a5933dd0c8eaafa16978110389",
        ),
        ("efficientnet_v2_b0", f"{_EFFICIENTNET}b0_notop", "893217f2bb855e2983157299931e43ff"),
        ("efficientnet_v2_b1", f"{_EFFICIENTNET}b1_notop", "0e80663031ca32d657f9caa404b6ec37"),
        ("efficientnet_v2_b2", f"{_EFFICIENTNET}b2_notop", "1dfe2e7a5d45b6632553a8961ea609eb"),
        ("efficientnet_v2_b3", f"{_EFFICIENTNET}b3_notop", "f6abf7b5849ac99a89b50dd3fd532856"),
        ("efficientnet_v2_s", f"{_EFFICIENTNET}s_notop", "af0682fb74e8c54910f2d4393339c070"),
        ("efficientnet_v2_m", f"{_EFFICIENTNET}m_notop", "1b8dc055df72dde80d614482840fe342"),
        ("efficientnet_v2_l", f"{_EFFICIENTNET}l_notop", "b0b66b5c863aef5b46e8608fe1711615"),
        ("resnet50", f"resnet/resnet50{_KERNELS}notop", "4d473c1dd8becc155b73f8504c6f6626"),
        ("resnet50_v2", f"resnet/resnet50v2{_KERNELS}notop", "fac2f116257151a9d068a22e544a4917"),
        (
            "convnext_tiny",
            f"{_CONVNEXT}tiny_notop",
            "d547c096cabd03329d7be5562c5e14798aa39ed24b474157cef5e85ab9e49ef1",
        ),
        (
            "convnext_small",
            f"{_CONVNEXT}small_notop",
            "6fc8009faa2f00c1c1dfce59feea9b0745eb260a7dd11bee65c8e20843da6eab",
        ),
        (
            "convnext_base",
            f"{_CONVNEXT}base_notop",
            "40a20c5548a5e9202f69735ecc06c990e6b7c9d2de39f0361e27baeb24cb7c45",
        ),
        (
            "convnext_large",
            f"{_CONVNEXT}large_notop",
            "96f02b6f0753d4f543261bc9d09bed650f24dd6bc02ddde3066135b63d23a1cd",
        ),
        ("densenet121", f"densenet/densenet121{_KERNELS}notop", "30ee3e1110167f948a6b9946edeeb738"),
    )
}


def weights_folder() -> Path:
    """Return the folder of this user's weights, `NAME-DIGEST.h5`, below `$XDG_DATA_HOME`."""
    # Relative paths are ignored, as the XDG Base Directory Specification says.
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    root = named if named.is_absolute() else Path("~/.local/share").expanduser()
    return root / "tfx-image-pipeline" / "weights"


def find(name: str) -> str | None:
    """Return the path of a network's weights on this machine, if there are any.

    It ends with a digest of the content, so that a path in a configuration stands for one content.
    Weights that Keras has downloaded earlier are copied.
    """
    for path in sorted(weights_folder().glob(f"{name}-*.h5")):
        stored = _STORED.fullmatch(path.name)
        if stored and _is_readable(path) and digest(path).startswith(stored[2]):
            return str(path)
    home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")
    cached = os.path.join(home, "models", os.path.basename(RELEASES[name].path))
    if _is_readable(cached) and not _find_mistake(cached, name):
        return _install(cached, name)
    return None


def use(path: str) -> tuple[str, str]:
    """Store a file from another machine, and return the network's name and the new path.

    Raises:
        ModelError: it is damaged, or has ImageNet's weights of no network.
    """
    if not _is_readable(path):
        raise ModelError(f"There is no file {path} that can be read.")
    stored = _STORED.fullmatch(os.path.basename(path))
    if stored and not digest(path).startswith(stored[2]):
        raise ModelError(f"{path} is damaged: its SHA-256 is not {stored[2]}…. Copy it again.")
    name = next((name for name in RELEASES if not _find_mistake(path, name)), None)
    if name is None:
        raise ModelError(
            f"{path} has ImageNet's weights of no network that Keras publishes: start from it with "
            "--model.weights."
        )
    return name, _install(path, name)


def download(name: str, *, silence: float, seconds: float = math.inf) -> str:
    """Download the weights of a network, and return their path.

    Args:
        name: of the network.
        silence: seconds to wait for the server's answer and for each part of it.
        seconds: limit of the whole download.

    Raises:
        ModelError: the weights cannot be downloaded, or are not those that Keras publishes.
    """
    answered, failures, stated = threading.Event(), list[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "weights.h5")

        def fetch() -> None:
            try:
                with urllib.request.urlopen(_SERVER + RELEASES[name].path, timeout=silence) as file:
                    answered.set()
                    stated.append(_stated_checksum(file.headers))
                    _save(file, target, name, end=time.monotonic() + seconds)
            # Proxies and networks fail in many ways.
            except Exception as error:
                reason = getattr(error, "reason", None) or error
                failures.append(getattr(reason, "strerror", None) or str(reason))
            answered.set()

        # A thread, as looking up an address has no time limit.
        thread = threading.Thread(target=fetch, daemon=True)
        thread.start()
        if answered.wait(silence):
            thread.join(None if seconds == math.inf else seconds + silence)
        if thread.is_alive():
            failures.append(f"the server did not answer within {silence:g} s")
        if not failures and (mistake := _find_mistake(target, name, stated[0])):
            failures.append(f"the server sent another file: {mistake}")
        if failures:
            raise ModelError(
                f"The ImageNet weights of {name} cannot be downloaded ({failures[0]}): run "
                f"`local_runner.py weights fetch {name}` on a machine that is connected."
            )
        return _install(target, name)


def digest(path: str | Path, kind: str = "sha256") -> str:
    """Return the digest of a file in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def _is_readable(path: str | Path) -> bool:
    return os.path.isfile(path) and os.access(path, os.R_OK)


def _stated_checksum(headers: Any) -> str:
    """Return the MD5 that Cloud Storage states for the file that it sends; "" without one."""
    for value in ",".join(headers.get_all("x-goog-hash", [])).split(","):
        kind, _, encoded = value.strip().partition("=")
        if kind == "md5":
            return base64.b64decode(encoded).hex()
    return ""


def _save(response: Any, target: str, name: str, *, end: float) -> None:
    """Write a response to a file, unless it is too large or takes too long."""
    room = APPLICATIONS[name].parameters * _MOST_BYTES_PER_WEIGHT + 2**20
    with open(target, "wb") as file:
        while part := response.read(_CHUNK_BYTES):
            file.write(part)
            if file.tell() > room:
                raise ValueError(f"the server sent more than {room:,} bytes")
            if time.monotonic() > end:
                raise TimeoutError("it takes too long")


def _find_mistake(path: str, name: str, stated: str = "") -> str:
    """Return what distinguishes a file from the published one; "" if nothing does.

    Without a published checksum, the number of weights must be right, and the MD5 if it is stated.
    """
    wanted = RELEASES[name].checksum or stated
    if wanted:
        found = digest(path, "md5" if len(wanted) == 32 else "sha256")
        if found != wanted:
            return f"its checksum is {found}, not {wanted}"
    if RELEASES[name].checksum:
        return ""
    try:
        count, expected = count_weights(path), APPLICATIONS[name].parameters
    except ModelError:
        return "it is not a weights file"
    return "" if count == expected else f"it has {count:,} weights, not {expected:,}"


def _install(source: str, name: str) -> str:
    """Copy a checked file to the folder of weights; return its path there."""
    target = weights_folder() / f"{name}-{digest(source)[:16]}.h5"
    if target.exists() and digest(target) == digest(source):
        return str(target)
    copy = f"{target}.{os.getpid()}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
        os.replace(copy, target)
    except OSError as error:
        raise ModelError(
            f"Cannot write {target} ({error.strerror}): set XDG_DATA_HOME to another folder."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            os.remove(copy)
    return str(target)
