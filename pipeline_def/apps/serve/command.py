"""`local_runner.py serve`: load the pushed model and serve it until stopped."""

import contextlib
import logging
import os
import resource
import socket
import tempfile
import time
from collections.abc import Sequence

import uvicorn
from starlette.types import ASGIApp

from components.contract.errors import ConfigurationError
from components.host.stopping import leave_to_server
from pipeline_def.apps.serve.app import make_app
from pipeline_def.apps.serve.model import Model
from pipeline_def.apps.serve.options import Listening, ServerOptions, parse_options
from pipeline_def.apps.serve.versions import Versions
from pipeline_def.layout import Layout
from pipeline_def.local.pushed_model import UNBLESSED, find_unblessed
from pipeline_def.local.run_display import print_row

# An idle connection takes 20 KB. Systems commonly allow a process 1,024 open files at first.
_MAX_CONNECTIONS = 2000
_OTHER_FILES = 500
_KEEP_ALIVE_SECONDS = 15


def serve(arguments: Sequence[str]) -> int:
    """Serve the pushed model until a signal arrives, then finish the open requests.

    Raises:
        ConfigurationError: an option is wrong; the address is in use, or does not belong to this
            machine; or the log cannot be written.
        ModelError: there is no model, or it cannot be loaded.
    """
    options = parse_options(arguments)
    with contextlib.suppress(KeyboardInterrupt):
        _serve(options)
    return 0


def _serve(options: ServerOptions) -> None:
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    with listen(options) as listening, contextlib.ExitStack() as stack:
        started = time.monotonic()
        pushed, version, warning = Layout(options.output).pushed, options.model, ""
        if options.unblessed:
            folder, warning = find_unblessed(options.output)
            pushed, version = stack.enter_context(tempfile.TemporaryDirectory()), UNBLESSED
            os.symlink(folder, os.path.join(pushed, version))
        versions = Versions(pushed, Model, version)
        app = make_app(versions, options, warning=warning)
        address, seconds = find_address(options, listening), time.monotonic() - started
        _print_start(versions.current, options, address, seconds, warning)
        leave_to_server()
        make_server(app, options).run(sockets=[listening])


def make_server(app: ASGIApp, options: Listening) -> uvicorn.Server:
    """Return a server that has not started yet."""
    allowed = _allow_files(_MAX_CONNECTIONS + _OTHER_FILES) - _OTHER_FILES
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        loop="asyncio",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=max(allowed, _OTHER_FILES),
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(options.timeout) + 1,
    )
    return uvicorn.Server(config)


def _allow_files(wanted: int) -> int:
    """Raise the limit of open files to `wanted`, as far as the system allows; return it."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        allowed = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    return wanted if allowed == resource.RLIM_INFINITY else min(allowed, wanted)


def listen(options: Listening) -> socket.socket:
    """Listen on the port, before anything that takes seconds: clients wait while a model loads.

    Raises:
        ConfigurationError: the address is in use, or does not belong to this machine.
    """
    listening = socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit this option. Without it, a short response waits 40 ms for the client's
    # ACK. asyncio sets it only on sockets created with an explicit protocol.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listening.bind((options.host, options.port))
    except OSError as error:
        listening.close()
        raise ConfigurationError(
            f"Cannot listen on {options.host}, port {options.port} ({error.strerror}). Choose "
            "another address with --host and --port."
        ) from error
    listening.listen()
    return listening


def find_address(options: Listening, listening: socket.socket) -> str:
    """Return the URL of a server."""
    shown = f"[{options.host}]" if ":" in options.host else options.host
    return f"http://{shown}:{listening.getsockname()[1]}"


def _print_start(
    model: Model, options: ServerOptions, address: str, seconds: float, warning: str
) -> None:
    print_row("Model", f"{options.name}, version {model.version}, loaded in {seconds:.1f} s")
    print_row("Page", f"{address}/")
    print_row("REST", f"{address}/v1/models/{options.name}:predict")
    if options.log:
        print_row("Log", options.log)
    if not options.is_local:
        print_row("", "Anyone who can reach this address can use it.")
    print_row("", "Press Ctrl-C to stop.")
    if warning:
        print_row("Verdict", warning, style="yellow")
