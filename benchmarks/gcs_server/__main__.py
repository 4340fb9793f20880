"""Serve local folders as buckets of Cloud Storage; the address is printed."""

import argparse
import signal
from pathlib import Path

from benchmarks.gcs_server import GcsServer


def main() -> None:
    """Serve folders until the process is told to stop."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gcs_server", description=__doc__)
    parser.add_argument("--folder", action="append", default=[], metavar="BUCKET=DIR")
    parser.add_argument("--latency-ms", type=float, default=0)
    parser.add_argument("--stream-mbps", type=float, default=0)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key", type=Path, help="write a throw-away account key for Beam there")
    args = parser.parse_args()
    folders = dict(folder.split("=", 1) for folder in args.folder)
    # Blocked before the server's thread begins, which inherits it: they wait for sigwait.
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    with GcsServer(
        folders, latency_ms=args.latency_ms, stream_mbps=args.stream_mbps, port=args.port
    ) as server:
        if args.key:
            server.write_key(args.key)
        print(server.endpoint, flush=True)
        signal.sigwait(stops)


if __name__ == "__main__":
    main()
