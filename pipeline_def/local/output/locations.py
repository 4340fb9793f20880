"""Locations of `--data` and `--output`: local folders, or URLs of stores."""

import dataclasses
import os
import re
import sys
from collections.abc import Sequence

import fsspec

from components.contract.artifact_files import on_disk
from components.contract.errors import ConfigurationError
from components.contract.printable import make_printable
from components.storage.folder import list_folders
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout

OUTPUT_SCHEMES = ("gs", "gcs", "s3", "minio")
"""Stores that a local run can write to, through a local working copy."""

_FILE = "file://"

# Output of the built-in sample, in that of all runs.
_DIGITS = "digits"
# Protocols of fsspec that have no folders of images, ask for a password or wrap others.
_NO_STORES = {
    *("ftp", "sftp", "ssh", "http", "https", "data"),
    *("blockcache", "filecache", "simplecache"),
}
# A path may contain a colon, but hardly a word, a colon and a slash, or the name of a store.
_URL = re.compile(
    rf"([A-Za-z][A-Za-z0-9+.-]+(?=:/)|{'|'.join(OUTPUT_SCHEMES)}):(/{{0,2}})(.*)", re.DOTALL
)


def make_absolute(config: Config) -> Config:
    """Make paths absolute, so that a later run may start in another folder.

    Raises:
        ConfigurationError: a URL is not supported, or the output lies in the images.
    """
    output = locate(config.output, "output", OUTPUT_SCHEMES)
    data = None if config.data is None else locate(config.data, "data", None)
    tables = {name: getattr(config.ingest, name) for name in ("manifest", "corrections")}
    paths = {name: os.path.abspath(at) for name, at in tables.items() if at and on_disk(at)}
    ingest = dataclasses.replace(config.ingest, **paths)
    config = dataclasses.replace(config, data=data, output=output, ingest=ingest)
    _check_apart(config)
    return config


def find_runs(config: Config) -> str:
    """Return the output with runs, an absolute path or a URL; find it if none is given.

    Raises:
        ConfigurationError: a URL is not supported, or several folders have runs.
    """
    output = make_absolute(config).output
    return find_output(output if "output" in config.given else "")


def locate(place: str, option: str, schemes: Sequence[str] | None) -> str:
    """Return the absolute path of a folder, or the URL as it is.

    Supported are `schemes`, or all of fsspec's; messages name the `option`.

    Raises:
        ConfigurationError: the URL is malformed or not supported.
    """
    if place.startswith(f"{_FILE}/"):
        place = place.removeprefix(_FILE)
    if os.path.exists(place) or not (url := _URL.fullmatch(place)):
        return os.path.abspath(place)
    scheme, slashes, rest = url.groups()
    # Those of stores whose folders fsspec can list.
    listed = {"minio", *fsspec.available_protocols()} - _NO_STORES
    if scheme not in (listed if schemes is None else schemes):
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


def choose_output(config: Config) -> tuple[str, str]:
    """Return the output folder, and unless the user names it a clause that explains it.

    Without `--output`, images in a folder NAME have `output/NAME`, so that another task does not
    replace the model of the first; the built-in sample has `output/digits`.
    """
    if "output" in config.given or config.output != Config.output:
        return config.output, ""
    data = locate(config.data or Layout(Config.output).sample, "data", None)
    if config.data is None:
        return f"{Config.output}/{_DIGITS}", "the sample's own"
    names = [part for part in data.split("/") if part and "{" not in part]
    name = names[-1] if names else "images"
    taken = {_DIGITS, *(place.partition("/")[0] for place in vars(Layout("")).values())}
    return f"{Config.output}/{name}{'-images' if name in taken else ''}", "named after the images"


def find_output(named: str = "") -> str:
    """Return the output that the user has named, or without a name the only one; say which.

    A folder without runs stands for the only folder in it that has some.

    Raises:
        ConfigurationError: there are several, or a URL is not supported.
    """
    output = locate(named or Config.output, "output", OUTPUT_SCHEMES)
    has_runs = os.path.isdir(Layout(output).runs)
    if not on_disk(output) or (named and has_runs):
        return output
    below = (os.path.join(output, name) for name in list_folders(output))
    outputs = [output] if has_runs else []
    outputs += [path for path in below if os.path.isdir(Layout(path).runs)]
    if outputs[1:]:
        shown = ", ".join(make_printable(os.path.relpath(path)) for path in outputs)
        raise ConfigurationError(f"There are several outputs, {shown}: choose one with --output.")
    if outputs and outputs[0] != output:
        print(f"Output: {make_printable(outputs[0])}", file=sys.stderr)
    return outputs[0] if outputs else output


def _check_apart(config: Config) -> None:
    """Reject an output folder within the images; links are followed."""
    data, output = config.data, config.output
    if data and f"{_follow(output)}/".startswith(f"{_follow(data).rstrip('/')}/"):
        raise ConfigurationError(
            f"--output {output} lies in --data, where its files would be read as images: "
            f"choose another folder."
        )


def _follow(place: str) -> str:
    return os.path.realpath(place) if on_disk(place) else place.rstrip("/")
