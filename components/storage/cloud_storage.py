"""Google Cloud Storage, `gs://`, through gcsfs, with our own retries and checksums.

gcsfs has no public hook for a request: what is overridden and called of its private members is in
the first part of `CloudStorage`, and in uploads `_call`, the asynchronous form of `call`.
"""

import asyncio
import contextlib
import functools
import json
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import fsspec
import google.auth
import google.auth.exceptions
import requests
from gcsfs.core import GCSFileSystem, quote
from gcsfs.retry import ChecksumError, HttpError, validate_response
from google.auth.credentials import TokenState
from google.auth.transport.requests import Request
from yarl import URL

from components.contract.errors import StorageError
from components.contract.printable import hide_login
from components.storage import retry
from components.storage.retry import Retrier, digest

_DAMAGED_ATTEMPTS = 3
# Prefixes listed at the same time; fields of the objects of a page, and its size, the largest.
_LISTINGS = 16
_LISTED = {
    "fields": "nextPageToken,prefixes,items(name,size,generation,crc32c,etag)",
    "maxResults": 5000,
}
_TEMPORARY_STATUSES = (401, 408, 429)
# aiohttp's 100 are too few for requests of 30 ms; each new one costs as much as five requests.
_CONNECTIONS = 256

_Response = tuple[int, Any, Any, bytes]


class _UnsettledError(Exception):
    """The store says both that an object exists and that it does not."""


class _StatusError(Exception):
    """A temporary HTTP status."""

    def __init__(self, code: int, token: str) -> None:
        super().__init__(f"HTTP status {code}")
        self.code, self.token = code, token


