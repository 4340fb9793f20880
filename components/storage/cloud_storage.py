"""Google Cloud Storage, `gs://`, through gcsfs, with one rule for what is asked again."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from typing import Any

import aiohttp
import fsspec
import google.auth
import google.auth.exceptions
import requests
from gcsfs import GCSFileSystem
from gcsfs.retry import ChecksumError, HttpError
from google.auth.transport.requests import Request

from components.contract.errors import StorageError
from components.storage import retry
from components.storage.cloud_upload import crc32c_of, send
from components.storage.retry import Asker

_SIGN_IN = "`gcloud auth application-default login`, or GOOGLE_APPLICATION_CREDENTIALS"

_Answer = tuple[int, Any, Any, bytes]


def open_cloud_storage(url: str) -> tuple[CloudStorage, str]:
    """Return the file system of a URL, and the path within it, `bucket/name`."""
    return CloudStorage(**_options()), url.partition("://")[2].rstrip("/")


@functools.cache
def _default_token() -> str:
    """Say whom gcsfs asks for credentials; it would also try, for a minute, what is not there."""
    try:
        google.auth.default()
    except google.auth.exceptions.GoogleAuthError:
        return "anon"
    return "google_default"


def _options() -> dict[str, Any]:
    given: dict[str, Any] = fsspec.config.conf.get("gs", {})
    return {
        "token": given.get("token") or _default_token(),
        # Proxies of the environment, as for every other client of Google's.
        "session_kwargs": {"trust_env": True},
    }


class _UnsettledError(Exception):
    """The store says that an object exists, and that it does not."""


class CloudStorage(GCSFileSystem):
    """gcsfs, whose own attempts are neither logged nor counted, and have no deadline."""

    def __init__(self, **options: Any) -> None:
        """Take the options of gcsfs."""
        super().__init__(**options)
        self._asker = Asker(self._find_cause, f"The object store at {self._location}")
        self._renewal = threading.Lock()

    async def _request(
        self, method: str, path: str, *args: str, data: Any = None, **options: Any
    ) -> _Answer:
        options |= {"data": data}
        kind = f"{method} {path if args else 'content'}"
        words = f"{method} {self._format_path(path, args)}"
        once = GCSFileSystem._request.__wrapped__

        async def attempt() -> _Answer:
            await self._renew()
            self.requests_timeout = aiohttp.ClientTimeout(
                total=None, sock_connect=retry.PATIENCE.silence, sock_read=retry.PATIENCE.silence
            )
            answer: _Answer = await once(self, method, path, *args, **options)
            return answer

        if not _is_idempotent(method, options):
            return await attempt()
        return await self._asker.ask(attempt, kind=kind, request=words)

    async def _renew(self) -> None:
        """Fetch a token if there is none that is valid; gcsfs would hold up all requests for it."""
        credentials = self.credentials
        if credentials.credentials is None or credentials._credentials_valid(300):
            return

        def renew() -> None:
            with self._renewal, requests.Session() as session:
                if not credentials._credentials_valid(300):
                    ask = functools.partial(Request(session), timeout=retry.PATIENCE.silence)
                    credentials.credentials.refresh(ask)

        await asyncio.to_thread(renew)

    def _find_cause(self, error: Exception) -> str | None:
        """Say in a few words what passes; None for an error that stays."""
        if isinstance(error, HttpError) and error.code is not None:
            code = int(error.code)
            if code == 401 and self.credentials.credentials is not None:
                # A token may be revoked before it expires.
                self.credentials.credentials.token = None
                return "an expired token (401)"
            return f"HTTP status {code}" if code in (408, 429) or code >= 500 else None
        for kinds, cause in _CAUSES:
            if isinstance(error, kinds):
                return cause
        return None

    async def _pipe_file(self, path: str, data: bytes, *_: Any, **__: Any) -> None:
        await self.write_version(path, data, await self.find_version(path))

    async def find_version(self, path: str) -> str:
        """Return the generation of an object, "" if there is none."""
        try:
            return str((await self._describe(path))["generation"])
        except FileNotFoundError:
            return ""

    async def _describe(self, path: str) -> dict[str, Any]:
        bucket, _, name = path.partition("/")
        found: dict[str, Any] = await self._call("GET", "b/{}/o/{}", bucket, name, json_out=True)
        return found

    async def _describe_written(self, path: str) -> dict[str, Any]:
        try:
            return await self._describe(path)
        except FileNotFoundError:
            raise _UnsettledError(path) from None

    async def read_version(self, path: str, version: str, end: int | None = None) -> bytes:
        """Read an object, or its first `end` bytes, as it was in a generation.

        Raises:
            FileNotFoundError: there is no object of that name any more.
            FileExistsError: there is one of another generation.
        """
        headers = {"Range": f"bytes=0-{end - 1}"} if end else {}
        try:
            _, data = await self._call("GET", self.url(path), headers=headers, generation=version)
        except FileNotFoundError:
            if await self.find_version(path) not in ("", version):
                raise FileExistsError(path) from None
            raise
        return bytes(data)

    async def write_version(self, path: str, data: bytes, version: str) -> str:
        """Write an object in place of a generation, "" for none; return the new generation.

        Raises:
            FileExistsError: somebody else has written the object meanwhile.
        """
        crc32c = crc32c_of(data)

        async def attempt() -> str:
            try:
                found = await send(self, path, data, version or "0")
            except FileExistsError:
                # An earlier attempt may have written it, and its answer was lost.
                found = await self._describe_written(path)
                if found["crc32c"] != crc32c:
                    raise
            if found["crc32c"] != crc32c:
                raise ChecksumError(f"{path} was stored with other bytes")
            return str(found["generation"])

        return await self._asker.ask(attempt, kind="upload", request=f"upload of gs://{path}")

    async def delete_version(self, path: str, version: str) -> None:
        """Delete an object if it is still of a generation; one that is gone or newer stays so."""
        bucket, _, name = path.partition("/")
        # One that is gone already may have been deleted by an earlier attempt.
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            await self._call("DELETE", "b/{}/o/{}", bucket, name, ifGenerationMatch=version)


_CAUSES: tuple[tuple[tuple[type[Exception], ...], str | None], ...] = (
    ((aiohttp.ClientConnectorCertificateError,), None),
    ((aiohttp.ClientConnectorError,), "no connection"),
    ((aiohttp.ClientPayloadError,), "an answer that broke off"),
    ((TimeoutError, requests.exceptions.Timeout), "no answer"),
    ((_UnsettledError,), "contradictory answers"),
    ((ChecksumError,), "a wrong checksum"),
    ((requests.exceptions.ProxyError,), "HTTP status 502"),
    ((google.auth.exceptions.RefreshError,), "no token"),
    ((google.auth.exceptions.TransportError,), "no connection for a token"),
    (
        (aiohttp.ClientError, ConnectionError, requests.exceptions.RequestException),
        "a lost connection",
    ),
)


def _is_idempotent(method: str, options: dict[str, Any]) -> bool:
    """Say whether a request may be made twice: what is written is then bound to a generation."""
    return method != "POST" or "ifGenerationMatch" in options


def explain_error(url: str, error: Exception) -> StorageError | None:
    """Say in one sentence what is wrong with the store of `url`; None for any other error."""
    reason = " ".join(str(error).split()).rstrip(".")
    unknown = isinstance(error, HttpError) and error.code in (401, "401")
    if unknown or reason.startswith("Forbidden"):
        return StorageError(f"Access to {url} was refused ({reason}): sign in with {_SIGN_IN}.")
    return None
