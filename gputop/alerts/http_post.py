"""One POST by HTTP or HTTPS with a deadline; no error text repeats the address, whose path may be a secret."""

from __future__ import annotations

import http.client
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from threading import Lock, Timer
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gputop.alerts.receiver import Undelivered

if TYPE_CHECKING:
    from http.client import HTTPResponse

_MOST_BYTES = 4096  # of an answer that are read
_CODE = re.compile(r"[a-z][a-z0-9_]{2,39}")  # the answer of Slack to what it refuses: invalid_payload
_MOST_WAIT_S = 300.0
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}


def post(address: str, data: bytes, headers: Mapping[str, str], seconds: float) -> None:
    """POST these bytes; Undelivered unless the answer is a success. Redirects are not followed."""
    with Deadline(seconds) as deadline:
        try:
            request = urllib.request.Request(address, data, dict(headers), method="POST")
            with _opener(deadline).open(request, timeout=seconds) as answer:
                answer.read(_MOST_BYTES)
            if deadline.over:  # an answer cut short looks complete
                raise TimeoutError
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _failure(error, deadline) from None


def _refusal(error: urllib.error.HTTPError) -> Undelivered:
    """What an answer other than success means; its text may repeat the address, so only a code word is shown."""
    said = http.client.responses.get(error.code, "")
    if 300 <= error.code < 400:
        return Undelivered(f"HTTP {error.code} {said}: redirects are not followed, use the final address", again=False)
    try:
        word = error.read(_MOST_BYTES).decode("ascii", "replace").strip()
    except (OSError, http.client.HTTPException, ValueError):
        word = ""
    code = f" ({word})" if _CODE.fullmatch(word) else ""
    reason = f"HTTP {error.code} {said}".rstrip()
    return Undelivered(f"{reason}{code}", again=error.code in _TEMPORARY, after_s=_wanted_wait(error))


def _wanted_wait(error: urllib.error.HTTPError) -> float | None:
    given = (error.headers.get("Retry-After") or "").strip()
    return min(float(given), _MOST_WAIT_S) if re.fullmatch(r"\d{1,6}", given) else None


def _failure(error: Exception, deadline: Deadline) -> Undelivered:
    """Why there was no answer; texts of exceptions may repeat the address, so only those of the system are shown."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if deadline.over or isinstance(cause, TimeoutError):
        return Undelivered(f"no answer within {deadline.seconds:g} s")
    if isinstance(cause, socket.gaierror):
        return Undelivered("unknown host name")
    if type(cause).__name__ == "SSLCertVerificationError":  # ssl is loaded for https only
        return Undelivered(f"certificate refused: {getattr(cause, 'verify_message', '') or 'not valid'}")
    if isinstance(cause, http.client.RemoteDisconnected):
        return Undelivered("the server closed the connection without an answer")
    if isinstance(cause, OSError) and cause.strerror:
        return Undelivered(cause.strerror)
    return Undelivered(f"no valid answer ({type(cause).__name__})")


def _opener(deadline: Deadline) -> urllib.request.OpenerDirector:
    """HTTP and HTTPS only, by way of the proxy that the environment names.

    Without a handler for redirects: a redirected POST would become a GET, and could lead to another host.
    """
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        *_handlers(deadline),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


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