class CloudStorage(GCSFileSystem):
    """gcsfs with our retries: its own are neither logged nor counted, and have no deadline."""

    session_kwargs: dict[str, Any]

    def __init__(self, **options: Any) -> None:
        """Take the options of gcsfs."""
        super().__init__(**options)
        self.address = self.base.removesuffix("/storage/v1/")
        """URL of the store."""
        self._retrier = Retrier(self._find_cause, f"The object store at {hide_login(self.address)}")
        self._renewal: asyncio.Task[None] | None = None

    async def _request(
        self, method: str, path: str, *args: str, data: Any = None, **options: Any
    ) -> _Response:
        kind = f"{method} {path if args else 'content'}"
        url = self._format_path(path, args)
        attempt = functools.partial(self._request_once, method, url, data=data, **options)
        # Safe to repeat: all but writes that are not bound to a generation.
        if method == "POST" and "ifGenerationMatch" not in options:
            return await attempt()
        return await self._repeat(attempt, method, url, kind=kind)

    async def _repeat(
        self, attempt: Callable[[], Awaitable[_Response]], method: str, url: str | URL, *, kind: str
    ) -> _Response:
        """Retry a request, also one whose response arrives damaged."""
        request = f"{method} {str(url).partition('?')[0]}"
        for number in range(_DAMAGED_ATTEMPTS):
            response = await self._retrier.call(attempt, kind=kind, request=request)
            if method != "GET" or _is_intact(response):
                return response
            pause = retry.RETRY_POLICY.pause(number)
            await retry.pause_before_retry("a wrong checksum", request, pause)
        raise OSError(f"it arrives damaged, {_DAMAGED_ATTEMPTS} times")

    async def _set_session(self) -> Any:
        if self._session is None:
            # Belongs to the event loop. Without a jar, aiohttp looks for no cookies.
            connector = aiohttp.TCPConnector(limit=_CONNECTIONS)
            options = {"connector": connector, "cookie_jar": aiohttp.DummyCookieJar()}
            self.session_kwargs = {**self.session_kwargs, **options}
            session = await super()._set_session()
            # aiohttp would silently retry after a lost connection, and has no option for it.
            session._retry_connection = False
        return self._session

    async def _request_once(
        self, method: str, url: str | URL, *, data: Any = None, **options: Any
    ) -> _Response:
        """Make a request as gcsfs does, but read every kind of error response."""
        session = await self._set_session()
        await self._renew_token()
        silence = retry.RETRY_POLICY.silence
        timeout = aiohttp.ClientTimeout(sock_connect=silence, sock_read=silence)
        sent = {"headers": self._get_headers(options.pop("headers", None)), "data": data}
        sent |= {"json": options.pop("json", None), "params": self._get_params(options)}
        async with session.request(method, url, timeout=timeout, **sent) as response:
            content = await response.read()
        if response.status in _TEMPORARY_STATUSES or response.status >= 500:
            raise _StatusError(response.status, sent["headers"].get("authorization", ""))
        place = str(url).partition("?")[0]
        try:
            validate_response(response.status, content, place)
        except TypeError as error:
            # It expects a string where some servers send an object.
            raise OSError(f"HTTP status {response.status}: {content[:200]!r}") from error
        return response.status, response.headers, response.request_info, content

    async def _renew_token(self) -> None:
        """Fetch a token unless there is a valid one; gcsfs would block all requests meanwhile."""
        credentials = self.credentials.credentials
        if credentials is None or credentials.token_state is TokenState.FRESH:
            return

        def renew() -> None:
            with requests.Session() as session:
                request = functools.partial(Request(session), timeout=retry.RETRY_POLICY.silence)
                credentials.refresh(request)

        # All waiting requests share one renewal.
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(asyncio.to_thread(renew))
        await asyncio.shield(self._renewal)

    def _find_cause(self, error: Exception) -> str | None:
        """Describe a temporary error in a few words; return None for others."""
        if not isinstance(error, _StatusError):
            return next((cause for kind, cause in _CAUSES.items() if isinstance(error, kind)), None)
        if error.code != 401:
            return str(error)
        credentials = self.credentials.credentials
        if credentials is None:
            return None
        # A token may be revoked before it expires; another request may already have renewed it.
        if credentials.token and error.token.endswith(credentials.token):
            credentials.token = None
        return "an expired token (401)"

    async def _pipe_file(self, path: str, data: bytes, *_: Any, **__: Any) -> None:
        await self.write_version(path, data, await self._find_version(path))

    async def _find_version(self, path: str) -> str:
        """Return the generation of an object, "" if there is none."""
        try:
            return str((await self._describe(path))["generation"])
        except FileNotFoundError:
            return ""

    async def _describe(self, path: str) -> dict[str, Any]:
        bucket, _, name = path.partition("/")
        described: dict[str, Any] = await self._call(
            "GET", "b/{}/o/{}", bucket, name, json_out=True
        )
        return described

    def find_all(self, root: str, take: Callable[[dict[str, Any]], None]) -> None:
        """Call `take` with each object below `root`, `bucket/folder`, in any order.

        gcsfs would keep all fields of each object, over 1 KB, and list one page after another.
        """
        fsspec.asyn.sync(self.loop, self._find_all, root, take)

    async def _find_all(self, root: str, take: Callable[[dict[str, Any]], None]) -> None:
        bucket, _, folder = root.partition("/")
        limit = asyncio.Semaphore(_LISTINGS)

        async def list_page(prefix: str, delimiter: str | None, token: str | None) -> Any:
            options = {"prefix": prefix or None, "delimiter": delimiter, "pageToken": token}
            async with limit:
                return await self._call(
                    "GET", "b/{}/o", bucket, json_out=True, **options, **_LISTED
                )

        async def list_below(prefix: str, levels: int) -> None:
            """List the given number of levels of folders, each folder at the same time."""
            prefixes, token = [], None
            while True:
                page = await list_page(prefix, "/" if levels else None, token)
                for item in page.get("items", ()):
                    take(item)
                prefixes += page.get("prefixes", ())
                if not (token := page.get("nextPageToken")):
                    break
            await asyncio.gather(*(list_below(folder, levels - 1) for folder in prefixes))

        top = f"{folder}/" if folder else ""
        first = await list_page(top, None, None)
        if not first.get("nextPageToken"):
            for item in first.get("items", ()):
                take(item)
            return
        # Folders of splits have few, those of labels many neighbors.
        await list_below(top, 2)

    async def read_version(self, path: str, version: str, end: int | None = None) -> bytes:
        """Read an object, or its first `end` bytes, as of a generation.

        Raises:
            FileNotFoundError: there is no longer an object of that name.
            FileExistsError: the object has another generation.
        """
        headers = {"Range": f"bytes=0-{end - 1}"} if end else {}
        # Encoding it once more took a tenth of the time of a small file.
        url = URL(f"{self.url(path)}&generation={version}", encoded=True)

        async def attempt() -> _Response:
            try:
                return await self._request_once("GET", url, headers=headers)
            except FileNotFoundError:
                if (now := await self._find_version(path)) == version:
                    raise _UnsettledError(path) from None
                if now:
                    raise FileExistsError(path) from None
                raise

        return (await self._repeat(attempt, "GET", url, kind="read"))[-1]

    async def write_version(self, path: str, data: bytes, version: str) -> str:
        """Replace a generation of an object, or create it if `version` is ""; return the new one.

        Raises:
            FileExistsError: somebody else has written the object meanwhile.
        """
        crc32c = digest(data, "crc32c")

        async def attempt() -> str:
            try:
                described = await _send(self, path, data, version or "0")
            except FileExistsError:
                # An earlier attempt may have written it although its response was lost.
                try:
                    described = await self._describe(path)
                except FileNotFoundError:
                    raise _UnsettledError(path) from None
                if described["crc32c"] != crc32c:
                    raise
            if described["crc32c"] != crc32c:
                raise ChecksumError(f"{path} was stored with other bytes")
            return str(described["generation"])

        return await self._retrier.call(attempt, kind="upload", request=f"upload of gs://{path}")

    async def delete_version(self, path: str, version: str) -> None:
        """Delete an object if it still has this generation."""
        bucket, _, name = path.partition("/")
        # An earlier attempt may already have deleted it.
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            await self._call("DELETE", "b/{}/o/{}", bucket, name, ifGenerationMatch=version)


