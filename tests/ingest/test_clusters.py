"""The pipeline on Flink and Spark: only `beam_pipeline_args` changes.

Beam's job server, a Java process, brings a small cluster; the Python code runs in worker processes,
as it would beside the machines of a large one.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import nodes
from tests.beam_server import serving
from tests.missing import lack

# One process starts the servers.
pytestmark = [pytest.mark.xdist_group("clusters"), pytest.mark.weekly]

_POM = Path(__file__).with_name("job_servers") / "pom.xml"
_SERVERS = {
    "flink": (
        ["flink.FlinkJobServerDriver", "--flink-master=[local]"],
        r"Job \S+ \(\w+\) switched from state RUNNING to FINISHED",
    ),
    "spark": (
        ["spark.SparkJobServerDriver", "--spark-master-url=local[2]"],
        r"SparkPipelineRunner - Job \S+ finished",
    ),
}
"""Cluster → its job server, with an option for a cluster of its own; what it logs after a job."""
# They depend on the place or time of a run, or name what TensorFlow numbers.
_OF_A_RUN = re.compile(
    r"ImageReport/|Pusher/|model_run/|eval_config.json|saved_model.pb|fingerprint.pb|/SchemaDiff.pb"
    r"|FeatureStats.pb"  # Sums, whose last digits depend on the order of the shards.
)
# Of Java, for Spark.
_OPENED = [f"java.{n}" for n in ("lang", "lang.invoke", "net", "nio", "util", "util.concurrent")]
_OPENED += ["sun.nio.ch"]
_DOWNLOAD_SECONDS = 600


@dataclass(frozen=True)
class Cluster:
    """Arguments for a running job server and the pool that starts Python workers for it."""

    beam_args: tuple[str, ...]
    log: Path
    finished: str
    """Pattern of what the log says of a finished job."""


@pytest.fixture(scope="module", params=["flink", "spark"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    for tool in ("java", "mvn", "timeout"):
        if shutil.which(tool) is None:
            lack("java", f"{tool} is not installed")
    folder, name = tmp_path_factory.mktemp("cluster"), request.param
    job_server, job_server_log = _job_server_command(folder, name), folder / "job_server.log"
    # It starts its workers as `python`, which `serving` makes the one that runs the tests.
    pool = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", "--service_port=0"]
    with (
        serving(job_server, job_server_log, "JobService started on") as job_endpoint,
        serving(pool, folder / "pool.log", "Started worker pool servicer at port:") as worker_pool,
    ):
        beam_args = (
            *("--runner=PortableRunner", f"--job_endpoint={job_endpoint}"),
            *("--environment_type=EXTERNAL", f"--environment_config={worker_pool}"),
            *("--parallelism=2", "--sdk_worker_parallelism=2", "--environment_cache_millis=60000"),
        )
        yield Cluster(beam_args, job_server_log, _SERVERS[name][1])


def _job_server_command(folder: Path, name: str) -> list[str]:
    [driver, own_cluster], _ = _SERVERS[name]
    opened = (f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED)
    # Any free port; -1 is for no service at all.
    ports = ("--job-port=0", "--artifact-port=0", "--expansion-port=-1")
    return [
        *("java", "-Xmx512m", *opened, f"-Djava.io.tmpdir={folder}"),
        *("-cp", _class_path(folder, name), f"org.apache.beam.runners.{driver}"),
        *(own_cluster, *ports, f"--artifacts-dir={folder}"),
    ]


def _class_path(folder: Path, name: str) -> str:
    """Have Maven download the job server, and skip the tests if that cannot be."""
    listed = folder / "class_path"
    command = ["mvn", "-B", "-q", "-f", str(_POM), f"-P{name}", "validate"]
    limited = ["timeout", str(_DOWNLOAD_SECONDS), *command, f"-Dmdep.outputFile={listed}"]
    maven = subprocess.run(limited, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if maven.returncode:
        before, _, after = (maven.stdout + maven.stderr).partition("[ERROR] ")
        reason, _, _ = (after or before).strip().partition("\n")
        lack("java", f"Maven cannot get the job server: {reason or 'it takes too long'}")
    return listed.read_text()


def run_pipeline(images: Path, output: Path, beam_args: Sequence[str]) -> dict[str, bytes]:
    """Run all steps, with ImagePredictor; return what they write."""
    command = [sys.executable, "local_runner.py", f"--data={images}", f"--output={output}"]
    command += [f"--predict.folder={images}/red", "--model.name=cnn", "--training.epochs=1"]
    command += [f"--beam_pipeline_args={json.dumps(list(beam_args))}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files = (path for path in (output / "artifacts").glob("*/*/*/**/*") if path.is_file())
    # Without the number of the step's execution.
    by_name = {re.sub(r"/\d+/", "/", str(path.relative_to(output))): path for path in files}
    return {name: path.read_bytes() for name, path in by_name.items() if not _OF_A_RUN.search(name)}


@pytest.fixture(scope="module")
def in_memory(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return run_pipeline(image_folder, tmp_path_factory.mktemp("in_memory"), nodes.IN_MEMORY)


def test_whole_pipeline_on_a_cluster_as_in_memory(
    cluster: Cluster, in_memory: dict[str, bytes], image_folder: Path, tmp_path: Path
) -> None:
    before = len(re.findall(cluster.finished, cluster.log.read_text()))
    on_cluster = run_pipeline(image_folder, tmp_path, cluster.beam_args)
    assert on_cluster.keys() == in_memory.keys()
    assert [name for name in on_cluster if on_cluster[name] != in_memory[name]] == []
    # Ingest, Transform, evaluation, prediction; so few images are counted without Beam.
    assert len(re.findall(cluster.finished, cluster.log.read_text())) - before == 4
