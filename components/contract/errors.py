"""Every error whose text is meant for the user: one sentence, what was wrong and what to do.

Runners print the sentence alone, without a traceback, and exit with the status of the class. Code
tells errors apart by their class, never by their text.
"""

from __future__ import annotations


class UserError(Exception):
    """A mistake that a user can mend; raise one of the classes below."""

    exit_status = 2


class ConfigurationError(UserError, ValueError):
    """A value of the configuration, an option or a parameter is wrong."""


class DataError(UserError):
    """The images, their folders, a manifest or a schema cannot be used as they are."""


class StorageError(UserError):
    """A disk, a bucket or a store cannot be reached, read or written."""


class ResourceError(UserError):
    """The machine has too little of what the work takes, such as memory."""


class ModelError(UserError):
    """A model or its weights cannot be loaded, or do not fit the data."""


class ServiceError(UserError):
    """The API of Kubeflow Pipelines or Vertex AI refused a request, or did not answer."""


class WorkerError(UserError):
    """Another worker of a distributed training is gone; all must be started again.

    The exit status is one that Kubeflow's training operator takes for an error after which another
    attempt makes sense. Source: `restartPolicy: ExitCode` in the reference of TFJob.
    """

    exit_status = 138
