"""Errors whose text is for the user: one sentence on what is wrong and what to do.

Runners print the sentence without a traceback, and exit with the status of the class. Code
distinguishes errors by class, never by text.
"""


class UserError(Exception):
    """A mistake that the user can fix; raise one of the classes below."""

    exit_status = 2


class ConfigurationError(UserError, ValueError):
    """A configuration value, an option or a parameter is wrong."""


class DataError(UserError):
    """The images, their folders, a manifest or a schema cannot be used."""


class StorageError(UserError):
    """A disk or a bucket cannot be reached, read or written."""


class ResourceError(UserError):
    """The machine lacks a resource such as memory."""


class ModelError(UserError):
    """A model or its weights cannot be loaded, or do not match the data."""


class ServiceError(UserError):
    """Kubeflow Pipelines or Vertex AI refused a request, or did not respond."""


class WorkerError(UserError):
    """Another worker of a distributed training has ended; all must be restarted.

    By this exit status the step that started the workers knows it from the first failure.
    """

    exit_status = 138
