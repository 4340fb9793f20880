"""Explain what is wrong with the layout of a folder, and how to fix it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence

_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".7z", ".rar")
_PICTURES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")


def is_archive(path: str) -> bool:
    """Return whether a file is an archive, by its name."""
    return path.lower().endswith(_ARCHIVES)


def explain_archive(path: str) -> str:
    """Explain how to unpack an archive."""
    target = shlex.quote(path[: -len(next(s for s in _ARCHIVES if path.lower().endswith(s)))])
    unpack = {
        ".zip": f"unzip {shlex.quote(path)} -d {target}",
        ".7z": f"7z x {shlex.quote(path)} -o{target}",
        ".rar": f"unrar x {shlex.quote(path)} {target}/",
    }.get(os.path.splitext(path)[1].lower())
    unpack = unpack or f"mkdir {target} && tar -xf {shlex.quote(path)} -C {target}"
    return f"{path} is an archive: unpack it with `{unpack}`, and use the folder {target}."


def explain_no_labels(folder: str, loose: Sequence[str]) -> str:
    """Explain what to do with a folder without label folders; `loose` are the files in it."""
    archives = [name for name in loose if is_archive(name)]
    pictures = [name for name in loose if name.lower().endswith(_PICTURES)]
    if pictures:
        count = f"{len(pictures):,} image{'s' if pictures[1:] else ''}"
        return (
            f"{folder} has {count} directly in it, but no label folders: move each image into a "
            f"folder named after its label, such as {folder}/cat/{pictures[0]}, or list the labels "
            f"in a table with the columns path and label: --ingest.manifest labels.csv."
        )
    if archives:
        return explain_archive(f"{folder}/{archives[0]}")
    return (
        f"{folder} has no images in label folders: put them at label/image, such as cat/1.jpg, or "
        f"at split/label/image, such as train/cat/1.jpg."
    )


def explain_one_class(folder: str, label: str, paths: Iterable[str]) -> str:
    """Explain what to do with a folder of one class; the labels may lie some levels deeper.

    Args:
        folder: path or URL.
        label: label of all images.
        paths: paths of all images, relative to the folder.
    """
    text = f"{folder} has only one class, {label!r}: a classifier needs at least two label folders"
    # The folders that all images share, down to the first with several.
    common: list[str] = []
    for names in zip(*(path.split("/")[:-1] for path in paths), strict=False):
        if len(set(names)) == 1:
            common.append(names[0])
            continue
        if common:
            deeper = "/".join([folder.rstrip("/"), *common])
            return f"{text}. {deeper} has several: local_runner.py {shlex.quote(deeper)}"
        break
    return f"{text}."
