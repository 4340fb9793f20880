"""Checks the files of a container image from inside.

Run `docker run --rm -i IMAGE python - < .ci/check_image.py`. An argument is the folder of our code,
in files that were built without Docker.
"""

import ctypes
import importlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

# Imports of the steps. Modules with shared libraries come first: after TensorFlow, which loads many
# libraries, they might find what the image lacks.
_MODULES = (
    "cv2",
    "simplejpeg",
    "PIL.Image",
    "sklearn.linear_model",
    "pyarrow",
    "tfx.components",
    "tensorflow",
    "tensorflow_model_analysis",
    "kfp",
    "gcsfs",
    "components.storage.s3_client",
    "pipeline_def.config.config",
    "pipeline_def.pipeline",
    "components.trainer.run_fn",
    "pipeline_def.apps.serve.command",
)
_APP = Path(sys.argv[1] if sys.argv[1:] else "/app")
_PACKAGES = Path(sysconfig.get_path("platlib"))
_UNCHECKED_HASH = (1).to_bytes(4, "little")  # PEP 552


def main() -> int:
    """Print all faults; return 1 if there are any."""
    checks = (_imports, _byte_code, _nvidia, _help, _digests, _weights)
    faults = [fault for check in checks for fault in check()]
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"{len(faults)} faults, as user {os.getuid()}:{os.getgid()}")
    return 1 if faults else 0


def _imports() -> Iterator[str]:
    # As in every step; without it, model analysis imports another Keras.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    for module in _MODULES:
        # CPU seconds, because other programs do not affect them.
        started = time.process_time()
        try:
            importlib.import_module(module)
        except Exception as error:
            yield f"import {module}: {type(error).__name__} {error}"
        print(f"{time.process_time() - started:6.1f} s  import {module}")


def _byte_code() -> Iterator[str]:
    """Check the byte code of the imported packages and of all our modules."""
    names = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    files = [Path(name) for name in names if name and name.endswith(".py")]
    # Some modules name a file that does not exist.
    used = [file for file in files if file.is_relative_to(_PACKAGES) and file.is_file()]
    for what, sources in (("the packages", used), (_APP, list(_APP.rglob("*.py")))):
        missing = [source for source in sources if not _is_compiled(source)]
        print(f"{len(sources) - len(missing)} of {len(sources)} with byte code in {what}")
        if missing or not sources:
            yield f"no lasting byte code for {len(missing)} files in {what}: {missing[:3]}"


def _is_compiled(source: Path) -> bool:
    """Return whether byte code exists that is valid whatever the time of its source."""
    compiled = Path(importlib.util.cache_from_source(str(source)))
    return compiled.exists() and compiled.read_bytes()[4:8] == _UNCHECKED_HASH


def _nvidia() -> Iterator[str]:
    """Load NVIDIA's libraries by name, as TensorFlow does."""
    files = sorted(_PACKAGES.glob("nvidia/*/lib/*.so.*"))
    loaded = 0
    for file in files:
        try:
            ctypes.CDLL(file.name)
            loaded += 1
        except OSError as error:
            yield f"{file.name}: {error}"
    print(f"{loaded} of {len(files)} of NVIDIA's libraries load by name")


def _help() -> Iterator[str]:
    command = [sys.executable, "-m", "pipeline_def.kubeflow.step.entrypoint", "--help"]
    # From another folder, as a pod may set its working directory.
    env = {**os.environ, "PYTHONPATH": str(_APP)}
    result = subprocess.run(command, cwd="/tmp", capture_output=True, text=True, env=env)
    if result.returncode or "--executor_input" not in result.stdout:
        yield f"{' '.join(command)}: {result.stderr.strip() or result.stdout.strip()}"


def _digests() -> Iterator[str]:
    """Digest the code, which each step compares with the compiled digest."""
    from pipeline_def.code_digest import whole_digest

    try:
        print(f"{whole_digest()}  digest of the code, the same where the pipeline is compiled")
    except OSError as error:
        yield f"the code cannot be digested: {error}"


def _weights() -> Iterator[str]:
    """Read the weights that training on photographs starts from."""
    from components.contract.errors import ModelError
    from components.trainer.networks.imagenet import read_imagenet

    try:
        print(f"{len(read_imagenet('efficientnet_lite0'))} tensors of ImageNet's weights")
    except ModelError as error:
        yield str(error)


if __name__ == "__main__":
    sys.exit(main())
