"""The server of the page: a few addresses below a token, on this machine alone."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from treelm.errors import InputError
from treelm.explorer.files import Reading, picture, surprisal_table
from treelm.explorer.page import cards_of, page, script, style
from treelm.explorer.reading import Reader, Words
from treelm.explorer.text import Limits, sentences_of
from treelm.failures import explain
from treelm.io.json import json_text

Event = dict[str, Any]
Put = Callable[[Event], Awaitable[None]]

_MAX_BYTES = 1 << 17
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
        "img-src blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request of the page: a text, the models that shall read it, and the word after which to look."""

    sentences: Sequence[Words]
    readers: Sequence[tuple[int, Reader]]
    sentence: int
    num_read: int

    @property
    def words(self) -> Words:
        """The sentence in view; none of an empty text."""
        return self.sentences[self.sentence] if self.sentences else ()


class Explorer:
    """The answers to what the page asks."""

    def __init__(self, readers: Sequence[Reader], limits: Limits) -> None:
        """Answer for these models."""
        self.readers, self.limits = readers, limits

    async def asked(self, request: Request) -> Asked:
        """Read a request. Raises ``InputError`` for one that the page would not make, and beyond the limits."""
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BYTES:
                raise InputError("a text that is too long", remedy="treelm surprisal reads files of any length")
        try:
            found = json.loads(body)
            text, runs, at = str(found["text"]), [int(run) for run in found["runs"]], found.get("at")
            readers = [(run, self.readers[run]) for run in dict.fromkeys(runs) if run >= 0]
            sentence, word = (-1, -1) if at is None else map(int, at)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            raise InputError("a request that cannot be read", remedy="load the page again") from error
        sentences = sentences_of(text, self.limits)
        if not 0 <= sentence < len(sentences):
            sentence, word = max(len(sentences) - 1, 0), -1
        length = len(sentences[sentence]) if sentences else 0
        num_read = word + 1 if 0 <= word < length else length
        return Asked(sentences=sentences, readers=readers, sentence=sentence, num_read=num_read)

    async def events(self, asked: Asked) -> AsyncIterator[bytes]:
        """Answers as they are computed, each a line of JSON; all models read at the same time."""
        queue = asyncio.Queue[Event | None]()
        first: Event = {"event": "text", "sentences": asked.sentences, "at": [asked.sentence, asked.num_read - 1]}
        yield _line(first)
        if not asked.words:
            return

        async def read_all() -> None:
            await asyncio.gather(*(self._read(number, one, asked, queue.put) for number, one in asked.readers))
            await queue.put(None)

        task = asyncio.create_task(read_all())
        try:
            while (event := await queue.get()) is not None:
                yield _line(event)
            yield _line({"event": "done"})
        finally:
            task.cancel()  # who asked has gone on: what nobody waits for is not computed

    async def _read(self, number: int, reader: Reader, asked: Asked, put: Put) -> None:
        """Let a model read the sentence in view, look, and read the others."""
        try:
            async with self._explaining():
                await self._read_sentence(number, reader, asked, asked.sentence, put)
                words = asked.words[: asked.num_read]
                cards = cards_of(await reader.look(words), reader.name, number, words)
                await put({"event": "look", "run": number, "cards": cards})
                for sentence in range(len(asked.sentences)):
                    if sentence != asked.sentence:
                        await self._read_sentence(number, reader, asked, sentence, put)
        except InputError as error:
            await put({"event": "refused", "run": number, "message": str(error)})

    @asynccontextmanager
    async def _explaining(self) -> AsyncIterator[None]:
        """Let one model compute for as long as it may; what ends it, a fault too, becomes an ``InputError``.

        So it is told, and leaves the others reading.
        """
        try:
            async with asyncio.timeout(self.limits.max_seconds):
                yield
        except TimeoutError:
            found = f"stopped after {self.limits.max_seconds:g} s"
            raise InputError(found, remedy="give it less text, or raise --max-seconds") from None
        except InputError:
            raise
        except Exception as error:
            raise explain(error, "explore") from error

    async def _read_sentence(self, number: int, reader: Reader, asked: Asked, sentence: int, put: Put) -> None:
        words = asked.sentences[sentence]
        for place in range(len(words)):
            step = await reader.step(words[: place + 1])
            values = {"bits": step.surprisal_bits, "unknown": step.unknown_class}
            await put({"event": "word", "run": number, "sentence": sentence, "word": place, **values})

    async def read(self, request: Request) -> Response:
        """Answer with the stream of events."""
        return StreamingResponse(self.events(await self.asked(request)), media_type="application/x-ndjson")

    async def table(self, request: Request) -> Response:
        """Answer with the table of surprisals; of nothing, without a header."""
        asked = await self.asked(request)
        readings = await self.readings(asked)
        text = surprisal_table(asked.sentences, readings) if asked.words else ""
        return Response(text, media_type="text/tab-separated-values", headers=_lacking(readings))

    async def svg(self, request: Request) -> Response:
        """Answer with the picture. Raises ``InputError`` if there is nothing to draw."""
        asked = await self.asked(request)
        if not asked.words:
            raise InputError("nothing to draw", remedy="type a sentence first")
        readings = await self.readings(asked)
        drawn = picture(asked.words, asked.sentence, asked.num_read, readings)
        return Response(drawn, media_type="image/svg+xml", headers=_lacking(readings))

    async def readings(self, asked: Asked) -> list[Reading]:
        """What the models make of the text, whole; of those that cannot read it, why."""
        found = []
        for number, reader in asked.readers if asked.words else ():
            reading = Reading(name=reader.name, system=reader.lm.system, number=number)
            try:
                async with self._explaining():
                    sentences = [
                        [await reader.step(words[: place + 1]) for place in range(len(words))]
                        for words in asked.sentences
                    ]
                    look = await reader.look(asked.words[: asked.num_read])
                    reading = replace(reading, sentences=sentences, look=look)
            except InputError as error:
                reading = replace(reading, refused=str(error))
            found.append(reading)
        return found


