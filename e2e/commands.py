"""Runs and prints the commands of the test: docker, kind, kubectl, our own runner."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field


class Failure(Exception):
    """The test failed; the message says why."""


@dataclass(frozen=True)
class Commands:
    """Runs commands with additional environment variables."""

    env: Mapping[str, str] = field(default_factory=dict)

    def require(self, *programs: str) -> None:
        """Make sure that the programs are installed."""
        if missing := [name for name in programs if shutil.which(name) is None]:
            raise Failure(f"These programs are missing: {', '.join(missing)}.")

    def read(self, *words: str) -> str:
        """Run a command to its end; return what it prints."""
        print(f"+ {shlex.join(words)}", flush=True)
        env = {**os.environ, **self.env}
        done = subprocess.run(words, capture_output=True, text=True, env=env)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-2000:]
            raise Failure(f"{shlex.join(words)} ended with {done.returncode}: {said}")
        return done.stdout

    def follow(self, *words: str) -> tuple[int, str]:
        """Run a command and print its output as it comes; return status and output."""
        print(f"+ {shlex.join(words)}", flush=True)
        env = {**os.environ, **self.env}
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
        )
        assert process.stdout
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
        return process.wait(), "".join(lines)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command in the background."""
        print(f"+ {shlex.join(words)} &", flush=True)
        nothing = subprocess.DEVNULL
        return subprocess.Popen(
            words, stdout=nothing, stderr=nothing, env={**os.environ, **self.env}
        )
