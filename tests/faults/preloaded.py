"""Import everything that a run imports, for the server of `programs`."""

from pipeline_def.startup import quick_imports

with quick_imports():
    import local_runner  # noqa: F401
    import pipeline_def.local.commands.prune
    import pipeline_def.local.commands.run
    import pipeline_def.local.display.summary_table
    import pipeline_def.local.execution
    import pipeline_def.local.first_look
    import pipeline_def.local.output.integrity
    import pipeline_def.local.preparation
    import pipeline_def.local.results
    import pipeline_def.local.runner
    import pipeline_def.pipeline
    import pipeline_def.training.run_fn  # noqa: F401
