"""S3 and compatible stores through s3fs, with our own retries."""

import base64
import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
from botocore import exceptions  # type: ignore[import-untyped]
from fsspec.asyn import sync_wrapper
from obstore.store import S3Store
from s3fs import S3FileSystem

from components.storage import retry
from components.storage.retry import Retrier

_DEFAULT_REGION = "us-east-1"
# How obstore words a temporary HTTP status.
_OVERLOAD = re.compile(r"status code: (5\d\d|429)")
# By default, obstore gives up a response after 30 s, even while it arrives.
_LONGEST_READ = timedelta(days=1)
# In a row, before only s3fs reads a bucket, such as one of another region.
_MOST_FAILURES = 20


class _OverloadError(OSError):
    """The store answers with a temporary HTTP status."""


class S3Client(S3FileSystem):
    """s3fs with our retries: its own are neither logged nor counted.

    Every request of s3fs passes `_call_s3`, which has no public hook.
    """

    retries = 1
    _process = 0
    """Id of the process that uses obstore; 0: none yet."""

    def __init__(self, **options: Any) -> None:
        """Take the options of s3fs."""
        super().__init__(**options)
        self._retrier = Retrier(_find_cause)
        self._stores: dict[str, tuple[Any, S3Store]] = {}
        """Bucket → credentials, and its store with them."""
        self._read: set[str] = set()
        """Buckets that obstore has read."""
        self._failures: dict[str, int] = {}
        """Bucket → reads of obstore that have failed since the last one that succeeded."""

    async def _call_s3(self, method: str, *args: Any, **options: Any) -> Any:
        once = functools.partial(super()._call_s3, method, *args, **options)
        name = "/".join(str(options[key]) for key in ("Bucket", "Key") if key in options)
        return await self._retrier.call(once, kind=method, request=f"{method} {name}")

    async def _lsdir(self, path: str, *args: Any, **options: Any) -> Any:
        once = functools.partial(super()._lsdir, path, *args, **options)
        return await self._retrier.call(once, kind="list", request=f"list {path}")

    async def _cat_file(self, path: str, *args: Any, **options: Any) -> bytes:
        # `_call_s3` returns before the body arrives.
        once = functools.partial(super()._cat_file, path, *args, **options)
        data: bytes = await self._retrier.call(once, kind="content", request=f"get_object {path}")
        return data

    call_s3 = sync_wrapper(_call_s3)

    async def read_version(self, path: str, version: str, end: int | None = None) -> bytes:
        """Read an object, or its first `end` bytes, if its ETag is still `version`.

        Raises:
            FileNotFoundError: there is no longer an object of that name.
            FileExistsError: the object has changed; S3 lists no checksums that would tell.
        """
        bucket, _, key = path.partition("/")
        conditions = {"IfMatch": version, **({"Range": f"bytes=0-{end - 1}"} if end else {})}

        async def attempt() -> bytes:
            data = await self._read_directly(bucket, key, version, end)
            if data is not None:
                return data
            # Also to find out what is wrong.
            response = await super(S3Client, self)._call_s3(
                "get_object", Bucket=bucket, Key=key, **conditions
            )
            with contextlib.closing(response["Body"]) as body:
                return bytes(await body.read())

        with _reporting_changes(path):
            return await self._retrier.call(attempt, kind="content", request=f"get_object {path}")

    async def _read_directly(
        self, bucket: str, key: str, version: str, end: int | None
    ) -> bytes | None:
        """Read an object with obstore; return None if s3fs is to read it, which can do more.

        s3fs takes several times the CPU time for a request.
        """
        client = await self.set_session()
        credentials = await self.session.get_credentials()
        # obstore has threads, which a forked process lacks, and strips names of slashes.
        S3Client._process = S3Client._process or os.getpid()
        is_usual = S3Client._process == os.getpid() and key == key.strip("/")
        has_failed = self._failures.get(bucket, 0) >= _MOST_FAILURES
        if credentials is None or self.anon or self.key or not is_usual or has_failed:
            return None
        frozen = await credentials.get_frozen_credentials()
        options: Any = {"if_match": version, **({"range": (0, end)} if end else {})}
        # obstore takes further options from the environment, and panics at some of them.
        try:
            if self._stores.get(bucket, (None,))[0] != frozen:
                self._stores[bucket] = frozen, self._open_directly(bucket, client.meta, frozen)
            response = await self._stores[bucket][1].get_async(key, options=options)
            data = bytes(await response.bytes_async())
        except Exception as error:
            # Before a first read, this may be a proxy that s3fs would not ask.
            if bucket in self._read and (status := _OVERLOAD.search(str(error))):
                raise _OverloadError(f"HTTP status {status[1]}") from error
        else:
            # Some stores ignore the condition, so this may be another object.
            if response.meta["e_tag"] in (None, version):
                self._read.add(bucket)
                self._failures[bucket] = 0
                return data
        self._failures[bucket] = self._failures.get(bucket, 0) + 1
        return None

    def _open_directly(self, bucket: str, meta: Any, credentials: Any) -> S3Store:
        silence = timedelta(seconds=retry.RETRY_POLICY.silence)
        limits = {"connect_timeout": silence, "read_timeout": silence, "timeout": _LONGEST_READ}
        options: Any = {"allow_http": True, **limits}
        if authorities := self.session.get_config_variable("ca_bundle"):
            options["root_certificate"] = Path(authorities).read_bytes()
        return S3Store(
            bucket,
            # An endpoint in the environment, even an empty one, would precede `endpoint`.
            config={"aws_endpoint_url_s3": meta.endpoint_url},
            region=meta.region_name.replace("aws-global", _DEFAULT_REGION),
            access_key_id=credentials.access_key,
            secret_access_key=credentials.secret_key,
            **({"session_token": credentials.token} if credentials.token else {}),
            client_options=options,
            retry_config={"max_retries": 0},
            # The environment may ask for other requests.
            virtual_hosted_style_request=False,
            skip_signature=False,
        )

    async def write_version(self, path: str, data: bytes, version: str) -> str:
        """Replace the object with ETag `version`, or create it if that is ""; return the new ETag.

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
            with _reporting_changes(path):
                response = await self._call_s3(
                    "put_object", Bucket=bucket, Key=key, Body=data, **sent
                )
        except FileExistsError:
            # An earlier attempt may have written it although its response was lost.
            response = await self._call_s3("head_object", Bucket=bucket, Key=key)
            if response["ETag"].strip('"') != digest.hexdigest():
                raise
        return str(response["ETag"])

    async def delete_version(self, path: str, version: str) -> None:
        """Delete an object, whatever its version: S3 has no condition for deletions."""
        bucket, _, key = path.partition("/")
        await self._call_s3("delete_object", Bucket=bucket, Key=key)


@contextlib.contextmanager
def _reporting_changes(path: str) -> Iterator[None]:
    """Turn S3's failed precondition into `FileExistsError`."""
    try:
        yield
    except OSError as error:
        if error_code(error) in ("PreconditionFailed", "412"):
            raise FileExistsError(path) from error
        raise


_TEMPORARY = {"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException"}


def _find_cause(error: Exception) -> str | None:
    """Describe a temporary error in a few words; return None for others."""
    if isinstance(error, exceptions.ReadTimeoutError | exceptions.ConnectTimeoutError):
        return "a timeout"
    if isinstance(error, exceptions.EndpointConnectionError):
        return "no connection"
    if isinstance(error, exceptions.ConnectionError | exceptions.HTTPClientError):
        return "a lost connection"
    if isinstance(error, _OverloadError):
        return str(error)
    if isinstance(error, aiohttp.ClientError | TimeoutError | ConnectionError):
        return "a truncated response"
    response = getattr(error.__cause__, "response", None) or {}
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return f"HTTP status {status}" if status >= 500 or error_code(error) in _TEMPORARY else None


def error_code(error: Exception) -> str:
    """Return S3's code of an error; "" if S3 has sent none."""
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))
