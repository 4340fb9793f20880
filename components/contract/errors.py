"""The one exception whose text is meant for the user, not for a developer."""


class UserError(Exception):
    """A mistake in the input or the configuration, said in one sentence with what to do about it.

    Runners print its text alone, without a traceback, and exit with status 2.
    """
