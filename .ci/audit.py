"""Asks pip-audit for known vulnerabilities of the packages in uv.lock, except those listed below.

If no vulnerability service can be reached, it says so and succeeds, so that work can continue.
pip-audit would then report all packages as "not found" and succeed, too, so this first asks about a
package that is known to be vulnerable.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# Vulnerability → why it is harmless here. Review these when the lock file changes.
EXCEPTIONS = {
    # tfx-bsl 1.16 and TFDV 1.16 were built with pyarrow 10.0.1 and take no later one.
    "CVE-2023-47248": "Parquet: components/ingest/source/manifest.py imports pyarrow_hotfix",
}
_KNOWN_TO_BE_VULNERABLE = "pyarrow==10.0.1"
_OPTIONS = ("--no-deps", "--disable-pip", "--progress-spinner=off", "--timeout=15", "--format=json")
_LONGEST = 300


def main() -> int:
    """Audit the lock file; return 1 if it has vulnerabilities other than the exceptions."""
    if not any(dependency.get("vulns") for dependency in _audit(_KNOWN_TO_BE_VULNERABLE)):
        print("pip-audit: no vulnerability service can be reached, so nothing was audited.")
        return 0
    export = ["uv", "export", "--frozen", "--no-hashes", "--no-emit-project", "--all-extras"]
    locked = subprocess.run(export, capture_output=True, text=True, check=True).stdout
    dependencies = _audit(locked)
    if not dependencies:
        print("pip-audit: the vulnerability service stopped answering: nothing was audited.")
        return 0
    found = [(one["name"], vuln) for one in dependencies for vuln in one.get("vulns", ())]
    unknown = [(name, vuln) for name, vuln in found if not _is_excepted(vuln)]
    for name, vuln in unknown:
        fixed = ", ".join(vuln["fix_versions"]) or "no version"
        print(f"pip-audit: {name}: {vuln['id']}, fixed in {fixed}")
    skipped = sum("skip_reason" in one for one in dependencies)
    print(
        f"pip-audit: {len(dependencies)} packages, {skipped} of them not audited; "
        f"{len(found) - len(unknown)} vulnerabilities are exceptions, {len(unknown)} are not."
    )
    return 1 if unknown else 0


def _is_excepted(vuln: dict[str, Any]) -> bool:
    return bool(EXCEPTIONS.keys() & {vuln["id"], *vuln["aliases"]})


def _audit(requirements: str) -> list[dict[str, Any]]:
    """Return pip-audit's findings for each package, or nothing if it fails or takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "requirements.txt")
        file.write_text(requirements, encoding="utf-8")
        command = ["pip-audit", "--requirement", str(file), *_OPTIONS]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_LONGEST, check=False
            )
            dependencies: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
        except (subprocess.TimeoutExpired, ValueError, LookupError):
            return []
    return dependencies


if __name__ == "__main__":
    sys.exit(main())
