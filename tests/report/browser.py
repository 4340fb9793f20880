"""Headless Chromium, driven over its debugging protocol."""

import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import websocket

from tests.missing import lack

_NAMES = ("chromium", "google-chrome", "chromium-browser", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)
# Seconds.
_START = 60
_ANSWER = 60


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40}


class Page:
    """One tab."""

    def __init__(self, connection: websocket.WebSocket, session: str) -> None:
        self._connection = connection
        self._session = session
        self._numbers = itertools.count(1)
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol; keep the events that come before its answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._connection.send(json.dumps({**message, "sessionId": self._session}))
        while (answer := json.loads(self._connection.recv())).get("id") != number:
            self.events.append((answer["method"], answer["params"]))
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression, of what it promises if it is a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def open(self, path: Path, *, width: int) -> None:
        """Open a file in a window of `width` CSS pixels and with a light theme."""
        self.visit(path.as_uri(), width=width)

    def visit(self, address: str, *, width: int) -> None:
        """Open an address likewise."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        self.choose_scheme("light")
        self.events.clear()
        self.call("Page.navigate", url=address)
        protocol = address.partition("//")[0]
        loaded = f"document.readyState === 'complete' && location.protocol === '{protocol}'"
        wait = f"new Promise(done => {{ const see = () => {loaded} ? done() : setTimeout(see, 20);"
        self.evaluate(f"{wait} see(); }})")

    def choose_scheme(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def press(self, *keys: str) -> None:
        """Press keys one after the other, named as `KeyboardEvent.key` does."""
        for key in keys:
            code = _CODES.get(key) or ord(key.upper())
            names = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            text = "\r" if key == "Enter" else key if len(key) == 1 else ""
            typed = {"text": text} if text else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **names, **typed)
            self.call("Input.dispatchKeyEvent", type="keyUp", **names)


@contextmanager
def browse(folder: Path, *flags: str) -> Iterator[Page]:
    """Start Chromium with a profile in `folder`, and end it."""
    profile, program = f"--user-data-dir={folder}", find_chromium()
    if not program:
        lack("chromium", "there is no Chromium")
    command = [str(program), *_FLAGS, *flags, profile, "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            port, path = _wait_for_port(folder / "DevToolsActivePort", process)
            connection = websocket.create_connection(
                f"ws://127.0.0.1:{port}{path}", suppress_origin=True, timeout=_ANSWER
            )
            with closing(connection):
                yield _attach(connection)
        finally:
            process.terminate()


def _wait_for_port(file: Path, process: subprocess.Popen[bytes]) -> list[str]:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline and process.poll() is None:
        if file.exists() and len(lines := file.read_text().split()) == 2:
            return lines
        time.sleep(0.05)
    raise RuntimeError(f"Chromium did not open a debugging port in {_START} s.")


def _attach(connection: websocket.WebSocket) -> Page:
    def call(number: int, method: str, **parameters: Any) -> Any:
        connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(connection.recv())).get("id") != number:
            pass
        return answer["result"]

    targets = call(-1, "Target.getTargets")["targetInfos"]
    tab = next(target["targetId"] for target in targets if target["type"] == "page")
    return Page(
        connection, call(-2, "Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
    )
