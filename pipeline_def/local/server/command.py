"""`local_runner.py serve`: load the pushed model and serve it until stopped."""

import contextlib
import logging
import resource
import socket
import time

import uvicorn
from rich.console import Console

from components.contract.errors import ConfigurationError
from components.host.stopping import leave_to_server
from pipeline_def.layout import Layout
from pipeline_def.local.display.rows import print_row
from pipeline_def.local.server.app import make_app
from pipeline_def.local.server.canary import CanaryOptions
from pipeline_def.local.server.limits import App, TimedProtocol
from pipeline_def.local.server.model import Model
from pipeline_def.local.server.options import Listening, ServerOptions
from pipeline_def.local.server.versions import Load, Versions

# An idle connection takes 20 KB. Systems commonly allow a process 1,024 open files at first.
_MAX_CONNECTIONS = 2000
_OTHER_FILES = 500
_KEEP_ALIVE_SECONDS = 15


def serve(options: ServerOptions) -> None:
    """Serve until a signal arrives, then finish the open requests.

    Raises:
        ConfigurationError: the address is in use, or does not belong to this machine.
        ModelError: there is no model, or it cannot be loaded.
    """
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    with contextlib.ExitStack() as held:
        if options.grpc_port is not None:
            # It does not listen, so that gRPC can bind the port, too.
            held.enter_context(bind(options.host, options.grpc_port, "grpc_port"))
        listening = held.enter_context(listen(options))
        started = time.monotonic()
        versions = load_versions(options, Model)
        port = listening.getsockname()[1]
        _print(versions.current, options, port, time.monotonic() - started)
        leave_to_server()
        make_server(make_app(versions, options), options).run(sockets=[listening])


def load_versions(options: ServerOptions, load: Load) -> Versions:
    """Load the version to serve.

    Raises:
        UserError: there is no model, or it cannot be loaded.
    """
    layout, canary = Layout(options.output), None
    if options.canary:
        canary = CanaryOptions(options.canary, options.canary_max_drop, layout.canary)
    return Versions(layout.pushed, load, options.model, canary)


def make_server(app: App, options: Listening) -> uvicorn.Server:
    """Return a server that has not started yet."""
    most = _allow_files(_MAX_CONNECTIONS + _OTHER_FILES) - _OTHER_FILES
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        lifespan="on",
        loop="asyncio",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=max(most, _OTHER_FILES),
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
    """Listen on the port, before anything that takes seconds.

    Raises:
        ConfigurationError: the address is in use, or does not belong to this machine.
    """
    listening = bind(options.host, options.port, "port")
    # From here on, clients wait instead of being refused while the model loads.
    listening.listen()
    return listening


def bind(host: str, port: int, option: str) -> socket.socket:
    """Bind the port that an option names.

    Raises:
        ConfigurationError: the address is in use, or does not belong to this machine.
    """
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit this option. Without it, a short response waits 40 ms for the client's
    # ACK. asyncio sets it only on sockets created with an explicit protocol.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ConfigurationError(
            f"Cannot listen on {host}, port {port} ({error.strerror}). Choose another address "
            f"with --host and --{option}."
        ) from error
    return listening


def find_address(options: Listening, port: int) -> str:
    """Return the URL of a server."""
    shown = f"[{options.host}]" if ":" in options.host else options.host
    return f"http://{shown}:{port}"


def _print(model: Model, options: ServerOptions, port: int, seconds: float) -> None:
    console = Console(highlight=False)
    address = find_address(options, port)
    print_row(
        console, "Model", f"{options.name}, version {model.version}, loaded in {seconds:.1f} s"
    )
    print_row(console, "Page", f"{address}/")
    print_row(console, "REST", f"{address}/v1/models/{options.name}:predict")
    if options.canary:
        share = f"{options.canary:.0%} of the requests, until one version is proven"
        print_row(console, "Canary", f"newer versions also answer {share}")
    if options.grpc_port is not None:
        print_row(console, "gRPC", find_address(options, options.grpc_port).removeprefix("http://"))
    if options.log:
        kept = f"with {options.log_pictures:.0%} of the pictures" if options.log_pictures else ""
        print_row(console, "Log", f"{options.log} {kept or 'without pictures'}")
    if not options.is_local:
        print_row(console, "", "Anyone who can reach this address can use it.")
    print_row(console, "", "Press Ctrl-C to stop.")
