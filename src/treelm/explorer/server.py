"""The server of the page: a few addresses below a token, on a port of this machine alone, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from treelm.errors import InputError
from treelm.explorer.page import cards_of, page, script, style
from treelm.explorer.reading import Reader
from treelm.explorer.sentences import Limits, Words, sentences_of
from treelm.failures import explain
from treelm.io.json import json_text
from treelm.io.terminal import doing

Event = dict[str, Any]
Put = Callable[[Event], Awaitable[None]]

_MAX_BYTES = 1 << 17
_MAX_WAIT = 10.0  # seconds for the head of a request, and for its body
_HOST = "127.0.0.1"
_HEADERS = (
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
        b"img-src blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request of the page: a text, the models to read it, and the word after which their analyses are shown."""

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
        try:
            async with asyncio.timeout(_MAX_WAIT):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > _MAX_BYTES:
                        raise InputError("a text that is too long", remedy="treelm surprisal reads files of any length")
            found = json.loads(body)
            text, runs, at = str(found["text"]), [int(run) for run in found["runs"]], found.get("at")
            text.encode()  # half characters, which JSON may hold
            readers = [(run, self.readers[run]) for run in dict.fromkeys(runs) if run >= 0]
            sentence, word = (-1, -1) if at is None else map(int, at)
        except InputError:
            raise
        except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError, OSError) as error:
            raise InputError("a request that cannot be read", remedy="load the page again") from error
        sentences = await asyncio.to_thread(sentences_of, text, self.limits)
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
            task.cancel()  # the client has left: what it no longer waits for is not computed

    async def _read(self, number: int, reader: Reader, asked: Asked, put: Put) -> None:
        """Let a model read the sentence in view, look, and read the others."""
        try:
            async with self._explaining():
                for sentence in sorted(range(len(asked.sentences)), key=lambda one: one != asked.sentence):
                    words = asked.sentences[sentence]
                    for place in range(len(words)):
                        step = await reader.step(words[: place + 1])
                        values = {"bits": step.surprisal_bits, "unknown": step.unknown_class}
                        await put({"event": "word", "run": number, "sentence": sentence, "word": place, **values})
                    if sentence == asked.sentence:
                        words = words[: asked.num_read]
                        look = await reader.look(words)
                        cards = await asyncio.to_thread(cards_of, look, reader.name, number, words)
                        await put({"event": "look", "run": number, "cards": cards})
        except InputError as error:
            await put({"event": "refused", "run": number, "message": str(error)})

    @asynccontextmanager
    async def _explaining(self) -> AsyncIterator[None]:
        """Let a model compute for as long as it may; what ends it, a fault too, becomes an ``InputError``.

        The page then reports it, and the other models read on.
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

    async def read(self, request: Request) -> Response:
        """Answer with the stream of events."""
        return StreamingResponse(self.events(await self.asked(request)), media_type="application/x-ndjson")


def _line(event: Event) -> bytes:
    """An event as a line; what is infinite, which JSON has no number for, is null."""
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
    ]
    handlers: dict[Any, Callable[[Request, Exception], Response]] = {
        InputError: lambda _, error: PlainTextResponse(str(error), status_code=400),
        ClientDisconnect: lambda _, error: Response(status_code=400),
        Exception: lambda _, error: PlainTextResponse(str(explain(error, "explore")), status_code=500),
    }
    return _guarded(Starlette(routes=[Mount("/{token}", routes=routes)], exception_handlers=handlers), token)


def _guarded(app: ASGIApp, token: str) -> ASGIApp:
    """Answer only requests that know the token and call this machine by its own name; all others get 404.

    A page of another site cannot get in even if it has found out the address, as browsers send its ``Origin``.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        given = scope["path"].partition("/")[2].partition("/")[0]  # the path of OPTIONS and CONNECT may have no "/"
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"")
        is_known = secrets.compare_digest(given.encode("utf-8", "replace"), token.encode())
        is_here = host.rpartition(b":")[0] in (b"127.0.0.1", b"localhost")
        is_let_in = is_known and is_here and headers.get(b"origin", b"http://" + host) == b"http://" + host
        await (app if is_let_in else PlainTextResponse("not found", 404))(scope, receive, send_with_headers)

    return answer


class _Impatient(H11Protocol):
    """A connection that is closed if the head of a request does not arrive within some seconds."""

    def connection_made(self, transport: Any) -> None:
        """Wait for the first head."""
        super().connection_made(transport)
        self.loop.call_later(_MAX_WAIT, self._close_if_idle)

    def data_received(self, data: bytes) -> None:
        """Take what has come, and wait for the rest of a head."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self.loop.call_later(_MAX_WAIT, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self.transport.close()


def serve(readers: Sequence[Reader], limits: Limits, *, port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C or SIGTERM. ``ready`` is called with the address once a browser may open it.

    Raises ``InputError`` for a port that is not free.
    """
    config = uvicorn.Config(
        application(readers, limits, token),
        http=_Impatient,
        log_level="critical",
        access_log=False,  # it would print the token
        lifespan="off",
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    with _bound(port) as listening:
        for reader in readers:
            with doing(f"first words of {reader.name}"):
                reader.warm_up()
        ready(f"http://{_HOST}:{listening.getsockname()[1]}/{token}/")
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:
            pass  # how it is ended
        finally:
            for reader in readers:
                reader.close()


def _bound(port: int) -> socket.socket:
    """A port of this machine alone on which browsers may call from now on; 0: any that is free."""
    if not 0 <= port < 1 << 16:
        raise InputError(f"--port {port}", remedy="give one from 1 to 65535, or 0 for any that is free")
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise InputError(f"port {port} cannot be used: {error.strerror}", remedy="give another --port") from error
    return listening
