"""The scrape endpoint: HTTP or HTTPS for a few scrapers, closed to everything else.

GET and HEAD of /metrics only, from hosts named in the Host header as this machine is (a page in a browser that was
lured here by DNS names another one), within five seconds for a whole request, at most eight at a time.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import os
import socket
import ssl
import time
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import BoundedSemaphore, Lock, Thread, get_ident
from typing import Any

from gputop.frozen_dataclass import frozen_dataclass
from gputop.prometheus.exposition import CachedExposition, TooLarge
from gputop.safe.text import clean

PATH = "/metrics"
REQUEST_S = 5.0  # for a whole request, from its connection to the last byte
MOST_CONNECTIONS = 8
_LOOK_S = 0.5
_OF_DCGM = 9400  # the port of dcgm-exporter, and ours by default
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


class Unavailable(Exception):
    """The endpoint cannot be opened; one line: what, why, what to do."""


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where to listen, and for whom."""

    host: str
    port: int
    names: frozenset[str] = frozenset()  # further names that a Host header may have
    token: str | None = None  # a scraper must send it as a bearer token
    tls: ssl.SSLContext | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or _is_loopback(self.host)

    def shown(self, port: int) -> str:
        """Host and port as in a URL; `port` may have been chosen by the kernel."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


def parse_endpoint(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:9400`, `[::1]:9400` or `:9400`; ValueError says what is wrong."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not bracketed):
        raise ValueError(f"{text!r} is not an address: use HOST:PORT, as in 127.0.0.1:9400 or [::1]:9400")
    return (host[1:-1] if bracketed else host) or "0.0.0.0", int(port)


def tls_context(certificate: str, key: str, client_authority: str | None) -> ssl.SSLContext:
    """TLS 1.2 and later with this certificate; with an authority, only for clients that it has certified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    at = certificate
    try:
        context.load_cert_chain(certificate, key)
        if client_authority is not None:
            at = client_authority
            context.load_verify_locations(client_authority)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise Unavailable(f"TLS cannot use {clean(at)}: {clean(str(error))}") from None
    return context


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class ScrapeServer(ThreadingHTTPServer):
    """Listens from construction on; `start` answers in threads that delay no exit."""

    request_queue_size = 128  # connections that wait to be accepted: a scraper must get through among many others
    daemon_threads = True
    block_on_close = False

    def __init__(self, endpoint: Endpoint, exposition: CachedExposition, request_s: float = REQUEST_S) -> None:
        """Unavailable if the address cannot be listened on. `request_s`: time for a whole request."""
        self.request_s = request_s
        self.exposition, self.token, self.tls = exposition, endpoint.token, endpoint.tls
        self.local_only = endpoint.is_local
        own = () if self.local_only else _own_names()
        self.names = frozenset({"localhost", endpoint.host.lower(), *endpoint.names, *own})
        self._slots = BoundedSemaphore(MOST_CONNECTIONS)
        self._open: dict[int, tuple[socket.socket, float]] = {}  # by thread: its connection, and until when
        self._lock = Lock()
        try:
            found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self.address_family, _, _, _, address = found[0]
            super().__init__((str(address[0]), int(address[1])), ScrapeRequest)
        except OSError as error:
            raise Unavailable(_refusal(endpoint, error)) from None

    def server_bind(self) -> None:
        """Bind without asking DNS for the name of this machine, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def start(self, look_s: float = _LOOK_S) -> None:
        """Answer from now on. `look_s`: how often requests that take too long are looked for."""
        Thread(target=self.serve_forever, args=(look_s,), name="scrapes", daemon=True).start()

    def accepts(self, host_header: str) -> bool:
        """Whether a Host header names this endpoint: its address or a known name, with any port.

        A name is what DNS rebinding needs, so an address is as good as another: a browser sends one only for a URL
        with that address.
        """
        name = host_header.strip().lower()
        name = name[1 : name.find("]")] if name.startswith("[") else name.rpartition(":")[0] or name
        return name in self.names or (_is_loopback(name) if self.local_only else _is_address(name))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection its thread, or turn it away if there are too many."""
        if not self._slots.acquire(blocking=False):
            with suppress(OSError):
                if self.tls is None:
                    request.setblocking(False)
                    request.send(_BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._slots.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request in its thread."""
        until_s = time.monotonic() + self.request_s
        try:
            self._watch(request, until_s)
            if self.tls is None:
                super().process_request_thread(request, client_address)
            elif (secured := self._secured(self.tls, request, until_s)) is not None:
                super().process_request_thread(secured, client_address)
        finally:
            with self._lock:
                self._open.pop(get_ident(), None)
            self._slots.release()

    def _secured(self, tls: ssl.SSLContext, request: socket.socket, until_s: float) -> ssl.SSLSocket | None:
        """The connection after the handshake of TLS, which is a part of the request; None if that fails."""
        request.settimeout(self.request_s)
        secured = tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        self._watch(secured, until_s)
        try:
            secured.do_handshake()
        except OSError:  # SSLError is one
            self.shutdown_request(secured)
            return None
        return secured

    def _watch(self, connection: socket.socket, until_s: float) -> None:
        """Have the connection of this thread closed then, whatever the thread waits for."""
        with self._lock:
            self._open[get_ident()] = connection, until_s

    def service_actions(self) -> None:
        """Close connections whose time is over: a timeout of each read would let a slow client in for ever."""
        now_s = time.monotonic()
        with self._lock:
            for connection, until_s in self._open.values():
                if now_s >= until_s:
                    with suppress(OSError):
                        socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that goes away, or speaks something else, is no event."""


class ScrapeRequest(BaseHTTPRequestHandler):
    """One request. Whatever the client sends, nothing of it is repeated."""

    server: ScrapeServer
    timeout = REQUEST_S

    def version_string(self) -> str:
        """The Server header: no version, which only an attacker would read."""
        return "gputop"

    def do_GET(self) -> None:
        """Answer with the metrics, or why not."""
        if refused := self._refusal():
            self._answer(*refused)
            return
        try:
            text, content_type = self.server.exposition.text(self.headers.get("Accept", ""))
        except TooLarge:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "the answer would be too large: lower --max-series\n")
            return
        self._answer(HTTPStatus.OK, text, content_type)

    do_HEAD = do_GET

    def _refused_method(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD\n")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refused_method

    def _refusal(self) -> tuple[HTTPStatus, str] | None:
        """Why this request gets no metrics; None if it does."""
        if not self.server.accepts(self.headers.get("Host", "")):
            return HTTPStatus.MISDIRECTED_REQUEST, "unknown Host: add it with --allow-host\n"
        token = self.server.token
        given = self.headers.get("Authorization", "")
        if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return HTTPStatus.UNAUTHORIZED, "a bearer token is needed\n"
        if self.path.partition("?")[0] != PATH:
            return HTTPStatus.NOT_FOUND, f"the metrics are at {PATH}\n"
        return None

    def _answer(self, status: HTTPStatus, body: str | bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        content = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Refuse what is no request, without repeating it."""
        self._answer(HTTPStatus(code), f"{HTTPStatus(code).phrase}\n")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a scrape is no event."""


def _own_names() -> Iterable[str]:
    """The names of this machine: whole, and without its domain."""
    name = os.uname().nodename.lower()
    return {name, name.partition(".")[0]} - {""}


def _refusal(endpoint: Endpoint, error: OSError) -> str:
    reasons = {
        errno.EADDRINUSE: f"is in use{', maybe by dcgm-exporter' if endpoint.port == _OF_DCGM else ''}",
        errno.EACCES: "is not permitted: ports below 1024 need root",
        errno.EADDRNOTAVAIL: "is not an address of this machine",
    }
    why = reasons.get(error.errno or 0, f"cannot be listened on: {error.strerror}")
    return f"{clean(endpoint.shown(endpoint.port))} {why}; choose another with --listen"
