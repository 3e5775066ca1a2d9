"""The addresses of the page, and what each answers."""

from __future__ import annotations

import asyncio
import importlib.resources
import json
import time
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tether.core.ids import Slot
from tether.observe.metrics import CONTENT_TYPE, exposition
from tether.ui.actions import Actions, told
from tether.ui.guard import Guard
from tether.ui.messages import encode, news, whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from tether.observe.feed import Feed
    from tether.ui.sources import Source

PAGE = importlib.resources.files("tether.ui") / "static"
TICK_SECONDS, TICK_SECONDS_MANY = 0.3, 1.0
MANY_SLOTS = 128
BEAT_SECONDS = 3.0
"""A page that has heard nothing for a few of these knows that the driver is gone."""


class LivePage:
    """Answers for one source of feeds.

    Args:
        source: What there is to show.
        token: Asked of everybody; None: only loopback names are answered.
        drills: Whether the page may start a drill.
    """

    def __init__(self, source: Source, *, token: str | None = None, drills: bool = False) -> None:
        self._source, self._drills = source, drills
        self._actions = Actions(drills=drills)
        self.stopping = False
        """Set when the server is to end: streams end then by themselves."""
        routes = [
            Route("/", self._index),
            Route("/metrics", self._metrics),
            Route("/api/stream", self._stream),
            Route("/api/slot", self._slot),
            Route("/api/do/{action}", self._do, methods=["POST"]),
            Mount("/static", StaticFiles(directory=str(PAGE))),
        ]
        self._guard = Guard(Starlette(routes=routes), token)
        self.app: ASGIApp = self._guard

    async def _index(self, request: Request) -> Response:  # noqa: ARG002 - Starlette calls with it
        text = (PAGE / "index.html").read_text(encoding="utf-8")
        return HTMLResponse(text.replace("{{word}}", self._guard.word))

    async def _metrics(self, request: Request) -> Response:  # noqa: ARG002
        body = await run_in_threadpool(exposition, self._source.feeds())
        return Response(body, media_type=CONTENT_TYPE)

    def _feed(self, request: Request) -> Feed | None:
        feeds, wanted = self._source.feeds(), request.query_params.get("query")
        for feed in feeds:
            if feed.query is not None and feed.query.id == wanted:
                return feed
        return feeds[0] if feeds and not wanted else None

    async def _stream(self, request: Request) -> Response:
        headers = {"x-accel-buffering": "no"}
        return StreamingResponse(
            self._told(request), media_type="text/event-stream", headers=headers
        )

    async def _told(self, request: Request) -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n"
        feed, mark, beat = None, None, 0.0
        while not self.stopping:
            newest = self._feed(request)
            if newest is not None and (newest is not feed or mark is None):
                feed = newest
                message, mark = whole(feed, self._source, drills=self._drills)
                yield _event("whole", message)
                beat = time.monotonic()
            elif feed is not None and mark is not None and feed.version != mark.version:
                if not any(feed is one for one in self._source.feeds()):
                    mark = None  # the query was restarted: its newest run is shown from now on
                    continue
                yield _event("news", news(feed, self._source, mark))
                beat = time.monotonic()
            elif time.monotonic() - beat > BEAT_SECONDS:
                beat = time.monotonic()
                presence = "waiting" if feed is None else self._source.presence(feed)
                yield _event("beat", {"now": time.time(), "presence": presence})
            await asyncio.sleep(_pause(feed))

    async def _slot(self, request: Request) -> Response:
        feed = self._feed(request)
        operator = request.query_params.get("operator", "")
        try:
            slot = int(request.query_params.get("slot", ""))
        except ValueError:
            return PlainTextResponse("slot is a number\n", 400)
        course = None if feed is None else feed.course(operator, Slot(slot))
        if feed is None or course is None:
            return PlainTextResponse("There is no such slot.\n", 404)
        events = [e for _, e in feed.events() if e.slot == slot and e.operator == operator]
        body = {**course._asdict(), "events": events[-100:]}
        return Response(encode(body), media_type="application/json")

    async def _do(self, request: Request) -> Response:
        feed = self._feed(request)
        try:
            asked = json.loads(await request.body() or b"{}")
            confirm = str(asked.get("confirm", ""))
        except (ValueError, AttributeError):
            return PlainTextResponse("The body is not a JSON object.\n", 400)
        if feed is None:
            return PlainTextResponse("There is no such query.\n", 404)
        action, status = request.path_params["action"], 200
        try:
            body = await run_in_threadpool(self._actions.ask, feed, action, confirm)
        except Exception as error:  # whatever the query says is for the person who asked
            body, status = told(error), 409
        return Response(encode(body), status, media_type="application/json")


def _event(name: str, message: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), encode(message))


def _pause(feed: Feed | None) -> float:
    slots = feed.slots.now if feed is not None else None
    return TICK_SECONDS_MANY if slots and len(slots.slot) > MANY_SLOTS else TICK_SECONDS
