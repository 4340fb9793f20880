"""The JSON API of Cloud Storage and, for reading, its XML API, which S3's clients understand."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email import message_from_bytes, message_from_string
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape

from aiohttp import web

from benchmarks.gcs_server.objects import ApiError, Bucket, Item, Json, crc32c

CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d*|\*)/(\d+|\*)")
REASONS = {400: "invalid", 404: "notFound", 412: "conditionNotMet", 429: "rateLimitExceeded"}


@dataclass(frozen=True)
class Call:
    """A request, from a connection or out of a batch."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Call:
        """Parse a request target; names in its path stay encoded."""
        path, _, query = target.partition("?")
        return cls(method, path, dict(parse_qsl(query, keep_blank_values=True)), headers, body)

    def json(self) -> Json:
        """Return the body, which may be missing, as JSON."""
        return dict(json.loads(self.body or b"{}"))

    def multipart(self) -> tuple[Json, bytes]:
        """Return the properties and the content of an upload in one request."""
        kind = message_from_string(f"Content-Type: {self.headers['Content-Type']}")
        mark = f"--{kind.get_boundary()}".encode()
        _, first, rest = self.body.split(mark, 2)
        # gcsfs ends lines with \n alone. The content may itself begin or end with line ends.
        newline = b"\r\n" if first.startswith(b"\r\n") else b"\n"
        properties = json.loads(first.split(newline * 2, 1)[1])
        head, data = rest[: rest.rindex(newline + mark)].split(newline * 2, 1)
        return {"contentType": message_from_bytes(head.strip())["Content-Type"]} | properties, data


@dataclass
class Upload:
    """A resumable upload under way."""

    call: Call
    properties: Json
    data: bytearray = field(default_factory=bytearray)


def error_response(status: int, message: str) -> web.Response:
    """Return an error in Google's format."""
    reason = REASONS.get(status, "backendError")
    errors = [{"message": message, "domain": "global", "reason": reason}]
    error = {"code": status, "message": message, "errors": errors}
    return web.json_response({"error": error}, status=status)


