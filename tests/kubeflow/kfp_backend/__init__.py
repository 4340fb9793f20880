"""The API server of Kubeflow Pipelines, built from its source.

Only the Go toolchain and access to the Go module proxy and PyPI are needed.
"""

import atexit
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kubeflow.kfp_backend import messages

# The only release from 2.3.0 to 2.17.0 that the module proxy had in November 2026.
RELEASE = "2.14.3"

_MODULE = "github.com/kubeflow/pipelines"
_PLUGIN = "google.golang.org/protobuf/cmd/protoc-gen-go"
# Module, version, and lines for go.sum, taken from the tag: not every checksum database has them.
_SOURCE = (
    _MODULE,
    "v0.0.0-20250902140602-fc3214d4b4d3",
    """\
{0} {1} h1:EYFzVTUNy3iXMOtNIA8qaZNIq+u2PAJ+b92w9/yJG9I=
{0} {1}/go.mod h1:qTEyao6ONZRgIgx4smITF2Ll/fV+JL3WruknwJuoyQY=
""",
)
_API = (
    f"{_MODULE}/api",
    "v0.0.0-20250102152816-873e9dedd766",
    """\
{0} {1} h1:ZXz+Ki+hxez8vsr5hWHsjYWpa9V/dkp3iI4XTtMBH7A=
{0} {1}/go.mod h1:puPWVUzB1VCb8lVq4g06IR2rIXuSpejDTd/FkSr6nvc=
""",
)
_RUN_ID = "5f3c2b1a-0000-4000-8000-000000000000"
# Compiling without optimizing takes a quarter less CPU time; without paths, packages that depend on
# the folder are cached, too.
_QUICK = ("-trimpath", "-ldflags=-s -w", "-gcflags=all=-N -l")
# What go says when a module or a toolchain is not available, and never about an error in our code.
_UNAVAILABLE = re.compile(
    r"reading https?://|dial tcp|module lookup disabled|git ls-remote|requires go >= "
    r"|toolchain not available|i/o timeout"
)


class Unavailable(Exception):
    """The release, or what it is built with, is not available here."""


def argo_workflow(spec: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Argo workflow that the API server would hand to Kubernetes.

    `spec` is a file of one or two documents; raises `RuntimeError` with the step that rejects it,
    or `Unavailable`.
    """
    values = [f"{name}={json.dumps(value)}" for name, value in parameters.items()]
    command: list[str | Path] = [_program(), _RUN_ID, spec, *values]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"kfp_backend: {done.stderr}")
    workflow: dict[str, Any] = json.loads(done.stdout)
    return workflow


@functools.cache
def _program() -> Path:
    """Build our Go program against the release's packages."""
    folder = _module()
    shutil.copy(Path(__file__).with_name("main.go"), folder)
    _go(folder, "build", *_QUICK, "-o", "kfp_backend", ".")
    return folder / "kfp_backend"


def _module() -> Path:
    """Write a Go module that can build what is in the release's source; return its folder."""
    if shutil.which("go") is None:
        raise Unavailable("there is no go on the PATH")
    folder = Path(tempfile.mkdtemp(prefix="kfp_backend_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = _download(*_SOURCE)
    shutil.copy(source / "go.sum", folder)
    # The release's go.mod, with its own versions of everything.
    text = re.sub(r"^module .*", "module kfp_backend", (source / "go.mod").read_text(), count=1)
    text = re.sub(r"=> \./(\S+)", lambda match: f"=> {_existing(source, folder, match[1])}", text)
    text += f"\nrequire {_MODULE} v0.0.0\nreplace {_MODULE} => {source}\n"
    (folder / "go.mod").write_text(text)
    _write_messages(folder)
    return folder


def _existing(source: Path, folder: Path, name: str) -> Path:
    return source / name if (source / name).exists() else folder / name


def _go(folder: Path, *arguments: str, **environment: str) -> str:
    # No package that we build needs cgo, and without it no C compiler is needed.
    environment = {"GOFLAGS": "-mod=mod -buildvcs=false", "CGO_ENABLED": "0"} | environment
    done = subprocess.run(
        ["go", *arguments], cwd=folder, capture_output=True, text=True, env=os.environ | environment
    )
    output = done.stdout + done.stderr
    if done.returncode and _UNAVAILABLE.search(output):
        raise Unavailable(f"go cannot get a module: {output[-2000:].strip()}")
    if done.returncode:
        raise RuntimeError(f"go {' '.join(arguments)} in {folder}: {output[-10000:]}")
    return done.stdout


def _download(module: str, version: str, sums: str) -> Path:
    with tempfile.TemporaryDirectory(prefix="kfp_backend_") as name:
        folder = Path(name)
        (folder / "go.mod").write_text("module kfp_backend\n\ngo 1.24\n")
        (folder / "go.sum").write_text(sums.format(module, version))
        output = _go(folder, "mod", "download", "-json", f"{module}@{version}")
    return Path(json.loads(output)["Dir"])


def _write_messages(folder: Path) -> None:
    """Write the modules that the release's go.mod expects in ./api and ./kubernetes_platform."""
    for name in ("api", "kubernetes_platform"):
        (folder / name).mkdir()
        (folder / name / "go.mod").write_text(f"module {_MODULE}/{name}\n\ngo 1.23\n")
    # The one package of messages that PyPI does not have; its source has not changed since.
    cache_key = Path("v2alpha1/go/cachekey")
    shutil.copytree(_download(*_API) / cache_key, folder / "api" / cache_key)
    _go(folder, "install", _PLUGIN, GOBIN=str(folder))
    reason = messages.generate(_MODULE, RELEASE, folder / "protoc-gen-go", folder)
    if reason is not None:
        raise Unavailable(reason)
