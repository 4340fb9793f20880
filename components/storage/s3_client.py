"""S3 and what speaks its protocol, through s3fs, with one rule for what is asked again."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
from collections.abc import Iterator
from typing import Any

import aiohttp
from botocore import exceptions  # type: ignore[import-untyped]
from fsspec.asyn import sync_wrapper
from s3fs import S3FileSystem

from components.storage.retry import Retrier, error_code


class S3Client(S3FileSystem):
    """s3fs, which asks again by the rule of all stores; its own attempts nobody would see."""

    retries = 1

    def __init__(self, **options: Any) -> None:
        """Take the options of s3fs."""
        super().__init__(**options)
        self._retrier = Retrier(_find_cause)

    async def _call_s3(self, method: str, *args: Any, **options: Any) -> Any:
        once = functools.partial(super()._call_s3, method, *args, **options)
        name = "/".join(str(options[key]) for key in ("Bucket", "Key") if key in options)
        return await self._retrier.call(once, kind=method, request=f"{method} {name}")

    async def _lsdir(self, path: str, *args: Any, **options: Any) -> Any:
        once = functools.partial(super()._lsdir, path, *args, **options)
        return await self._retrier.call(once, kind="list", request=f"list {path}")

    async def _cat_file(self, path: str, *args: Any, **options: Any) -> bytes:
        # The body comes after the answer that `_call_s3` waits for.
        once = functools.partial(super()._cat_file, path, *args, **options)
        data: bytes = await self._retrier.call(once, kind="content", request=f"get_object {path}")
        return data

    call_s3 = sync_wrapper(_call_s3)

    async def read_version(self, path: str, version: str, end: int | None = None) -> bytes:
        """Read an object, or its first `end` bytes, if its ETag is still `version`.

        Raises:
            FileNotFoundError: there is no object of that name any more.
            FileExistsError: it has changed; a listing of S3 has no checksums to tell.
        """
        bucket, _, key = path.partition("/")
        wanted = {"IfMatch": version, **({"Range": f"bytes=0-{end - 1}"} if end else {})}

        async def attempt() -> bytes:
            answer = await super(S3Client, self)._call_s3(
                "get_object", Bucket=bucket, Key=key, **wanted
            )
            try:
                data: bytes = await answer["Body"].read()
            finally:
                answer["Body"].close()
            return data

        with _telling_changes(path):
            return await self._retrier.call(attempt, kind="content", request=f"get_object {path}")

    async def write_version(self, path: str, data: bytes, version: str) -> str:
        """Write an object in place of one with the ETag `version`, "" for none; return the new one.

        Raises:
            FileExistsError: somebody else has written the object meanwhile.
        """
        bucket, _, key = path.partition("/")
        digest = hashlib.md5(data, usedforsecurity=False)
        sent = {
            **({"IfMatch": version} if version else {"IfNoneMatch": "*"}),
            "ContentMD5": base64.b64encode(digest.digest()).decode(),
        }
        try:
            with _telling_changes(path):
                answer = await self._call_s3(
                    "put_object", Bucket=bucket, Key=key, Body=data, **sent
                )
        except FileExistsError:
            # An earlier attempt may have written it, and its answer was lost.
            answer = await self._call_s3("head_object", Bucket=bucket, Key=key)
            if answer["ETag"].strip('"') != digest.hexdigest():
                raise
        return str(answer["ETag"])

    async def delete_version(self, path: str, version: str) -> None:
        """Delete an object; S3 knows no condition for it."""
        bucket, _, key = path.partition("/")
        await self._call_s3("delete_object", Bucket=bucket, Key=key)


@contextlib.contextmanager
def _telling_changes(path: str) -> Iterator[None]:
    """Turn the answer that an object is not as it was into `FileExistsError`."""
    try:
        yield
    except OSError as error:
        if error_code(error) in ("PreconditionFailed", "412"):
            raise FileExistsError(path) from error
        raise


_PASSING = {"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException"}


def _find_cause(error: Exception) -> str | None:
    """Say in a few words what passes; None for an error that stays."""
    if isinstance(error, exceptions.ReadTimeoutError | exceptions.ConnectTimeoutError):
        return "no answer"
    if isinstance(error, exceptions.EndpointConnectionError):
        return "no connection"
    if isinstance(error, exceptions.ConnectionError | exceptions.HTTPClientError):
        return "a lost connection"
    if isinstance(error, aiohttp.ClientError | TimeoutError | ConnectionError):
        return "an answer that broke off"
    response = getattr(error.__cause__, "response", None) or {}
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return f"HTTP status {status}" if status >= 500 or error_code(error) in _PASSING else None
