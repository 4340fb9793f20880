"""What is wrong with how a folder is laid out, and the command or the place that would be right."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence

_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".7z", ".rar")
_PICTURES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")


def is_archive(path: str) -> bool:
    """Whether a file is one that others are packed into, by its name."""
    return path.lower().endswith(_ARCHIVES)


def explain_archive(path: str) -> str:
    """Say how to unpack an archive."""
    target = shlex.quote(path[: -len(next(s for s in _ARCHIVES if path.lower().endswith(s)))])
    unpack = {
        ".zip": f"unzip {shlex.quote(path)} -d {target}",
        ".7z": f"7z x {shlex.quote(path)} -o{target}",
        ".rar": f"unrar x {shlex.quote(path)} {target}/",
    }.get(os.path.splitext(path)[1].lower())
    unpack = unpack or f"mkdir {target} && tar -xf {shlex.quote(path)} -C {target}"
    return f"{path} is an archive: unpack it with `{unpack}`, and give the folder {target}."


def explain_no_labels(folder: str, loose: Sequence[str]) -> str:
    """Say what to do with a folder that has no images in label folders.

    Args:
        folder: path or URL.
        loose: names of the files directly in it.
    """
    archives = [name for name in loose if is_archive(name)]
    pictures = [name for name in loose if name.lower().endswith(_PICTURES)]
    if pictures:
        count = f"{len(pictures):,} image{'s' if pictures[1:] else ''}"
        return (
            f"{folder} has {count} directly in it, and no label folders: move each into a folder "
            f"named after its label, such as {folder}/cat/{pictures[0]}, or name the labels in a "
            f"table with the columns path and label: --ingest.manifest labels.csv."
        )
    if archives:
        return explain_archive(f"{folder}/{archives[0]}")
    return (
        f"{folder} has no images in label folders: put them at label/image, such as cat/1.jpg, or "
        f"at split/label/image, such as train/cat/1.jpg."
    )


def explain_one_class(folder: str, label: str, paths: Iterable[str]) -> str:
    """Say what to do with a folder of one class; it may lie some levels above the labels.

    Args:
        folder: path or URL.
        label: of all images.
        paths: of all images, relative to the folder.
    """
    below = _find_branches([path.split("/")[:-1] for path in paths])
    said = f"{folder} has one class only, {label!r}: a classifier needs at least two label folders"
    if not below:
        return f"{said}."
    deeper = "/".join([folder.rstrip("/"), *below])
    return f"{said}. There are several in {deeper}: local_runner.py {shlex.quote(deeper)}"


def _find_branches(folders: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return the folders down to where there are several, from one to the next; none if nowhere."""
    common: list[str] = []
    for names in zip(*folders, strict=False):
        if len(set(names)) > 1:
            return common
        common.append(names[0])
    return ()
