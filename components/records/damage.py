"""What readers say of files whose bytes are not those that were written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from components.contract.errors import StorageError, UserError


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn what a reader raises over the bytes of a file into a sentence.

    Args:
        path: path or URL of the file, which is there.

    Raises:
        StorageError: the file is damaged.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # From IndexError to what NumPy's parser of headers raises.
        raise StorageError(
            f"{path} is damaged ({error}): remove the output folder, and run again."
        ) from error