def _lacking(readings: Sequence[Reading]) -> dict[str, str]:
    """The header that tells the page which models are missing in a file, and why."""
    told = "; ".join(f"{one.name}: {one.refused}" for one in readings if one.refused)
    return {"lacking": quote(told)} if told else {}


def _line(event: Event) -> bytes:
    """An event as a line; what is infinite, which JSON has no number for, is told as null."""
    if event.get("bits") == float("inf"):
        event = {**event, "impossible": True}
    return json_text(event, indent=None).encode("utf-8", "replace") + b"\n"


def application(readers: Sequence[Reader], limits: Limits, token: str) -> ASGIApp:
    """The server's program: the page and what it asks for are below ``/token/``; all else is not found."""
    explorer = Explorer(readers, limits)
    routes = [
        Route("/", lambda _: HTMLResponse(page(readers, limits))),
        Route("/explorer.css", lambda _: Response(style(), media_type="text/css")),
        Route("/explorer.js", lambda _: Response(script(), media_type="text/javascript")),
        Route("/read", explorer.read, methods=["POST"]),
        Route("/table", explorer.table, methods=["POST"]),
        Route("/svg", explorer.svg, methods=["POST"]),
    ]
    handlers: dict[Any, Callable[[Request, Exception], Response]] = {
        InputError: lambda _, error: PlainTextResponse(str(error), status_code=400),
        ClientDisconnect: lambda _, error: Response(status_code=400),
        Exception: lambda _, error: PlainTextResponse(str(explain(error, "explore")), status_code=500),
    }
    return _OnlyHere(Starlette(routes=[Mount("/{token}", routes=routes)], exception_handlers=handlers), token)


class _OnlyHere:
    """Lets in who knows the token and calls this machine by its own name, so that no other site's page gets in."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        """Stand before a program."""
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *ours]}
            await send(message)

        given = scope["path"].split("/")[1]
        host = dict(scope["headers"]).get(b"host", b"").rpartition(b":")[0]
        is_known = secrets.compare_digest(given.encode("utf-8", "replace"), self._token.encode())
        app = self._app if is_known and host in (b"127.0.0.1", b"localhost") else PlainTextResponse("not found", 404)
        await app(scope, receive, send_with_headers)
