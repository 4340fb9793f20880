"""The review: its page, and the API that the page uses; scripts may use it, too.

GET  /api/images                          everything: images, labels, decisions, names of files
GET  /api/decisions?version=VERSION       the decisions, or only the version if it is unchanged
GET  /api/pictures/DIGEST?size=small      the image as JPEG, of up to 160 or (size=large) 1,000
                                          pixels
GET  /api/images/DIGEST/neighbors         path, digest and label of the images it resembles
POST /api/decisions                       {"sha256": DIGEST, "action": "keep", "relabel", "remove"
                                          or "unsure", "to": LABEL, "note": TEXT}; `to` only to
                                          relabel, `note` is optional
POST /api/undo                            {"sha256": DIGEST}, or {} for the last decision

Both POSTs take `application/json` and answer after the decision is on disk: the image's digest,
its decision or null, and the versions of the file before and after. Errors are {"error": SENTENCE}.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar, get_args

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from components.contract.errors import UserError
from components.contract.image_tables import REASONS
from components.ingest.source.corrections import Action, Correction
from pipeline_def.apps.review.decisions import Decisions, ReviewedImage
from pipeline_def.apps.review.options import ReviewOptions
from pipeline_def.apps.review.pictures import SIDES, Pictures
from pipeline_def.apps.serve.limits import (
    ERROR_HANDLERS,
    BodyReader,
    Guard,
    RequestError,
    run_until_disconnect,
)
from pipeline_def.apps.serve.page import HEADERS, make_page_routes

_MOST_BYTES = 64 * 2**10
_LONGEST_NOTE = 2_000
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ReviewFacts:
    """What is reviewed."""

    title: str
    """Such as "run 3 of 2026-11-22"."""
    images: Sequence[ReviewedImage]
    labels: Sequence[str]
    """All labels that an image may get, sorted."""
    who: str
    next_command: str
    """Applies the corrections."""


class Review:
    """Handles requests."""

    def __init__(self, facts: ReviewFacts, decisions: Decisions, pictures: Pictures) -> None:
        """Keep what is reviewed."""
        self._facts, self._decisions, self._pictures = facts, decisions, pictures
        self._images = {image.sha256: image for image in facts.images}
        self._labels = frozenset(facts.labels)
        self._bodies = BodyReader(_MOST_BYTES)
        # One thread: decisions are written one after the other.
        self._thread = ThreadPoolExecutor(1, "decide")

    @contextlib.asynccontextmanager
    async def run(self, app: Any) -> AsyncIterator[None]:
        """End the threads with the server."""
        yield
        self._pictures.close()
        self._thread.shutdown()

    async def list_images(self, request: Request) -> Response:
        """`GET /api/images`."""
        version, decided = await self._call(self._decisions.read)
        facts = self._facts
        # Labels may be long, and there are few of them.
        names = {name: number for number, name in enumerate(facts.labels)}
        images = [
            {
                "sha256": image.sha256,
                "path": image.path,
                "split": image.split,
                "label": names.get(image.label, -1),
                "proposed": names.get(image.proposed, -1),
                "reasons": image.reasons,
                "neighbors": len(image.neighbors),
            }
            for image in facts.images
        ]
        return _answer(
            {
                "title": facts.title,
                "file": self._decisions.path,
                "next": facts.next_command,
                "labels": facts.labels,
                "words": REASONS,
                "images": images,
                "version": version,
                "decisions": {digest: _describe(row) for digest, row in decided.items()},
            }
        )

    async def list_decisions(self, request: Request) -> Response:
        """`GET /api/decisions`."""
        version, decided = await self._call(self._decisions.read)
        if request.query_params.get("version") == version:
            return _answer({"version": version})
        rows = {digest: _describe(row) for digest, row in decided.items()}
        return _answer({"version": version, "decisions": rows})

    async def show(self, request: Request) -> Response:
        """`GET /api/pictures/DIGEST`."""
        side = SIDES.get(request.query_params.get("size", "large"))
        if side is None:
            raise RequestError(400, f"size is one of {', '.join(SIDES)}.")
        work = self._pictures.show(request.path_params["digest"], side)
        jpeg = await run_until_disconnect(request, work)
        # The digest names the content, but a changed file must not be shown from a cache for long.
        headers = {**HEADERS, "cache-control": "private, max-age=3600"}
        return Response(jpeg, 200, headers, "image/jpeg")

    async def find_neighbors(self, request: Request) -> Response:
        """`GET /api/images/DIGEST/neighbors`."""
        image = self._find(request.path_params["digest"])
        return _answer({"neighbors": await self._pictures.find_neighbors(image.neighbors)})

    async def decide(self, request: Request) -> Response:
        """`POST /api/decisions`."""
        correction = self._make_correction(await self._read(request))
        before, after, stored = await self._call(self._decisions.decide, correction)
        decision = {"sha256": stored.sha256, "decision": _describe(stored)}
        return _answer({**decision, "before": before, "version": after})

    async def undo(self, request: Request) -> Response:
        """`POST /api/undo`."""
        wanted = (await self._read(request)).get("sha256")
        if wanted is not None:
            self._find(wanted)
        undone = await self._call(self._decisions.undo, wanted)
        if undone is None:
            raise RequestError(409, "There is no decision to undo.")
        version, decided = await self._call(self._decisions.read)
        row = decided.get(undone)
        decision = row and _describe(row)
        return _answer({"sha256": undone, "decision": decision, "before": "", "version": version})

    def _find(self, digest: Any) -> ReviewedImage:
        if not isinstance(digest, str) or digest not in self._images:
            raise RequestError(404, "This image is not part of the review.")
        return self._images[digest]

    def _make_correction(self, fields: Mapping[str, Any]) -> Correction:
        image = self._find(fields.get("sha256"))
        action: Any = fields.get("action")
        to, note = (fields.get(key) or "" for key in ("to", "note"))
        if action not in get_args(Action):
            raise RequestError(400, f"action is one of {', '.join(get_args(Action))}.")
        if action == "relabel" and (not isinstance(to, str) or to not in self._labels):
            raise RequestError(400, "to must be a label of the run.")
        if action == "relabel" and to == image.label:
            raise RequestError(400, "This is the given label: keep it.")
        if not isinstance(note, str) or len(note) > _LONGEST_NOTE:
            raise RequestError(400, f"note must be text of up to {_LONGEST_NOTE:,} characters.")
        return Correction(
            sha256=image.sha256,
            path=image.path,
            action=action,
            from_label=image.label,
            to_label=to if action == "relabel" else "",
            who=self._facts.who,
            when=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            why=image.explain(" ".join(note.split())),
        )

    async def _read(self, request: Request) -> dict[str, Any]:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise RequestError(415, "Send application/json.")
        async with self._bodies.read(request) as body:
            request.scope["is_read"] = True
            try:
                fields = json.loads(body)
            except (ValueError, RecursionError) as error:
                raise RequestError(400, "The body is not JSON.") from error
        if not isinstance(fields, dict):
            raise RequestError(400, "The body must be an object.")
        return fields

    async def _call(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """Run a function on the corrections file off the event loop."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, function, *arguments)
        except UserError as error:
            raise RequestError(409, str(error)) from error


def make_app(
    facts: ReviewFacts, decisions: Decisions, pictures: Pictures, options: ReviewOptions
) -> ASGIApp:
    """Build the application with its limits."""
    review = Review(facts, decisions, pictures)
    routes = [
        *make_page_routes(__package__),
        Route("/api/images", review.list_images),
        Route("/api/images/{digest}/neighbors", review.find_neighbors),
        Route("/api/pictures/{digest}", review.show),
        Route("/api/decisions", review.list_decisions, methods=["GET"]),
        Route("/api/decisions", review.decide, methods=["POST"]),
        Route("/api/undo", review.undo, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers=ERROR_HANDLERS, lifespan=review.run)
    return Guard(app, options)


def _answer(content: Any) -> Response:
    # In ASCII, as names may hold what is not valid UTF-8.
    return Response(json.dumps(content), 200, HEADERS, "application/json")


def _describe(row: Correction) -> dict[str, str]:
    return {
        "action": row.action,
        "to": row.to_label,
        "who": row.who,
        "when": row.when,
        "why": row.why,
    }
