"""Fuzz a target with its own corpus and limits of time and memory.

`uv run -m tests.fuzz.NAME --seconds 600 [--folder DIR]` keeps the growing corpus and any failing
input, `found` or named by libFuzzer, in the folder; the next session continues from there.
"""

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

import atheris

SLOWEST = 10
"""Seconds that one input may take."""

_MEMORY_MIB = 2560


def fuzz(
    check: Callable[[bytes], None],
    seeds: Iterable[bytes],
    *,
    words: Iterable[str] = (),
    longest: int = 4096,
) -> None:
    """Fuzz `check` for the time on the command line, then exit.

    Args:
        check: raises for a finding.
        seeds: first inputs.
        words: text that libFuzzer inserts besides random bytes.
        longest: largest input in bytes.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="How long to fuzz.")
    parser.add_argument("--folder", type=Path, help="Folder of the corpus and the findings.")
    parser.add_argument("--runs", type=int, default=-1, help="Most inputs; -1 for any number.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of libFuzzer; 0 for the clock.")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="fuzz-"))
    corpus, dictionary = folder / "corpus", folder / "words.txt"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number:03}").write_bytes(seed)
    dictionary.write_text("".join(f'"{word}"\n' for word in words), encoding="utf-8")
    limits = [f"-max_total_time={given.seconds}", f"-timeout={SLOWEST}", f"-max_len={longest}"]
    # Allow long inputs from the start, and keep them beside shorter ones.
    limits += ["-len_control=0", "-reduce_inputs=0"]
    limits += [f"-runs={given.runs}", f"-seed={given.seed}"]
    limits += [f"-rss_limit_mb={_MEMORY_MIB}", f"-dict={dictionary}", f"-artifact_prefix={folder}/"]

    def check_or_end(data: bytes) -> None:
        try:
            check(data)
        except BaseException:
            # TensorFlow's threads may keep the process from exiting.
            traceback.print_exc()
            (folder / "found").write_bytes(data)
            os._exit(1)

    atheris.Setup([sys.argv[0], *limits, str(corpus)], check_or_end)
    atheris.Fuzz()


def check_sentence(error: Exception) -> None:
    """Assert that a message is a sentence: neither empty nor a page."""
    assert 0 < len(str(error)) < 2_000, f"no sentence: {type(error).__name__}"
