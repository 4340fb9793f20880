"""Runs the programs that the test needs (docker, kind, kubectl, our own runner), and shows them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field


class Failure(Exception):
    """The test cannot go on, or found something wrong; the message says what."""


@dataclass(frozen=True)
class Commands:
    """Runs commands with a few variables more than this process has."""

    env: Mapping[str, str] = field(default_factory=dict)

    def require(self, *programs: str) -> None:
        """Make sure that the programs are installed.

        Raises:
            Failure: names all that are missing.
        """
        if missing := [name for name in programs if shutil.which(name) is None]:
            raise Failure(f"These programs are missing: {', '.join(missing)}.")

    def read(self, *words: str, given: str | None = None) -> str:
        """Run a command to its end; return what it prints.

        Raises:
            Failure: it fails; the message ends with what it said.
        """
        done = self.attempt(*words, given=given)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-2000:]
            raise Failure(f"{shlex.join(words)} ended with {done.returncode}: {said}")
        return done.stdout

    def attempt(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, whatever its status is."""
        print(f"+ {shlex.join(words)}", flush=True)
        env = {**os.environ, **self.env}
        return subprocess.run(words, input=given, capture_output=True, text=True, env=env)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command that goes on until it is terminated."""
        print(f"+ {shlex.join(words)} &", flush=True)
        nothing = subprocess.DEVNULL
        return subprocess.Popen(
            words, stdout=nothing, stderr=nothing, env={**os.environ, **self.env}
        )