async def _send(fs: "CloudStorage", path: str, data: bytes, generation: str) -> dict[str, Any]:
    """Upload an object, whose checksum the store verifies; return its metadata."""
    bucket, _, name = path.partition("/")
    crc32c = digest(data, "crc32c")
    # Contains the checksum of the content, so the content cannot contain it.
    mark = f"part-{crc32c.encode().hex()}-{len(data)}"
    head = (
        f"--{mark}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n"
        f"{json.dumps({'name': name, 'crc32c': crc32c})}"
        f"\r\n--{mark}\r\nContent-Type: application/octet-stream\r\n\r\n"
    )
    try:
        described: dict[str, Any] = await fs._call(
            "POST",
            f"{fs.address}/upload/storage/v1/b/{quote(bucket)}/o",
            uploadType="multipart",
            ifGenerationMatch=generation,
            headers={"Content-Type": f"multipart/related; boundary={mark}"},
            data=head.encode() + data + f"\r\n--{mark}--\r\n".encode(),
            json_out=True,
        )
    except HttpError as error:
        if "CRC32C" in str(error):
            raise ChecksumError(str(error)) from error
        raise
    return described


def open_cloud_storage(url: str) -> tuple[CloudStorage, str]:
    """Return the file system of a URL, and the path within it, `bucket/name`."""
    given: dict[str, Any] = fsspec.config.conf.get("gs", {})
    fs = CloudStorage(
        token=given.get("token") or _default_token(),
        # aiohttp looks for proxies in threads, twice per request, which took half of all CPU time.
        session_kwargs={"trust_env": bool(urllib.request.getproxies())},
    )
    return fs, url.partition("://")[2].rstrip("/")


@functools.cache
def _default_token() -> str:
    """Choose gcsfs's credentials; left alone, it tries every kind for up to a minute."""
    try:
        google.auth.default()
    except google.auth.exceptions.GoogleAuthError:
        return "anon"
    return "google_default"


_CAUSES: dict[type[Exception] | tuple[type[Exception], ...], str | None] = {
    aiohttp.ClientConnectorCertificateError: None,
    aiohttp.ClientConnectorError: "no connection",
    aiohttp.ClientPayloadError: "a truncated response",
    (TimeoutError, requests.exceptions.Timeout): "a timeout",
    _UnsettledError: "contradictory responses",
    ChecksumError: "a wrong checksum",
    requests.exceptions.ProxyError: "HTTP status 502",
    google.auth.exceptions.RefreshError: "no token",
    google.auth.exceptions.TransportError: "no connection for a token",
    (aiohttp.ClientError, ConnectionError): "a lost connection",
    requests.exceptions.RequestException: "a lost connection",
}


def _is_intact(response: _Response) -> bool:
    """Compare content with the checksum that Cloud Storage sends with a whole object.

    The checksum of an object stored compressed is that of the compressed bytes.
    """
    status, headers, _, content = response
    known = ",".join(headers.getall("x-goog-hash", []))
    if status != 200 or "Content-Encoding" in headers or "crc32c=" not in known:
        return True
    return f"crc32c={digest(content, 'crc32c')}" in known


def explain_error(url: str, error: Exception) -> StorageError | None:
    """Explain in one sentence why the store of `url` refuses access; None for other errors."""
    reason = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, _StatusError) or reason.startswith("Forbidden"):
        return StorageError(
            f"Access to {url} was refused ({reason}): sign in with `gcloud auth "
            "application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS."
        )
    return None