class JsonApi:
    """Answers requests, one at a time."""

    def __init__(self, folders: Mapping[str, str | Path]) -> None:
        """Start with a bucket for each of `folders`."""
        self.endpoint = ""
        self.counts: Counter[str] = Counter()
        self._buckets = {name: Bucket(name, path) for name, path in folders.items()}
        self._uploads: dict[str, Upload] = {}
        self.damages_next = False

    def put(self, bucket: str, name: str, data: bytes, content_type: str = "image/jpeg") -> None:
        """Write an object; create the bucket in memory if it is missing."""
        self.add_bucket(bucket).put(name, data, {"contentType": content_type})

    def add_bucket(self, name: str) -> Bucket:
        """Add an empty bucket in memory."""
        return self._buckets.setdefault(name, Bucket(name))

    def find(self, call: Call) -> tuple[str, Handler, list[str]]:
        """Return a request's kind, its handler and the names in its path; count it."""
        line = f"{call.method} {call.path}"
        matches = ((kind, handler, path.fullmatch(line)) for kind, path, handler in ROUTES)
        kind, handler, match = next(route for route in matches if route[2])
        assert match
        if kind == "metadata" and call.query.get("alt") == "media":
            kind, handler = "media", JsonApi._media
        # TensorFlow requests the layout from 2.21 on only.
        if kind != "layout":
            self.counts[kind] += 1
        return kind, handler, [unquote(name) for name in match.groups()]

    def run(self, handler: Handler, call: Call, names: list[str]) -> web.Response:
        """Return the response, also to a bad request."""
        try:
            return handler(self, call, *names)
        except ApiError as error:
            return error_response(*error.args)
        except (KeyError, ValueError, OSError) as error:
            return error_response(400, f"Bad request: {error!r}")

    def _unknown(self, call: Call) -> web.Response:
        raise ApiError(404, f"Not Found: {call.method} {call.path}")

    def _token(self, call: Call) -> web.Response:
        return web.json_response({"access_token": "x", "token_type": "Bearer", "expires_in": 3600})

    def _show_bucket(self, call: Call, bucket: str) -> web.Response:
        self._bucket(bucket)
        resource = {"kind": "storage#bucket", "id": bucket, "name": bucket, "location": "US"}
        # Beam warns if the soft-delete policy is missing.
        return web.json_response(resource | {"softDeletePolicy": {"retentionDurationSeconds": "0"}})

    def _show_layout(self, call: Call, bucket: str) -> web.Response:
        """Report a bucket without a hierarchical namespace."""
        self._bucket(bucket)
        resource = {"kind": "storage#storageLayout", "bucket": bucket, "location": "US"}
        return web.json_response(resource | {"hierarchicalNamespace": {"enabled": False}})

    def _list(self, call: Call, bucket: str) -> web.Response:
        items, prefixes, token = self._bucket(bucket).page(call.query)
        resources = [item.resource(self.endpoint) for item in items]
        page = {"items": resources, "prefixes": prefixes, "nextPageToken": token}
        given = {key: value for key, value in page.items() if value}
        return web.json_response({"kind": "storage#objects"} | given)

    def _list_xml(self, call: Call, bucket: str) -> web.Response:
        """List objects as S3's ListObjectsV2 does."""
        ours = {"continuation-token": "pageToken", "max-keys": "maxResults"}
        query = {ours.get(name, name): value for name, value in call.query.items()}
        items, prefixes, token = self._bucket(bucket).page(query)
        texts = [
            f"<Contents><Key>{escape(item.name)}</Key><Size>{len(item.data)}</Size>"
            f"<ETag>&quot;{item.generation:x}&quot;</ETag><LastModified>"
            f"{item.resource(self.endpoint)['updated']}</LastModified></Contents>"
            for item in items
        ]
        names = map(escape, prefixes)
        texts += [f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in names]
        texts.append(f"<IsTruncated>{str(bool(token)).lower()}</IsTruncated>")
        if token:
            texts.append(f"<NextContinuationToken>{token}</NextContinuationToken>")
        text = f"<ListBucketResult>{''.join(texts)}</ListBucketResult>"
        return web.Response(text=text, content_type="application/xml")

    def _metadata(self, call: Call, bucket: str, name: str) -> web.Response:
        return web.json_response(self._wanted(call, bucket, name).resource(self.endpoint))

    def _media(self, call: Call, bucket: str, name: str) -> web.Response:
        item = self._wanted(call, bucket, name)
        span = item.span(call.headers.get("Range", ""))
        if span is None:
            return web.Response(body=item.data, headers=item.headers())
        headers = {"Content-Range": f"bytes {span[0]}-{span[1] - 1}/{len(item.data)}"}
        data = item.data[slice(*span)]
        return web.Response(body=data, headers=item.headers() | headers, status=206)

    def _delete(self, call: Call, bucket: str, name: str) -> web.Response:
        self._wanted(call, bucket, name)
        self._bucket(bucket).delete(name)
        return web.Response(status=204)

    def _upload(self, call: Call, bucket: str) -> web.Response:
        if key := call.query.get("upload_id"):
            return self._continue(call, bucket, key)
        how = call.query.get("uploadType")
        if how == "resumable":
            return self._begin(call)
        if how == "multipart":
            return self._store(call, bucket, *call.multipart())
        properties = {"contentType": call.headers.get("Content-Type")}
        return self._store(call, bucket, properties, call.body)

    def _begin(self, call: Call) -> web.Response:
        properties = {"contentType": call.headers.get("X-Upload-Content-Type")} | call.json()
        key = f"{len(self._uploads)}-{time.time_ns()}"
        self._uploads[key] = Upload(call, properties)
        target = f"{self.endpoint}{call.path}?uploadType=resumable&upload_id={key}"
        return web.Response(headers={"Location": target})

    def _continue(self, call: Call, bucket: str, key: str) -> web.Response:
        """Accept a chunk of a resumable upload, or report how much has arrived."""
        if key not in self._uploads:
            raise ApiError(404, "No such upload")
        upload = self._uploads[key]
        whole = f"bytes 0-/{len(call.body)}"
        match = CONTENT_RANGE.fullmatch(call.headers.get("Content-Range", whole))
        if not match or int(match[1] or 0) > len(upload.data):
            raise ApiError(400, "The pieces of an upload must follow each other")
        if match[1]:
            upload.data[int(match[1]) :] = call.body
        if match[2] == str(len(upload.data)):
            del self._uploads[key]
            return self._store(upload.call, bucket, upload.properties, bytes(upload.data))
        headers = {"Range": f"bytes=0-{len(upload.data) - 1}"} if upload.data else {}
        return web.Response(status=308, headers=headers)

    def _copy(self, call: Call, bucket: str, name: str, to: str, to_name: str) -> web.Response:
        item = self._bucket(bucket).item(name, call.query.get("sourceGeneration"))
        return self._store(call, to, item.properties | {"name": to_name}, item.data)

    def _rewrite(self, call: Call, *names: str) -> web.Response:
        resource = json.loads(self._copy(call, *names).text or "")
        sizes = {"objectSize": resource["size"], "totalBytesRewritten": resource["size"]}
        answer = {"kind": "storage#rewriteResponse", "done": True, "resource": resource}
        return web.json_response(answer | sizes)

    def _batch(self, call: Call) -> web.Response:
        """Answer the requests of a batch; their first lines are complete."""
        header = f"Content-Type: {call.headers['Content-Type']}\n\n".encode()
        answer = ""
        for part in list(message_from_bytes(header + call.body).walk())[1:]:
            line = str(part.get_payload()).partition("\n")[0]
            method, target = re.sub(r"https?://[^/]+", "", line).split(" ")[:2]
            inner = Call.of(method, target, {}, b"")
            _, handler, names = self.find(inner)
            result = self.run(handler, inner, names)
            status = f"HTTP/1.1 {result.status} {HTTPStatus(result.status).phrase}"
            answer += (
                f"--answer\r\nContent-Type: application/http\r\n\r\n{status}\r\n"
                f"Content-Type: application/json\r\n\r\n{result.text or ''}\r\n"
            )
        headers = {"Content-Type": "multipart/mixed; boundary=answer"}
        return web.Response(body=f"{answer}--answer--\r\n".encode(), headers=headers)

    def _bucket(self, bucket: str) -> Bucket:
        if bucket not in self._buckets:
            raise ApiError(404, "The specified bucket does not exist.")
        return self._buckets[bucket]

    def _wanted(self, call: Call, bucket: str, name: str) -> Item:
        item = self._bucket(bucket).item(name, call.query.get("generation"))
        self._bucket(bucket).check(name, call.query)
        return item

    def _store(self, call: Call, bucket: str, properties: Json, data: bytes) -> web.Response:
        """Write an object and describe it."""
        target, name = self._bucket(bucket), properties.get("name") or call.query["name"]
        target.check(name, call.query)
        if self.damages_next and data:
            data = bytes([data[0] ^ 1]) + data[1:]
        # The real store compares the client's checksum, too.
        given = properties.pop("crc32c", None)
        if given not in (None, crc32c(data)):
            raise ApiError(400, f"Provided CRC32C {given} doesn't match calculated CRC32C.")
        kind = properties.get("contentType") or "application/octet-stream"
        target.put(name, data, properties | {"contentType": kind})
        return web.json_response(target.item(name).resource(self.endpoint))


