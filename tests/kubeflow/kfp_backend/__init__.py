"""What Kubeflow Pipelines' own API server makes of a pipeline file, in each release we can get.

The Go program in this folder is built against a release's packages: from the Go module proxy, and
from every folder that the environment variable KFP_CHECKOUTS names (colon between them).
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubeflow.kfp_backend import messages

MODULE = "github.com/kubeflow/pipelines"
PLUGIN = "google.golang.org/protobuf/cmd/protoc-gen-go"
SOURCES = Path(__file__).parent
REFUSED = 3

# How template.New takes its options, told from its signature, to the file of ours that calls it so.
SIGNATURES = {
    "func New(bytes []byte)": "template_bytes",
    "func New(bytes []byte, cacheDisabled bool,": "template_arguments",
    "func New(bytes []byte, opts TemplateOptions)": "template_options",
}
# What go says when a module or a toolchain cannot be had, and never about an error in our code.
NOT_TO_BE_HAD = re.compile(
    r"reading https?://|dial tcp|module lookup disabled|git ls-remote|requires go >= "
    r"|toolchain not available|i/o timeout"
)


class Unavailable(Exception):
    """The release, or what it is built with, cannot be had here."""


class Refused(Exception):
    """The API server refuses the pipeline at upload, or a run of it in compiling or validating."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(f"{step}: {message}")
        self.step = step
        self.message = message


@dataclass(frozen=True)
class Release:
    """A release of Kubeflow Pipelines.

    Attributes:
        name: Its tag, or the checkout's folder.
        checkout: The folder of its source; None where the module proxy has it.
        version: Go's name for it.
        sums: Its lines for go.sum, taken from the tag: not every checksum database has them.
    """

    name: str
    checkout: Path | None = None
    version: str = "v0.0.0"
    sums: str = ""


# Of the releases from 2.3.0 to 2.17.0, the only one that the module proxy had in November 2026. The
# sums are those of the tag's files: a checksum database need not have them.
PROXIED = Release(
    "2.14.3",
    version="v0.0.0-20250902140602-fc3214d4b4d3",
    sums="""\
{0} {1} h1:EYFzVTUNy3iXMOtNIA8qaZNIq+u2PAJ+b92w9/yJG9I=
{0} {1}/go.mod h1:qTEyao6ONZRgIgx4smITF2Ll/fV+JL3WruknwJuoyQY=
""",
)
API = (
    f"{MODULE}/api",
    "v0.0.0-20250102152816-873e9dedd766",
    """\
{0} {1} h1:ZXz+Ki+hxez8vsr5hWHsjYWpa9V/dkp3iI4XTtMBH7A=
{0} {1}/go.mod h1:puPWVUzB1VCb8lVq4g06IR2rIXuSpejDTd/FkSr6nvc=
""",
)


def releases() -> list[Release]:
    """The releases to check with, none of them fetched yet."""
    folders = [Path(name) for name in os.environ.get("KFP_CHECKOUTS", "").split(":") if name]
    return [PROXIED, *(Release(folder.name, folder.resolve()) for folder in folders)]


def argo_workflow(
    spec: Path,
    release: Release,
    parameters: Mapping[str, Any] | None = None,
    *,
    run_id: str | None = None,
) -> dict[str, Any]:
    """The Argo workflow for a run of the pipeline in `spec` with `parameters`.

    Args:
        spec: The pipeline's file, YAML in one or two documents.
        release: What to compile it with.
        parameters: The run's parameters, as JSON values.
        run_id: A UUID; the same in every call unless it is given.

    Returns:
        The workflow, as the API server would hand it to Kubernetes.

    Raises:
        Refused: With the API server's message.
        Unavailable: Where the release cannot be had.
    """
    values = [f"{name}={json.dumps(value)}" for name, value in (parameters or {}).items()]
    run = ["-run", run_id] if run_id else []
    arguments: list[str | Path] = [program(release), *run, spec, *values]
    # On a file that is no YAML, the releases up to 2.17.0 at least read on for ever.
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    if done.returncode == REFUSED:
        last = done.stderr[done.stderr.rindex("kfp_backend: ") :]
        step, message = last.removeprefix("kfp_backend: ").strip().split(": ", 1)
        raise Refused(step, message)
    if done.returncode:
        raise RuntimeError(f"kfp_backend {release.name}: {done.stderr}")
    workflow: dict[str, Any] = json.loads(done.stdout)
    return workflow


