"""HTTP and HTTPS with one deadline for the whole exchange; texts for failures never repeat the address."""

from __future__ import annotations

import http.client
import socket
import time
import urllib.error
import urllib.request
from threading import Lock, Timer
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from http.client import HTTPResponse

# what OpenSSL says of bytes that are no TLS, by version and by what the server wrote
_NO_TLS = {"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}
_TLS_ALERT = "\x15\x03"  # the answer of a TLS server to anything else


def opener(deadline: Deadline) -> urllib.request.OpenerDirector:
    """HTTP and HTTPS only, by way of the proxy that the environment names.

    Without a handler for redirects: a redirected POST would become a GET, and could lead to another host.
    """
    made = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        *_handlers(deadline),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        made.add_handler(handler)
    return made


def _handlers(deadline: Deadline) -> list[urllib.request.BaseHandler]:
    """Those of both schemes, with connections that the deadline ends; https needs a Python with ssl."""

    class Http(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> HTTPResponse:
            return self.do_open(lambda host, **more: deadline.watch(http.client.HTTPConnection(host, **more)), req)

    if not hasattr(urllib.request, "HTTPSHandler"):
        return [Http()]

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> HTTPResponse:
            return self.do_open(lambda host, **more: deadline.watch(http.client.HTTPSConnection(host, **more)), req)

    return [Http(), Https()]


def _spoken(reason: object) -> str:
    """`tlsv1 alert protocol version`, of TLSV1_ALERT_PROTOCOL_VERSION."""
    return str(reason).replace("_", " ").lower()


def status_line(code: int) -> str:
    """A status as the field writes it: `HTTP 503 Service Unavailable`."""
    return f"HTTP {code} {http.client.responses.get(code, '')}".rstrip()


def failure_reason(error: Exception, deadline: Deadline) -> str:
    """Why there was no answer; texts of exceptions may repeat the address, so only those of the system are shown."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if deadline.over or isinstance(cause, TimeoutError):
        return f"no answer within {deadline.seconds:g} s"
    if isinstance(cause, socket.gaierror):
        return "unknown host name"
    if type(cause).__name__ == "SSLCertVerificationError":  # ssl is loaded for https only
        return f"certificate refused: {getattr(cause, 'verify_message', '') or 'not valid'}"
    if isinstance(cause, OSError) and (reason := getattr(cause, "reason", None)):  # an SSLError, with OpenSSL's word
        return "no TLS on this port: use http://" if reason in _NO_TLS else f"no TLS connection: {_spoken(reason)}"
    if isinstance(cause, http.client.BadStatusLine) and str(cause).startswith(_TLS_ALERT):
        return "this port speaks TLS: use https://"
    if isinstance(cause, http.client.RemoteDisconnected):
        return "the server closed the connection without an answer"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return f"no valid answer ({type(cause).__name__})"


class Deadline:
    """Ends connections when the time is over: a socket's timeout is one of each read, and a server may trickle."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.over = seconds, False
        self._until_s = time.monotonic() + seconds
        self._lock = Lock()
        self._sockets: list[socket.socket] = []
        self._timer = Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            for one in self._sockets:
                one.close()
            self._sockets.clear()

    def watch(self, connection: Any) -> Any:
        """Have a connection made by `connect`."""
        connection._create_connection = self.connect  # called before TLS, and for a proxy
        return connection

    def connect(self, address: tuple[str, int], *_: object) -> socket.socket:
        """A connected socket that ends with the deadline; each address of the host gets the time that is left."""
        last: OSError | None = None
        for family, kind, protocol, _name, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            one = socket.socket(family, kind, protocol)
            try:
                one.settimeout(max(0.001, self._until_s - time.monotonic()))
                one.connect(place)
            except OSError as error:
                one.close()
                last = error
                continue
            with self._lock:
                self._sockets.append(one.dup())  # TLS takes the number of the first one away
            return one
        raise last or OSError("no address")

    def _end(self) -> None:
        with self._lock:
            self.over = True
            for one in self._sockets:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
