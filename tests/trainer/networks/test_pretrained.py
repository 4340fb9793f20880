"""ImageNet's weights from a server on this machine, Keras's cache and files; none reach further."""

import base64
import contextlib
import errno
import hashlib
import http.server
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest

import local_runner
from components.contract.errors import ModelError
from components.trainer.config.model import ModelConfig
from components.trainer.config.training import TrainingConfig
from components.trainer.networks import pretrained
from components.trainer.networks.pretrained import RELEASES, Release, download, find, use
from pipeline_def.config.config import Config
from pipeline_def.local.first_look import find_weights

NET = "mobilenet_v2"
PARAMETERS = 2_257_984


class Server(http.server.BaseHTTPRequestHandler):
    """Responds to every request with `body`, after `pause` seconds."""

    body, pause, stated = b"", 0.0, ""

    def do_GET(self) -> None:
        time.sleep(self.pause)
        # The client may have given up.
        with contextlib.suppress(OSError):
            self.send_response(200)
            if self.stated:
                self.send_header("x-goog-hash", f"crc32c=AAAAAA==,md5={self.stated}")
            self.end_headers()
            self.wfile.write(self.body)

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, content: bytes) -> Iterator[type[Server]]:
    """A server of the right weights, with their checksum."""
    kind = type("_Server", (Server,), {"body": content, "stated": md5(content)})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as served:
        served.daemon_threads = True
        threading.Thread(target=served.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(pretrained, "_SERVER", f"http://127.0.0.1:{served.server_port}/")
        yield kind
        served.shutdown()


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with as many weights as the network has."""
    path = tmp_path_factory.mktemp("weights") / "w.h5"
    write(path, PARAMETERS)
    return path.read_bytes()


def write(path: Path, weights: int) -> None:
    with h5py.File(path, "w") as file:
        values = np.ones([weights], np.int8)
        file.create_group("conv").create_dataset("kernel:0", data=values, compression="gzip")


def md5(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content).digest()).decode()


def of_auto(**sections: Any) -> tuple[Config, str]:
    return find_weights(Config(**sections), shorter_side=375)


def test_a_download_is_checked_kept_and_found_again(server: type[Server], content: bytes) -> None:
    config, text = of_auto()
    digest = hashlib.sha256(content).hexdigest()
    path = Path(config.model.weights)
    assert path == pretrained.weights_folder() / f"{NET}-{digest[:16]}.h5"
    assert path.read_bytes() == content
    assert (config.model.name, config.transform.size) == (NET, 224)
    assert text == f"ImageNet's for {NET}, {path}, downloaded now"
    server.body = b"nothing"
    assert of_auto(model=ModelConfig(weights="imagenet"))[0] == config
    assert of_auto() == (config, f"ImageNet's for {NET}, {path}")


BAD = {
    "another file": (b"<html>Sign in</html>", "", "sent another file: it is not a"),
    "damaged": (None, md5(b"other"), "its checksum is"),
    "too large": (bytes(PARAMETERS * 6 + 2**20 + 1), "", r"more than 14,\d+,\d+ bytes"),
}


@pytest.mark.parametrize(("body", "stated", "message"), BAD.values(), ids=BAD.keys())
def test_a_wrong_file_is_not_kept(
    server: type[Server], body: bytes | None, stated: str, message: str
) -> None:
    server.body, server.stated = server.body if body is None else body, stated
    with pytest.raises(ModelError, match=message):
        download(NET, silence=5)
    assert find(NET) is None


def test_a_published_checksum_counts_more_than_a_stated_one(
    server: type[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RELEASES, NET, Release("w.h5", "0" * 64))
    with pytest.raises(ModelError, match=r"its checksum is .*, not 0000"):
        download(NET, silence=5)


def test_a_server_that_does_not_answer_holds_no_run(
    server: type[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pause = 1.0
    monkeypatch.setattr("pipeline_def.local.first_look._SILENCE", 0.05)
    started = time.monotonic()
    config, text = of_auto()
    assert time.monotonic() - started < 0.6
    assert (config, text[:8]) == (Config(), "random. ")
    assert "`local_runner.py weights fetch mobilenet_v2` on a machine that is connected" in text
    assert text.endswith("Then run here `local_runner.py weights use FILE`.")
    with pytest.raises(ModelError, match="cannot be downloaded"):
        of_auto(model=ModelConfig(weights="imagenet"))


def test_a_folder_or_pipe_in_place_of_weights_stops_no_run(tmp_path: Path) -> None:
    cached = tmp_path / "keras" / "models" / os.path.basename(RELEASES[NET].path)
    stored = pretrained.weights_folder() / f"{NET}-{'0' * 16}.h5"
    stored.mkdir(parents=True)
    cached.parent.mkdir(parents=True)
    os.mkfifo(cached)
    assert find(NET) is None


def test_weights_that_cannot_be_stored_leave_nothing(
    monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    source = Path(os.environ["XDG_DATA_HOME"]).parent / "w.h5"
    source.write_bytes(content)
    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(ModelError, match="No space left"):
        use(str(source))
    assert [*pretrained.weights_folder().iterdir()] == []


def test_weights_of_keras_are_used(content: bytes) -> None:
    cached = Path(os.environ["KERAS_HOME"], "models", os.path.basename(RELEASES[NET].path))
    cached.parent.mkdir(parents=True)
    cached.write_bytes(content[:1000])
    assert find(NET) is None
    cached.write_bytes(content)
    assert Path(str(find(NET))).read_bytes() == content


RANDOM = {
    "a small network": {"model": ModelConfig(name="cnn")},
    "a network of the user": {"model": ModelConfig(build_fn="my.model")},
    "the user's wish": {"model": ModelConfig(weights="none")},
    "a recipe for random weights": {"training": TrainingConfig(recipe="photos")},
}


@pytest.mark.parametrize("sections", RANDOM.values(), ids=RANDOM.keys())
def test_nothing_is_sought_for(server: type[Server], sections: dict[str, Any]) -> None:
    assert of_auto(**sections) == (Config(**sections), "random")
    assert find_weights(Config(), shorter_side=64) == (Config(), "random")


def test_a_file_is_carried_to_another_machine(
    server: type[Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert local_runner.main(["weights", "fetch", NET]) == 0
    fetched = Path(capsys.readouterr().out.split()[1])
    carried = tmp_path / fetched.name
    carried.write_bytes(fetched.read_bytes())
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    assert find(NET) is None
    assert local_runner.main(["weights", "use", str(carried)]) == 0
    assert str(tmp_path / "other") in str(find(NET))
    capsys.readouterr()
    assert local_runner.main(["weights", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(RELEASES)
    assert lines[0].split() == [NET, "9", "MB", find(NET)]
    carried.write_bytes(fetched.read_bytes()[:-1])
    with pytest.raises(ModelError, match="is damaged: its SHA-256 is not"):
        use(str(carried))


def test_files_that_are_no_weights_of_imagenet(tmp_path: Path) -> None:
    write(tmp_path / "own.h5", 7)
    with pytest.raises(ModelError, match=r"own.h5 has ImageNet's weights of no network .*weights"):
        use(str(tmp_path / "own.h5"))
    with pytest.raises(ModelError, match="There is no file"):
        use(str(tmp_path / "missing.h5"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Unknown command 'weights': it must be `weights fetch NAME`"),
        (["fetch", "mobilenet"], "Did you mean 'mobilenet_v2'"),
        (["use"], "Unknown command 'weights use'"),
    ],
)
def test_mistakes_in_the_command(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert local_runner.main(["weights", *words]) == 2
    assert message in capsys.readouterr().err
