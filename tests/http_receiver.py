"""A real HTTP server on loopback that does to a POST what a test asks for, and remembers what it got."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from abc import abstractmethod
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self


class Got(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which must be strict JSON in ASCII."""
        return json.loads(self.body.decode("ascii"), parse_constant=_refuse)


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


Act = Callable[[BaseHTTPRequestHandler], None]


def answer(code: int, body: bytes = b"ok", **headers: str) -> Act:
    """Answer with a status."""

    def act(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return act


def close(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without an answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def garbage(handler: BaseHTTPRequestHandler) -> None:
    """Answer with something that is not HTTP."""
    handler.wfile.write(b"\x00\xff\x1b[2J not HTTP\r\n\r\n")


class LoopbackServer:
    """A quiet HTTP server on loopback; a subclass takes its requests."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.released = threading.Event()  # ends what hangs
        outer = self

        class Request(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer._take(self)

            def do_GET(self) -> None:
                outer._take(self)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """A client that has gone is no error here."""

        self._server = Server(("127.0.0.1", 0), Request)
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    @abstractmethod
    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a request."""

    def hang(self, handler: BaseHTTPRequestHandler) -> None:
        """Take the request and never answer, until the server is closed."""
        self.released.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class HttpReceiver(LoopbackServer):
    """The server, with a list of what it got. `acts`: what it does, one request after the other; the last one stays."""

    def __init__(self, *acts: Act, tls: ssl.SSLContext | None = None) -> None:
        self.got: list[Got] = []
        self._acts = list(acts) or [answer(200)]
        self._scheme = "https" if tls else "http"
        super().__init__(tls)

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
        self.got.append(Got(handler.path, dict(handler.headers), body))
        act = self._acts.pop(0) if len(self._acts) > 1 else self._acts[0]
        act(handler)

    def trickle(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a byte at a time, for ever: each read succeeds."""
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Endless: ")
        while not self.released.wait(0.02):
            handler.wfile.write(b"x")
            handler.wfile.flush()

    def then(self, *acts: Act) -> None:
        """From the next request on do this."""
        self._acts[:] = acts

    def url(self, path: str = "/services/T0/B0/pathsecret") -> str:
        """An address of it."""
        return f"{self._scheme}://127.0.0.1:{self.port}{path}"


def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}/services/pathsecret"
