"""Runs the pipeline five times on a real cluster, and checks what each run results in."""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from e2e import cluster
from e2e.cluster import Failure
from e2e.runs import (
    ALL_CACHED,
    ALL_RAN,
    Runner,
    RunOutput,
    check_failed,
    check_states,
)
from e2e.store import Store
from pipeline_def.kubeflow.step_interface import DEFAULT_ROOT, PRIVATE_ROOT

# Of 1,797 digits, more than `ingest.max_reject_fraction`.
_BROKEN = 400

_DESCRIPTION = """Runs the pipeline on a real Kubeflow Pipelines, which kubectl reaches and which
has the image; .ci/kind makes one. It runs on the digits: first, all from the cache, with a changed
image, against the pushed model, and with broken images. It leaves only runs of a pipeline of its
own and the folder e2e/ below the pipeline root behind. What it saw is in report.md, to paste into
an issue."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e", description=_DESCRIPTION)
    add = parser.add_argument
    add("--image", default="tfx-images:e2e", help="Name of the image: tfx-images:e2e.")
    add("--output", type=Path, default=Path("output-e2e"), help="Folder for results: output-e2e.")
    add("--steps", default="{}", help="kubeflow.steps, YAML: GPUs, spot or autoscaled nodes.")
    add("--root", help="Pipeline root, such as gs://BUCKET/FOLDER. Default: the cluster's.")
    add("--namespace", help="Namespace of the user, on a cluster with several.")
    add("--token-file", help="File with the user's bearer token.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the test; return 1 if it fails."""
    try:
        run(_parser().parse_args(argv))
    except Failure as failure:
        print(f"e2e: {failure}", file=sys.stderr)
        return 1
    return 0


def run(options: argparse.Namespace) -> None:
    """Run everything on the cluster."""
    options.output.mkdir(parents=True, exist_ok=True)
    url = options.root or (
        PRIVATE_ROOT.format(options.namespace) if options.namespace else DEFAULT_ROOT
    )
    with _access(url) as endpoint:
        # A name of its own, as another call has left a cache and pushed models.
        pipeline = time.strftime("images-e2e-%Y%m%d-%H%M%S")
        given = {"--namespace": options.namespace, "--token-file": options.token_file}
        user = [word for name, value in given.items() if value for word in (name, value)]
        runner = Runner(options.output, endpoint, pipeline, user)
        with reporting(options, runner):
            play(options, runner, Store(pipeline, url))


@contextlib.contextmanager
def reporting(options: argparse.Namespace, runner: Runner) -> Iterator[None]:
    """Write what was seen, whether all passes or not, as a page for an issue."""
    result = "Interrupted."
    try:
        yield
        result = "Everything passed."
    except Failure as failure:
        result = f"Failed: {failure}"
        raise
    finally:
        deployments = ("--namespace", cluster.NAMESPACE, "get", "deployments", "--output=wide")
        asked = [("version",), ("get", "nodes", "--show-labels"), deployments]
        seen = [f"```\n{cluster.read('kubectl', *words)}```" for words in asked]
        chosen = f"`--steps '{options.steps}' --root {options.root}`"
        table = ["| run | took | tasks | end |", "|---|---|---|---|", *runner.rows]
        page = ["# End-to-end test on Kubeflow", result, chosen, "\n".join(table), *seen]
        (options.output / "report.md").write_text("\n\n".join(page) + "\n")


@contextlib.contextmanager
def _access(url: str) -> Iterator[str]:
    """Reach the store and the interface from here; yield the interface's address."""
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(cluster.forward("ml-pipeline-ui", 80))
        # Google's has its own address, and the credentials of whoever calls.
        if not url.startswith("gs://"):
            store = stack.enter_context(cluster.forward(cluster.find_store(), 9000))
            os.environ.update(cluster.store_environment(store))
        yield endpoint


def play(options: argparse.Namespace, runner: Runner, store: Store) -> None:
    """Run the pipeline five times and check each run."""
    store.mend_images()
    store.put_digits()
    root = ("--kubeflow.pipeline_root", options.root) if options.root else ()
    runner.compile(options.image, store.data, "--kubeflow.steps", options.steps, *root)
    first = runner.run("first")
    check_states(first, ALL_RAN)
    _check_results(first, store, pushed=1)
    check_states(runner.run("second"), ALL_CACHED)
    store.change_image()
    changed = runner.run("changed-image")
    ran = ("ImageExampleGen", "Statistics-Schema", "Trainer")
    check_states(changed, dict.fromkeys(ran, "SUCCEEDED"))
    # Fewer epochs hardly make a better model; a wide limit lets it pass here.
    again = runner.run("against-the-baseline", training_epochs=6, max_accuracy_drop=0.5)
    check_states(again, {"Evaluator-Pusher": "SUCCEEDED"})
    _check_results(again, store, pushed=2)
    store.break_images(_BROKEN)
    check_failed(runner.run("broken-images"), "ImageExampleGen", "are not usable")
    store.mend_images()
    print(f"Everything passed; what was seen is in {options.output}.")


def _check_results(run: RunOutput, store: Store, *, pushed: int) -> None:
    """Check a run's accuracy and the number of pushed models."""
    metrics = store.read_metrics(run.run_id)
    accuracy = metrics["metrics"]["accuracy"]["value"]
    if not accuracy > 0.5:
        raise Failure(f"The accuracy is {accuracy}: the model has learned nothing.")
    if len(versions := store.pushed_versions()) < pushed:
        raise Failure(f"{len(versions)} models are pushed, not {pushed}.")


if __name__ == "__main__":
    sys.exit(main())
