"""Import everything that a run imports, for the server of `programs`."""

import importlib

from components.host.startup import quick_imports

with quick_imports():
    for name in (
        "local_runner",
        "components.trainer.run_fn",
        "pipeline_def.local.commands.run",
        "pipeline_def.local.summary_table",
        "pipeline_def.local.execution",
        "pipeline_def.local.first_look",
        "pipeline_def.local.output.integrity",
        "pipeline_def.local.preparation",
        "pipeline_def.local.results",
        "pipeline_def.local.runner",
        "pipeline_def.pipeline",
    ):
        importlib.import_module(name)
