"""Compare the outputs of two revisions: `uv run .ci/compare_outputs.py REVISION RUN_OPTIONS...`.

Runs the pipeline of REVISION and of the working tree with the same options, such as --data DIR, and
compares shards, weights, metrics and predictions byte for byte. Use it for changes that must not
alter results.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

_ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Return 1 if an output differs."""
    revision, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder, "source")
        git = ["git", "-C", str(_ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(before), revision], check=True)
        try:
            old = run_pipeline(before, Path(folder, "old"), options)
            new = run_pipeline(_ROOT, Path(folder, "new"), options)
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    different = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    for name in different:
        print(f"{name}: {old.get(name, 'missing')} in {revision}, now {new.get(name, 'missing')}")
    print(f"{len(old)} outputs compared, {len(different)} differ")
    return 1 if different else 0


def run_pipeline(source: Path, output: Path, options: list[str]) -> dict[str, str]:
    """Run the pipeline of a source tree; return the digest of each output."""
    # Of revisions that run the digits only if they are asked for them.
    asks = "--sample" in (source / "pipeline_def/local/commands/run.py").read_text()
    sample = ["--sample"] if asks and "--data" not in options else []
    command = [sys.executable, "local_runner.py", *sample, *options, "--output", str(output)]
    subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)
    return dict(digest_outputs(output))


def digest_outputs(output: Path) -> Iterator[tuple[str, str]]:
    """Yield a name and a digest for each shard, for the weights, metrics and predictions."""
    patterns = {
        "ImageExampleGen/examples": "**/data_tfrecord*",
        "Transform/transformed_examples": "**/data_tfrecord*",
        "Trainer/model": "**/variables.data*",
    }
    for artifact, pattern in patterns.items():
        [folder] = (output / "artifacts" / artifact).iterdir()
        for path in sorted(folder.glob(pattern)):
            yield f"{artifact}/{path.relative_to(folder)}", _digest(path.read_bytes())
    summary = json.loads((output / "summary.json").read_text())
    for key in ("examples", "metrics", "outcome"):
        yield f"summary.json: {key}", _digest(json.dumps(summary[key], sort_keys=True).encode())
    [predictions] = (output / "artifacts" / "Evaluator" / "evaluation").glob("*/*.parquet")
    # Parquet files name the library that wrote them.
    yield "predictions", _digest(pd.read_parquet(predictions).to_csv().encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
