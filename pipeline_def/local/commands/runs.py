"""`local_runner.py runs`: lists, compares and prunes runs."""

from collections.abc import Sequence

from components.contract.errors import ConfigurationError
from pipeline_def.config.command_line import parse
from pipeline_def.config.config import Config
from pipeline_def.config.options import list_options
from pipeline_def.layout import Layout
from pipeline_def.local.output.checks import lock_output
from pipeline_def.local.output.folder import RECORDS, open_output, working_folder
from pipeline_def.local.output.locations import find_runs
from pipeline_def.runs.table import show_runs

USAGE = """usage: local_runner.py runs [--output DIR]
                            [--compare A B | --prune N [--yes]]

Lists the runs of an output folder, newest last, with the options that
you set and their results.

  --output DIR   the folder: output
  --compare A B  write a page: is run B better than run A, on which images, and
                 what differs. A run is its number in the list, its id, the
                 version that it pushed, or an output folder, for its newest run
  --to FILE      the page: comparison.html in the output folder of run B
  --json         print the list as JSON
  --prune N      print which artifacts neither the newest N finished runs, nor
                 later ones, nor the current model need; with --yes, remove
                 them. Records and pushed models stay
"""
# Option → how many values it takes.
_OPTIONS = {"compare": 2, "to": 1, "json": 0, "prune": 1, "yes": 0}


def manage_runs(arguments: Sequence[str]) -> int:
    """List the runs of an output folder, compare two, or prune them."""
    others = {name for name in list_options() if name != "output"}
    config, options = parse(
        arguments, prog="local_runner.py runs", usage=USAGE, hidden=others, own=_OPTIONS
    )
    if options["to"] and not options["compare"]:
        raise ConfigurationError("--to needs --compare A B.")
    if options["json"] and (options["compare"] or options["prune"]):
        raise ConfigurationError("--json is for the list of runs.")
    if options["yes"] and not options["prune"]:
        raise ConfigurationError("--yes needs --prune N.")
    config = find_runs(config)
    if options["prune"]:
        _prune(config, options["prune"], confirmed=options["yes"])
    elif options["compare"]:
        _compare(config, options["compare"], to=options["to"])
    else:
        config, _ = open_output(config, RECORDS)
        show_runs(config.output, as_json=options["json"])
    return 0


def _compare(config: Config, wanted: Sequence[str], *, to: str | None) -> None:
    from pipeline_def.local.commands.comparison import show_comparison

    # Not only records: a comparison also reads artifacts.
    config, opened = open_output(config)
    first, second = wanted
    show_comparison((first, second), config.output, to=to)
    opened.store()


def _prune(config: Config, wanted: str, *, confirmed: bool) -> None:
    from pipeline_def.local.output.prune import prune

    with lock_output(Layout(working_folder(config))):
        config, opened = open_output(config)
        prune(config.output, wanted, confirmed=confirmed)
        opened.store()
