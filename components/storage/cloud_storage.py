"""Google Cloud Storage, `gs://`, through gcsfs, with one rule for what is asked again."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import urllib.request
from typing import Any

import aiohttp
import fsspec
import google.auth
import google.auth.exceptions
import requests
from gcsfs.core import GCSFileSystem
from gcsfs.retry import ChecksumError, validate_response
from google.auth.transport.requests import Request

from components.contract.errors import StorageError
from components.storage import retry
from components.storage.cloud_upload import LostSessionError, crc32c_of, send
from components.storage.retry import Retrier

_DAMAGED_ATTEMPTS = 3
_PASSING_STATUSES = (401, 408, 429)
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
        # Proxies of the environment, as for every other client of Google's. aiohttp would look for
        # them in threads, twice a request, which took half of all CPU time where there are none.
        "session_kwargs": {"trust_env": bool(urllib.request.getproxies())},
    }


class _UnsettledError(Exception):
    """The store says that an object exists, and that it does not."""


class _StatusError(Exception):
    """An HTTP status that passes."""

    def __init__(self, code: int, token: str) -> None:
        super().__init__(f"HTTP status {code}")
        self.code, self.token = code, token


class CloudStorage(GCSFileSystem):
    """gcsfs, whose own attempts are neither logged nor counted, and have no deadline."""

    def __init__(self, **options: Any) -> None:
        """Take the options of gcsfs."""
        super().__init__(**options)
        self._retrier = Retrier(self._find_cause, f"The object store at {self._location}")
        self._renewal: asyncio.Task[None] | None = None

    async def _request(
        self, method: str, path: str, *args: str, data: Any = None, **options: Any
    ) -> _Answer:
        kind = f"{method} {path if args else 'content'}"
        url = self._format_path(path, args)
        attempt = functools.partial(self._ask_once, method, url, data=data, **options)
        if not _is_idempotent(method, options):
            return await attempt()
        for number in range(_DAMAGED_ATTEMPTS):
            answer = await self._retrier.call(attempt, kind=kind, request=f"{method} {url}")
            if method != "GET" or _is_intact(answer):
                return answer
            pause = retry.RETRY_POLICY.pause(number)
            retry.note_retry("a wrong checksum", f"{method} {url}", pause)
            await asyncio.sleep(pause)
        raise OSError(f"it arrives damaged, {_DAMAGED_ATTEMPTS} times")

    async def _ask_once(self, method: str, url: str, *, data: Any, **options: Any) -> _Answer:
        """Make a request, as gcsfs does, which cannot read every error of a store."""
        session = await self._set_session()
        # It would itself ask again after a lost connection, and say so to nobody.
        session._retry_connection = False
        await self._renew()
        silence = retry.RETRY_POLICY.silence
        headers = self._get_headers(options.pop("headers", None))
        body = options.pop("json", None)
        async with session.request(
            method,
            url,
            params=self._get_params(options),
            headers=headers,
            json=body,
            data=data,
            timeout=aiohttp.ClientTimeout(sock_connect=silence, sock_read=silence),
        ) as answer:
            content = await answer.read()
        if answer.status in _PASSING_STATUSES or answer.status >= 500:
            raise _StatusError(answer.status, headers.get("authorization", ""))
        try:
            validate_response(answer.status, content, url)
        except TypeError as error:
            # It expects a text where some servers send more.
            raise OSError(f"HTTP status {answer.status}: {content[:200]!r}") from error
        return answer.status, answer.headers, answer.request_info, content

    async def _renew(self) -> None:
        """Fetch a token if there is none that is valid; gcsfs would hold up all requests for it."""
        credentials = self.credentials
        if credentials.credentials is None or credentials._credentials_valid(300):
            return

        def renew() -> None:
            with requests.Session() as session:
                ask = functools.partial(Request(session), timeout=retry.RETRY_POLICY.silence)
                credentials.credentials.refresh(ask)

        # One for all requests that wait.
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(asyncio.to_thread(renew))
        await asyncio.shield(self._renewal)

    def _find_cause(self, error: Exception) -> str | None:
        """Say in a few words what passes; None for an error that stays."""
        if isinstance(error, _StatusError):
            return self._find_cause_of_status(error)
        for kinds, cause in _CAUSES:
            if isinstance(error, kinds):
                return cause
        return None

    def _find_cause_of_status(self, error: _StatusError) -> str | None:
        if error.code != 401:
            return str(error)
        credentials = self.credentials.credentials
        if credentials is None:
            return None
        # A token may be revoked before it expires; another request may have renewed it already.
        if credentials.token and error.token.endswith(credentials.token):
            credentials.token = None
        return "an expired token (401)"

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
        url = self.url(path)

        async def attempt() -> bytes:
            try:
                _, data = await self._call("GET", url, headers=headers, generation=version)
            except FileNotFoundError:
                if (now := await self.find_version(path)) == version:
                    raise _UnsettledError(path) from None
                if now:
                    raise FileExistsError(path) from None
                raise
            return bytes(data)

        return await self._retrier.call(attempt, kind="read", request=f"GET {url}")

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

        return await self._retrier.call(attempt, kind="upload", request=f"upload of gs://{path}")

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
    ((LostSessionError,), "a lost upload session"),
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


def _is_intact(answer: _Answer) -> bool:
    """Compare content with the checksum that Cloud Storage sends with all of an object.

    What was stored compressed has the checksum of that, not of what is read here.
    """
    status, headers, _, content = answer
    known = ",".join(headers.getall("x-goog-hash", []))
    if status != 200 or "Content-Encoding" in headers or "crc32c=" not in known:
        return True
    return f"crc32c={crc32c_of(content)}" in known


def _is_idempotent(method: str, options: dict[str, Any]) -> bool:
    """Say whether a request may be made twice: what is written is then bound to a generation."""
    return method != "POST" or "ifGenerationMatch" in options


def explain_error(url: str, error: Exception) -> StorageError | None:
    """Say in one sentence what is wrong with the store of `url`; None for any other error."""
    reason = " ".join(str(error).split()).rstrip(".")
    unknown = isinstance(error, _StatusError)
    if unknown or reason.startswith("Forbidden"):
        return StorageError(f"Access to {url} was refused ({reason}): sign in with {_SIGN_IN}.")
    return None
