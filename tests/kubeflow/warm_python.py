"""A process that has imported TFX and runs steps as forks of itself, 5 s faster than each alone.

`WarmPython.folder` has a program `python` for the PATH, on this machine or in a pod: it hands its
arguments, streams and root directory to the process. That one imports none of our own code before
it forks. This file runs as a script there.
"""

import ctypes
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LIBRARIES = (
    "tfx.components",
    "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor",
    "tensorflow_model_analysis",
    "tensorflow_transform",
    "tf_keras",
    "sklearn.linear_model",
)
# The second fork is in the namespace of processes: TensorFlow reads /proc/self.
_NAMESPACES = tuple(f"/proc/self/ns/{name}" for name in ("user", "pid", "mnt"))
_CLIENT = f"""#!{sys.executable} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(os.path.join(os.path.dirname(sys.argv[0]), "socket"))
plan = {{"argv": sys.argv, "env": dict(os.environ), "folder": os.getcwd()}}
files = [os.open(path, os.O_RDONLY) for path in ("/", *{_NAMESPACES})]
socket.send_fds(server, [b" "], [0, 1, 2, *files])
server.sendall(json.dumps(plan).encode() + b"\\n")
sys.exit(int(server.recv(16) or 1))
"""


@contextmanager
def warm_python(**environment: str) -> Iterator[Path]:
    """Start the process; yield the folder with `python`, which takes `-m module arguments`.

    `environment` is what libraries read when they are imported.
    """
    with tempfile.TemporaryDirectory(prefix="warm-") as name, socket.socket(socket.AF_UNIX) as own:
        folder = Path(name)
        (folder / "python").write_text(_CLIENT)
        (folder / "python").chmod(0o755)
        own.bind(str(folder / "socket"))
        own.listen()
        command = [sys.executable, "-P", "-W", "ignore", __file__, str(own.fileno())]
        process = subprocess.Popen(
            command,
            env={"TF_CPP_MIN_LOG_LEVEL": "1", **(environment or os.environ)},
            pass_fds=[own.fileno()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield folder
        finally:
            process.kill()
            process.wait()


def main() -> None:
    """Import the libraries, then run one plan after the other, as long as the parent lives."""
    parent, listener = os.getppid(), socket.socket(fileno=int(sys.argv[1]))
    for name in _LIBRARIES:
        importlib.import_module(name)
    listener.settimeout(5)
    while os.getppid() == parent:
        try:
            client, _ = listener.accept()
        except TimeoutError:
            continue
        _, files, _, _ = socket.recv_fds(client, 1, 7)
        plan = json.loads(client.makefile().readline())
        child = os.fork()
        if not child:
            _run(plan, files)
        for file in files:
            os.close(file)
        client.sendall(str(_wait(child)).encode())
        client.close()


def _wait(child: int) -> int:
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else 128 - status


def _run(plan: dict[str, Any], files: list[int]) -> None:
    """Do what `python -m module arguments` does; end without the interpreter's own two seconds."""
    *streams, root = files[:4]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for namespace, path in zip(files[4:], _NAMESPACES, strict=True):
        if os.fstat(namespace).st_ino != os.stat(path).st_ino:
            assert not ctypes.CDLL(None, use_errno=True).setns(namespace, 0), path
    if child := os.fork():
        os._exit(_wait(child))
    os.fchdir(root)
    if not os.path.samestat(os.stat("."), os.stat("/")):
        os.chroot(".")
    os.chdir(plan["folder"])
    os.environ.clear()
    os.environ.update(plan["env"])
    _, _, module, *arguments = plan["argv"]
    sys.argv = [module, *arguments]
    sys.path.insert(0, plan["folder"])
    status: Any = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    main()