@functools.cache
def program(release: Release) -> Path:
    """Our Go program, built with the release's packages.

    Raises:
        Unavailable: Where the release cannot be had.
    """
    checkout, folder = _module(release)
    for source in SOURCES.glob("*.go"):
        shutil.copy(source, folder)
    _go(folder, "build", "-tags", _tag(checkout), "-ldflags=-s -w", "-o", "kfp_backend", ".")
    return folder / "kfp_backend"


@functools.cache
def command(release: Release, name: str) -> Path:
    """One of the release's own commands, unmodified: `driver` or `launcher-v2`.

    Raises:
        Unavailable: Where the release cannot be had.
    """
    _, folder = _module(release)
    package = f"{MODULE}/backend/src/v2/cmd/{name}"
    _go(folder, "build", "-ldflags=-s -w", "-o", f"commands/{name}", package)
    return folder / "commands" / name


@functools.cache
def _module(release: Release) -> tuple[Path, Path]:
    """The release's source, and a folder with a Go module that can build what is in it."""
    if shutil.which("go") is None:
        raise Unavailable("there is no go on the PATH")
    folder = Path(tempfile.mkdtemp(prefix="kfp_backend_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    checkout = release.checkout or _download(MODULE, release.version, release.sums)
    shutil.copy(checkout / "go.sum", folder)
    (folder / "go.mod").write_text(_go_mod(checkout, folder))
    if release.checkout is None:
        _write_messages(release, folder)
    return checkout, folder


def _go(folder: Path, *arguments: str, **environment: str) -> str:
    # Without cgo, no C compiler is needed; no package of the release that we call is built by one.
    environment = {"GOFLAGS": "-mod=mod -buildvcs=false", "CGO_ENABLED": "0"} | environment
    done = subprocess.run(
        ["go", *arguments], cwd=folder, capture_output=True, text=True, env=os.environ | environment
    )
    output = done.stdout + done.stderr
    if done.returncode and NOT_TO_BE_HAD.search(output):
        raise Unavailable(f"go cannot get a module: {output[-2000:].strip()}")
    if done.returncode:
        raise RuntimeError(f"go {' '.join(arguments)} in {folder}: {output[-10000:]}")
    return done.stdout


def _download(module: str, version: str, sums: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="kfp_backend_"))
    (folder / "go.mod").write_text("module kfp_backend\n\ngo 1.24\n")
    (folder / "go.sum").write_text(sums.format(module, version))
    answer = _go(folder, "mod", "download", "-json", f"{module}@{version}")
    shutil.rmtree(folder)
    return Path(json.loads(answer)["Dir"])


def _go_mod(checkout: Path, folder: Path) -> str:
    """The release's go.mod, with its own versions of everything, as the module of our program."""
    text = re.sub(r"^module .*", "module kfp_backend", (checkout / "go.mod").read_text(), count=1)

    def replacement(match: re.Match[str]) -> str:
        own = checkout / match[1]
        return f"=> {own if own.exists() else folder / match[1]}"

    text = re.sub(r"=> \./(\S+)", replacement, text)
    return f"{text}\nrequire {MODULE} v0.0.0\nreplace {MODULE} => {checkout}\n"


def _tag(checkout: Path) -> str:
    source = (checkout / "backend/src/apiserver/template/template.go").read_text()
    tags = [tag for signature, tag in SIGNATURES.items() if signature in source]
    if len(tags) != 1:
        raise RuntimeError(f"{checkout}: template.New has arguments that no file of ours knows")
    return tags[0]


def _write_messages(release: Release, folder: Path) -> None:
    """Writes the modules that the release's go.mod has at ./api and ./kubernetes_platform."""
    for name in ("api", "kubernetes_platform"):
        (folder / name).mkdir()
        (folder / name / "go.mod").write_text(f"module {MODULE}/{name}\n\ngo 1.23\n")
    # The one package of messages that PyPI has not; what it is made from has not changed since.
    cache_key = Path("v2alpha1/go/cachekey")
    shutil.copytree(_download(*API) / cache_key, folder / "api" / cache_key)
    _go(folder, "install", PLUGIN, GOBIN=str(folder))
    reason = messages.generate(MODULE, release.name, folder / "protoc-gen-go", folder)
    if reason is not None:
        raise Unavailable(reason)