Handler = Callable[..., web.Response]
BUCKET = "/storage/v1/b/([^/]+)"
OBJECT = f"{BUCKET}/o/([^/]+)"
# Kind under which a request is counted, its method and path, and its handler.
ROUTES: list[tuple[str, re.Pattern[str], Handler]] = [
    ("media", re.compile(f"GET /download{OBJECT}"), JsonApi._media),
    ("metadata", re.compile(f"GET {OBJECT}"), JsonApi._metadata),
    ("list", re.compile(f"GET {BUCKET}/o"), JsonApi._list),
    ("bucket", re.compile(f"GET {BUCKET}"), JsonApi._show_bucket),
    ("layout", re.compile(f"GET {BUCKET}/storageLayout"), JsonApi._show_layout),
    ("upload", re.compile(f"(?:POST|PUT) /upload{BUCKET}/o"), JsonApi._upload),
    ("delete", re.compile(f"DELETE {OBJECT}"), JsonApi._delete),
    ("copy", re.compile(f"POST {OBJECT}/rewriteTo/b/([^/]+)/o/([^/]+)"), JsonApi._rewrite),
    ("copy", re.compile(f"POST {OBJECT}/copyTo/b/([^/]+)/o/([^/]+)"), JsonApi._copy),
    ("batch", re.compile("POST /batch/storage/v1"), JsonApi._batch),
    ("token", re.compile("POST /token"), JsonApi._token),
    ("media", re.compile("(?:GET|HEAD) /([^/]+)/(.+)"), JsonApi._media),
    ("list", re.compile("GET /([^/]+)/?"), JsonApi._list_xml),
    ("unknown", re.compile(".*", re.DOTALL), JsonApi._unknown),
]
