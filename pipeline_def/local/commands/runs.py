"""`local_runner.py runs`: lists and compares runs."""

from collections.abc import Sequence

from components.contract.errors import ConfigurationError
from pipeline_def.config.command_line import parse
from pipeline_def.local.output.folder import RECORDS, open_output
from pipeline_def.local.output.locations import find_runs
from pipeline_def.runs.table import show_runs

USAGE = """usage: local_runner.py runs [--output DIR] [--compare A B]

Lists the runs of an output folder, newest last, with the options that you set
and their results.

  --output DIR   the folder: output
  --compare A B  write a page: is run B better than run A, on which images, and
                 what differs. A run is its number in the list, its id, the
                 version that it pushed, or an output folder, for its newest run
  --to FILE      the page: comparison.html in the output folder of run B
  --json         print the list as JSON
"""


def manage_runs(arguments: Sequence[str]) -> int:
    """List the runs of an output folder, or compare two."""
    config, options = parse(
        arguments,
        prog="local_runner.py runs",
        usage=USAGE,
        only={"output"},
        extra={"compare": 2, "to": 1, "json": 0},
    )
    wanted = options["compare"]
    if options["to"] and not wanted:
        raise ConfigurationError("--to needs --compare A B.")
    if options["json"] and wanted:
        raise ConfigurationError("--json is for the list of runs.")
    output = find_runs(config)
    if not wanted:
        show_runs(open_output(output, RECORDS).folder, as_json=options["json"])
        return 0

    from pipeline_def.local.commands.comparison import show_comparison

    # Not only records: a comparison also reads artifacts.
    opened = open_output(output)
    show_comparison(wanted, opened.folder, to=options["to"])
    opened.store()
    return 0
