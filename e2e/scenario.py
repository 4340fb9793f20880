"""What runs on the cluster, in order, and what it must result in."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e import cluster
from e2e.commands import Commands, Failure
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


@dataclass(frozen=True)
class Options:
    """The options of the command line."""

    release: str
    image: str
    output: Path
    kubeconfig: str | None = None
    keep: bool = False
    steps: str = "{}"
    root: str | None = None
    namespace: str | None = None
    token_file: str | None = None

    @property
    def url(self) -> str:
        """The pipeline root, given or the cluster's own."""
        private = PRIVATE_ROOT.format(self.namespace) if self.namespace else DEFAULT_ROOT
        return self.root or private


def run(options: Options) -> None:
    """Create or use a cluster, run everything, and clean up."""
    options.output.mkdir(parents=True, exist_ok=True)
    commands = Commands({"KUBECONFIG": options.kubeconfig} if options.kubeconfig else {})
    with _cluster(options, commands), _access(options, commands) as endpoint:
        # A name of its own, as another call has left a cache and pushed models.
        pipeline = time.strftime("images-e2e-%Y%m%d-%H%M%S")
        given = {"--namespace": options.namespace, "--token-file": options.token_file}
        user = [word for name, value in given.items() if value for word in (name, value)]
        runner = Runner(commands, options.output, endpoint, pipeline, user)
        with reporting(options, runner):
            play(options, runner, Store(pipeline, options.url))


@contextlib.contextmanager
def reporting(options: Options, runner: Runner) -> Iterator[None]:
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
        seen = [f"```\n{runner.commands.read('kubectl', *words)}```" for words in asked]
        chosen = f"`--release {options.release} --steps '{options.steps}' --root {options.url}`"
        table = ["| run | took | tasks | end |", "|---|---|---|---|", *runner.rows]
        page = ["# End-to-end test on Kubeflow", result, chosen, "\n".join(table), *seen]
        (options.output / "report.md").write_text("\n\n".join(page) + "\n")


@contextlib.contextmanager
def _cluster(options: Options, commands: Commands) -> Iterator[None]:
    """Provide a cluster with Kubeflow and the image; an existing cluster must have both."""
    if options.kubeconfig:
        commands.require("kubectl")
        yield
        return
    cluster.create(commands)
    try:
        cluster.build_image(commands, options.image)
        cluster.install(commands, options.release)
        yield
    finally:
        if not options.keep:
            cluster.delete(commands)


@contextlib.contextmanager
def _access(options: Options, commands: Commands) -> Iterator[str]:
    """Reach the store and the interface from here; yield the interface's address."""
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(cluster.forward(commands, "ml-pipeline-ui", 80))
        before = dict(os.environ)
        # Google's has its own address, and the credentials of whoever calls.
        if not options.url.startswith("gs://"):
            store = cluster.forward(commands, cluster.find_store(commands), 9000)
            environment = cluster.store_environment(commands, stack.enter_context(store))
            os.environ.update(environment)
        try:
            yield endpoint
        finally:
            os.environ.clear()
            os.environ.update(before)


def play(options: Options, runner: Runner, store: Store) -> None:
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
