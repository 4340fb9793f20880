"""What runs on the cluster, in order, and what it must result in."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e import cluster
from e2e.commands import Commands, Failure
from e2e.runs import (
    NODES,
    Runner,
    RunOutput,
    check_all_cached,
    check_all_ran,
    check_failed,
    check_ran,
)
from e2e.store import DATA, Store
from tests.report.browser import Page, browse, find_chromium

# Seconds for the page to load its data.
_DRAWN = 60
_SIZE = {"width": 1600, "height": 1100, "deviceScaleFactor": 1, "mobile": False}

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
    browser: bool = True


def run(options: Options) -> None:
    """Create or use a cluster, run everything, and clean up."""
    options.output.mkdir(parents=True, exist_ok=True)
    commands = Commands({"KUBECONFIG": options.kubeconfig} if options.kubeconfig else {})
    with _cluster(options, commands), _access(commands) as endpoint:
        # A name of its own, as another call has left a cache and pushed models.
        pipeline = time.strftime("images-e2e-%Y%m%d-%H%M%S")
        play(options, Runner(commands, options.output, endpoint, pipeline), Store(pipeline))


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
def _access(commands: Commands) -> Iterator[str]:
    """Reach the store and the interface from here; yield the interface's address."""
    with (
        cluster.forward(commands, cluster.find_store(commands), 9000) as address,
        cluster.forward(commands, "ml-pipeline-ui", 80) as endpoint,
    ):
        before = dict(os.environ)
        os.environ.update(cluster.store_environment(commands, address))
        try:
            yield endpoint
        finally:
            os.environ.clear()
            os.environ.update(before)


def play(options: Options, runner: Runner, store: Store) -> None:
    """Run the pipeline five times and check each run."""
    store.mend_images()
    store.put_digits()
    runner.compile(options.image, DATA)
    first = runner.run("first")
    check_all_ran(first)
    _check_results(first, store, pushed=1)
    check_all_cached(runner.run("second"))
    store.change_image()
    changed = runner.run("changed-image")
    check_ran(changed, "ImageExampleGen", "StatisticsGen", "Trainer")
    # Fewer epochs hardly make a better model; a wide limit lets it pass here.
    again = runner.run("against-the-baseline", training_epochs=6, max_accuracy_drop=0.5)
    check_ran(again, "BaselineFinder", "Evaluator", "Pusher")
    _check_results(again, store, pushed=2)
    store.break_images(_BROKEN)
    check_failed(runner.run("broken-images"), "ImageExampleGen", "are not usable")
    store.mend_images()
    if options.browser:
        photograph(first.url, options.output, words=NODES, name="graph")
    print(f"Everything passed; pictures are in {options.output}.")


def _check_results(run: RunOutput, store: Store, *, pushed: int) -> None:
    """Check a run's accuracy and the number of pushed models."""
    metrics = store.read_metrics(run.run_id)
    accuracy = metrics["metrics"]["accuracy"]["value"]
    if not accuracy > 0.5:
        raise Failure(f"The accuracy is {accuracy}: the model has learned nothing.")
    if len(versions := store.pushed_versions()) < pushed:
        raise Failure(f"{len(versions)} models are pushed, not {pushed}.")


def photograph(url: str, folder: Path, *, words: list[str], name: str) -> Path:
    """Open a page, wait until it shows all `words`, and save a picture."""
    if find_chromium() is None:
        raise Failure(
            "Chromium is missing: install it, or leave out the pictures with --no-browser."
        )
    picture = folder / f"{name}.png"
    # Chromium may still write to its profile while it ends.
    folder_of_profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with folder_of_profile as profile, browse(Path(profile)) as page:
        page.call("Emulation.setDeviceMetricsOverride", **_SIZE)
        page.call("Page.navigate", url=url)
        missing = _wait(page, words)
        page.photograph(picture)
    if missing:
        raise Failure(f"{url} does not show {', '.join(missing)}; see {picture}.")
    return picture


def _wait(page: Page, words: list[str]) -> list[str]:
    """Wait until the page shows the words; return the missing ones."""
    deadline, missing = time.monotonic() + _DRAWN, words
    while missing and time.monotonic() < deadline:
        shown = str(page.evaluate("document.body ? document.body.innerText : ''"))
        missing = [word for word in words if word not in shown]
        time.sleep(0.2)
    return missing
