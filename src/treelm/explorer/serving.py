"""The server's life: a port of this machine, until Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import uvicorn

from treelm.errors import InputError
from treelm.explorer.reading import Reader
from treelm.explorer.server import application
from treelm.explorer.text import Limits

HOST = "127.0.0.1"


def serve(readers: Sequence[Reader], limits: Limits, *, port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C or SIGTERM. ``ready`` is called with its address once a browser may open it.

    Raises ``InputError`` for a port that is not free.
    """
    config = uvicorn.Config(
        application(readers, limits, token),
        log_level="critical",
        access_log=False,  # it would print the token
        lifespan="off",
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    with _bound(port) as listening:
        for reader in readers:
            reader.warm_up()
        ready(f"http://{HOST}:{listening.getsockname()[1]}/{token}/")
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
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise InputError(f"port {port} cannot be used: {error.strerror}", remedy="give another --port") from error
    return listening
