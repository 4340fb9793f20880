"""`local_runner.py rollback`: the current model."""

import os
from collections.abc import Sequence

from components.contract.errors import ModelError
from components.contract.printable import make_printable
from components.push.versions import restore
from components.storage.saved_model import (
    model_digest,
    original_version,
    read_rollback,
    whole_versions,
)
from pipeline_def.config.command_line import parse
from pipeline_def.layout import Layout
from pipeline_def.local.output.locations import find_runs
from pipeline_def.local.pushed_model import find_version

USAGE = """usage: local_runner.py rollback [VERSION] [--output DIR]

Makes an earlier version of the pushed model the one in use, by pushing it again
as the newest version, so that every server takes it. Runs do not push the newer
models again; another model replaces it as soon as it is blessed against it.

  VERSION        a version in --output: the one before the version in use
  --output DIR   output folder or URL of the runs: output
"""


def roll_back(arguments: Sequence[str]) -> int:
    """Push an earlier version again; print which.

    Raises:
        ModelError: there is no such version.
    """
    config, options = parse(
        arguments,
        prog="local_runner.py rollback",
        usage=USAGE,
        only={"output"},
        positional="versions",
    )
    wanted = options["versions"]
    if len(wanted) > 1:
        raise ModelError("Name one version: local_runner.py rollback VERSION.")
    pushed = Layout(find_runs(config)).pushed
    versions = [*whole_versions(pushed)]
    target = _choose(versions, wanted[0] if wanted else None, pushed)
    if model_digest(target) == model_digest(versions[0]):
        print(f"Version {os.path.basename(versions[0])} is in use, and has this model already.")
        return 0
    restored, withdrawn = original_version(target), _list_withdrawn(versions, target)
    path = restore(target, restored=restored, withdrawn=withdrawn)
    names = ", ".join(sorted(set(withdrawn.values()), key=int))
    print(f"Version {os.path.basename(path)} is in use now: {make_printable(path)}")
    print(f"It has the model of version {restored}.")
    if names:
        print(f"Until another model is blessed, runs do not push {names} again.")
    return 0


def _choose(versions: Sequence[str], wanted: str | None, pushed: str) -> str:
    """Return the path of the version to go back to; `versions` are newest first."""
    if not versions:
        raise ModelError(f"There is no model in {pushed}: set --output to the output of a run.")
    if wanted is not None:
        return find_version(pushed, wanted)
    since, in_use = int(original_version(versions[0])), model_digest(versions[0])
    for version in versions:
        if int(os.path.basename(version)) < since and model_digest(version) != in_use:
            return version
    raise ModelError(
        f"There is no version before {original_version(versions[0])} in {pushed} to go back to."
    )


def _list_withdrawn(versions: Sequence[str], target: str) -> dict[str, str]:
    """Return the digests of the models that are newer than `target`'s → their versions."""
    kept, since = model_digest(target), int(original_version(target))
    earlier = read_rollback(versions[0])
    withdrawn = dict(earlier.withdrawn) if earlier else {}
    withdrawn |= {model_digest(version): original_version(version) for version in versions}
    return {
        digest: name for digest, name in withdrawn.items() if digest != kept and int(name) > since
    }
