"""Where `--data` and `--output` are: folders of this machine, or URLs of stores."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import fsspec

from components.contract.errors import ConfigurationError
from components.storage.artifact_files import on_disk
from pipeline_def.config.config import Config

OUTPUT_SCHEMES = ("gs", "gcs", "s3", "minio")
"""Stores that a local run can write to, through a working copy on this machine."""

_FILE = "file://"
# Of fsspec's protocols, those that hold no folders of images, ask for a password or need a wrapper.
_NO_STORES = {
    "ftp",
    "sftp",
    "ssh",
    "http",
    "https",
    "data",
    "blockcache",
    "filecache",
    "simplecache",
}
# A path may hold a colon, but hardly ever a word before one and a slash, or a store's name.
_URL = re.compile(
    rf"([A-Za-z][A-Za-z0-9+.-]+(?=:/)|{'|'.join(OUTPUT_SCHEMES)}):(/{{0,2}})(.*)", re.DOTALL
)


def locate(place: str, option: str, schemes: Sequence[str] | None) -> str:
    """Return the absolute path of a folder, or the URL as it is.

    Args:
        place: path or URL.
        option: that names it.
        schemes: that may be used; None: all that fsspec knows.

    Raises:
        ConfigurationError: the URL is of another kind, or none that can be meant; the path is no
            text.
    """
    if place.startswith(f"{_FILE}/"):
        place = place.removeprefix(_FILE)
    if os.path.exists(place) or not (url := _URL.fullmatch(place)):
        return _check_text(os.path.abspath(place), option)
    scheme, slashes, rest = url.groups()
    if scheme not in (_data_schemes() if schemes is None else schemes):
        stores = ("gs", "s3", "minio") if schemes is None else schemes
        usable = " or ".join(("a folder of this machine", *(f"{store}://…" for store in stores)))
        raise ConfigurationError(f"--{option} is {place}, which cannot be used: name {usable}.")
    if slashes != "//" or rest.startswith("/") or not rest:
        raise ConfigurationError(
            f"--{option} is {place}: write it as {scheme}://{rest.strip('/') or 'bucket/folder'}."
        )
    if schemes is not None and {"", ".", ".."} & set(rest.rstrip("/").split("/")):
        # The working copy is named after it.
        raise ConfigurationError(f"--{option} is {place}, which has a part that is empty, . or ...")
    return place.rstrip("/")


def _check_text(path: str, option: str) -> str:
    """Raise an error for a path whose bytes are no UTF-8, which reach Python as surrogates."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"--{option} is {path}, which is no text in UTF-8, and ML Metadata takes no other "
            f"paths: rename the folder."
        ) from error
    return path


def _data_schemes() -> set[str]:
    """Return those of stores that fsspec can list a folder of."""
    return {"minio", *fsspec.available_protocols()} - _NO_STORES


def check_apart(config: Config) -> None:
    """Raise an error if the output lies in the images, whatever links lead there."""
    data, output = config.data, config.output
    if data and _is_within(_follow(output), _follow(data)):
        raise ConfigurationError(
            f"--output {output} lies in --data, so its files would be taken for images: "
            f"choose another folder."
        )


def _follow(place: str) -> str:
    return os.path.realpath(place) if on_disk(place) else place.rstrip("/")


def _is_within(inner: str, outer: str) -> bool:
    return f"{inner}/".startswith(f"{outer.rstrip('/')}/")
