"""Locations of `--data` and `--output`: local folders, or URLs of stores."""

import os
import re
from collections.abc import Sequence

import fsspec

from components.contract.errors import ConfigurationError
from components.storage.artifact_files import on_disk
from pipeline_def.config.config import Config

OUTPUT_SCHEMES = ("gs", "gcs", "s3", "minio")
"""Stores that a local run can write to, through a local working copy."""

_FILE = "file://"
# Protocols of fsspec that have no folders of images, ask for a password or wrap others.
_NO_STORES = {
    *("ftp", "sftp", "ssh", "http", "https", "data"),
    *("blockcache", "filecache", "simplecache"),
}
# A path may contain a colon, but hardly a word, a colon and a slash, or the name of a store.
_URL = re.compile(
    rf"([A-Za-z][A-Za-z0-9+.-]+(?=:/)|{'|'.join(OUTPUT_SCHEMES)}):(/{{0,2}})(.*)", re.DOTALL
)


def locate(place: str, option: str, schemes: Sequence[str] | None) -> str:
    """Return the absolute path of a folder, or the URL as it is.

    Supported are `schemes`, or all of fsspec's; messages name the `option`.

    Raises:
        ConfigurationError: the URL is malformed or not supported, or the path is not UTF-8.
    """
    if place.startswith(f"{_FILE}/"):
        place = place.removeprefix(_FILE)
    if os.path.exists(place) or not (url := _URL.fullmatch(place)):
        return _check_text(os.path.abspath(place), option)
    scheme, slashes, rest = url.groups()
    if scheme not in (_data_schemes() if schemes is None else schemes):
        stores = ("gs", "s3", "minio") if schemes is None else schemes
        urls = " or ".join(f"{store}://" for store in stores)
        usable = f"a local folder or a URL with {urls}" if stores else "a local folder"
        raise ConfigurationError(f"--{option} is {place}, which is not supported: use {usable}.")
    if slashes != "//" or rest.startswith("/") or not rest:
        raise ConfigurationError(
            f"--{option} is {place}: write it as {scheme}://{rest.strip('/') or 'bucket/folder'}."
        )
    if schemes is not None and {"", ".", ".."} & set(rest.rstrip("/").split("/")):
        # The working copy is named after it.
        raise ConfigurationError(f"--{option} is {place}: no part of it may be empty, . or ...")
    return place.rstrip("/")


def _check_text(path: str, option: str) -> str:
    """Reject a path that is not UTF-8; Python decodes its bytes as surrogates."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"--{option} is {path}, which is not UTF-8, as ML Metadata requires: rename the folder."
        ) from error
    return path


def _data_schemes() -> set[str]:
    """Return the schemes of stores whose folders fsspec can list."""
    return {"minio", *fsspec.available_protocols()} - _NO_STORES


def check_apart(config: Config) -> None:
    """Reject an output folder within the images; links are followed."""
    data, output = config.data, config.output
    if data and _is_within(_follow(output), _follow(data)):
        raise ConfigurationError(
            f"--output {output} lies in --data, where its files would be read as images: "
            f"choose another folder."
        )


def _follow(place: str) -> str:
    return os.path.realpath(place) if on_disk(place) else place.rstrip("/")


def _is_within(inner: str, outer: str) -> bool:
    return f"{inner}/".startswith(f"{outer.rstrip('/')}/")
