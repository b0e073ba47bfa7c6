"""Calls of a server's program without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message

HERE = "127.0.0.1:8000"


class Answer(NamedTuple):
    """What the program answered."""

    status: int
    headers: Mapping[str, str]
    body: str

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.body.splitlines()]


async def call(
    app: ASGIApp, path: str, body: object = None, *, host: str = HERE, method: str = "", origin: str | None = None
) -> Answer:
    """GET, or POST if there is a body."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method or ("GET" if body is None else "POST"),
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", host.encode()), *([] if origin is None else [(b"origin", origin.encode())])],
    }
    sent: list[Message] = []
    waiting = [{"type": "http.request", "body": b"" if body is None else content}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()  # a browser that stays
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    try:
        await app(scope, receive, send)
    except Exception:  # of a fault, which starlette hands on to the server when it has answered
        if not sent:
            raise
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    text = b"".join(message.get("body", b"") for message in sent[1:]).decode()
    return Answer(sent[0]["status"], headers, text)
