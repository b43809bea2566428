"""The scrape endpoint against everything that may connect to it."""

from __future__ import annotations

import http.client
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gputop.prometheus.exposition import CachedExposition
from gputop.prometheus.server import (
    MOST_CONNECTIONS,
    Endpoint,
    ScrapeServer,
    Unavailable,
    parse_endpoint,
    tls_context,
)
from tests.advice_scenes import found, hot, update
from tests.scrapes import OPENMETRICS, PATIENCE_S, collected, conversation, parsed, request, until, values

SHOWN = update(found(), hot())
OWN = os.uname().nodename


@pytest.fixture(autouse=True)
def broken_pipes() -> Iterator[None]:
    """As in the program: an earlier test may have run a command line in this process, which ends with its pipe."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGPIPE, before)


@contextmanager
def listening(request_s: float = PATIENCE_S, host: str = "127.0.0.1", **endpoint: Any) -> Iterator[ScrapeServer]:
    """A server on a free port of loopback."""
    exposition = CachedExposition(collected(SHOWN))
    with ScrapeServer(Endpoint(host=host, port=0, **endpoint), exposition, request_s) as server:
        server.start(0.02)
        yield server
        server.shutdown()


def test_a_scrape_gets_the_metrics_in_the_format_it_asks_for() -> None:
    with listening() as server:
        plain = request(server.server_port)
        assert (plain.status, plain.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert plain.headers["Content-Length"] == str(len(plain.content))
        assert values(parsed(plain.content), "gputop_gpus") == [8.0]
        structured = request(server.server_port, Accept=OPENMETRICS)
        assert structured.headers["Content-Type"].startswith(OPENMETRICS)
        assert values(parsed(structured.content, "openmetrics"), "gputop_gpus") == [8.0]
        head = request(server.server_port, method="HEAD")
        assert (head.status, head.content, int(head.headers["Content-Length"]) > 1000) == (200, b"", True)


def test_no_answer_helps_a_page_in_a_browser_or_says_what_runs_here() -> None:
    with listening() as server:
        for answer in (request(server.server_port), request(server.server_port, "/", Origin="https://example.org")):
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Server"] == "gputop"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_f09_other_methods_are_refused(method: str) -> None:
    with listening() as server:
        answer = request(server.server_port, method=method)
        assert (answer.status, answer.headers["Allow"], answer.content) == (405, "GET, HEAD", b"only GET and HEAD\n")


@pytest.mark.parametrize("path", ["/", "/../../etc/passwd", "/metrics/..", "/%2e%2e/", "*", "/metrics/"])
def test_f09_there_is_one_path(path: str) -> None:
    with listening() as server:
        answer = request(server.server_port, path)
        assert (answer.status, answer.content) == (404, b"the metrics are at /metrics\n")
        assert request(server.server_port, "/metrics?name[]=x").status == 200


@pytest.mark.parametrize(
    ("host", "names", "status"),
    [
        ("localhost", (), 200),
        ("LOCALHOST:9400", (), 200),
        ("127.0.0.1:1", (), 200),
        ("127.9.9.9", (), 200),
        ("[::1]:9400", (), 200),
        ("evil.example.org:9400", (), 421),
        ("localhost.evil.example.org", (), 421),
        ("10.0.0.1", (), 421),
        ("127.0.0.1.evil.example.org", (), 421),
        ("[::1", (), 421),
        (OWN, (), 200 if OWN == "localhost" else 421),  # accepted at an address that others reach
        ("", (), 421),
        ("proxy.example.org", ("proxy.example.org",), 200),
    ],
)
def test_f09_a_host_header_that_is_not_ours_is_refused(host: str, names: tuple[str, ...], status: int) -> None:
    """A page in a browser that was lured here by DNS sends the name of its own site."""
    with listening(names=frozenset(names)) as server:
        assert request(server.server_port, Host=host).status == status


def test_an_endpoint_for_others_accepts_addresses_and_the_name_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as server:
        server.local_only, server.names = False, frozenset({"localhost", "dgx-07.lab", "dgx-07"})
        for host, accepted in (("10.0.0.7:9400", True), ("dgx-07:9400", True), ("dgx-07.lab", True), ("x.org", False)):
            assert server.accepts(host) == accepted, host
    assert not Endpoint(host="0.0.0.0", port=1).is_local
    assert Endpoint(host="::1", port=1).is_local


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n\r\n",  # without a Host
        b"GET /metrics\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
        b"GET /\x1b]0;owned\x07 HTTP/1.1\r\nHost: \x1b[2J\r\n\r\n",
    ],
    ids=range(10),
)
def test_f09_what_is_no_request_gets_no_metrics_and_nothing_of_it_back(
    sent: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with listening() as server:
        try:
            answer = conversation(server.server_port, sent)
        except ConnectionResetError:  # it does not read the rest of what it refuses
            answer = b""
        assert b"gputop_" not in answer
        assert b"\x1b" not in answer
        assert request(server.server_port).status == 200
    assert capfd.readouterr() == ("", "")


def test_f09_a_slow_client_is_cut_off_whatever_it_sends() -> None:
    """A byte now and then is answered to by every timeout of a read, for ever."""
    with listening(request_s=1.0) as server:
        began_s = time.monotonic()
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE_S) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\n")
            with pytest.raises((BrokenPipeError, ConnectionResetError)):  # noqa: PT012
                while time.monotonic() < began_s + PATIENCE_S:
                    slow.sendall(b"X")
                    time.sleep(0.05)
        until(lambda: server._slots._value == MOST_CONNECTIONS)


def test_f09_a_client_that_does_not_read_is_cut_off() -> None:
    with listening(request_s=1.0) as server:
        server.exposition = CachedExposition(collected(SHOWN))
        server.exposition.text = lambda accept: (b"x" * (64 << 20), "text/plain")  # type: ignore[method-assign]
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE_S) as lazy:
            lazy.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: server._slots._value == MOST_CONNECTIONS - 1)
            until(lambda: server._slots._value == MOST_CONNECTIONS)


def test_f09_a_thousand_connections_take_eight_threads_and_then_it_goes_on() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with listening(request_s=2.0) as server, ExitStack() as open_:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
        open_.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        before = threading.active_count()
        for _ in range(1000):
            connection = socket.socket()
            open_.callback(connection.close)
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", server.server_port))
            assert threading.active_count() <= before + MOST_CONNECTIONS
        assert until(lambda: _status(server.server_port)) == 200


def _status(port: int) -> int | None:
    try:
        status = request(port).status
    except (ConnectionError, http.client.HTTPException):
        return None
    return status if status == 200 else None


def test_f09_who_comes_too_many_is_told_so() -> None:
    with listening() as server, ExitStack() as open_:
        for _ in range(MOST_CONNECTIONS):
            open_.enter_context(socket.create_connection(("127.0.0.1", server.server_port)))
        until(lambda: server._slots._value == 0)
        assert request(server.server_port).status == 503


def test_f09_a_port_that_is_in_use_is_said_so() -> None:
    said = r"127\.0\.0\.1:\d+ is in use; choose another with --listen"
    with listening() as server, pytest.raises(Unavailable, match=said):
        ScrapeServer(Endpoint(host="127.0.0.1", port=server.server_port), server.exposition)


def test_loopback_of_ipv6_is_one_more_address() -> None:
    try:
        with listening(host="::1") as server:
            connection = http.client.HTTPConnection("::1", server.server_port, timeout=PATIENCE_S)
            connection.request("GET", "/metrics")
            assert connection.getresponse().status == 200
            connection.close()
    except Unavailable as why:
        pytest.skip(f"not covered: {why}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9400", ("127.0.0.1", 9400)),
        ("[::1]:9400", ("::1", 9400)),
        (":9400", ("0.0.0.0", 9400)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_an_address_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert parse_endpoint(text) == expected


@pytest.mark.parametrize("text", ["9400", "localhost", "::1:9400", "x:y", "x:-1", "x:65536", ""])
def test_what_is_no_address_is_said_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address: use HOST:PORT, as in 127\.0\.0\.1:9400"):
        parse_endpoint(text)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"Authorization": "Bearer s3cret"}, 200),
        ({"Authorization": "Bearer s3cre"}, 401),
        ({"Authorization": "Basic s3cret"}, 401),
        ({"Authorization": "Bearer \xfc"}, 401),
        ({}, 401),
    ],
)
def test_with_a_token_a_scraper_must_send_it(sent: dict[str, str], status: int) -> None:
    with listening(token="s3cret") as server:
        answer = request(server.server_port, **sent)
        assert answer.status == status
        assert (answer.headers["WWW-Authenticate"] == "Bearer") == (status == 401)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with a certificate of localhost, one of a client, and their keys; each is its own authority."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("not covered: openssl is not installed, so no certificate for TLS could be made")
    for name in ("server", "client"):
        subprocess.run(
            [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
             "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout",
             str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.pem")],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
    return tmp_path


def _over_tls(port: int, folder: Path, client: bool) -> int:
    context = ssl.create_default_context(cafile=str(folder / "server.pem"))
    if client:
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
    connection = http.client.HTTPSConnection("localhost", port, timeout=PATIENCE_S, context=context)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert b"gputop_gpus" in answer.read()
        return answer.status
    finally:
        connection.close()


def test_https_with_and_without_a_certificate_of_the_client(certificates: Path) -> None:
    pair = str(certificates / "server.pem"), str(certificates / "server.key")
    with listening(tls=tls_context(*pair, None)) as server:
        assert _over_tls(server.server_port, certificates, client=False) == 200
        with pytest.raises(ConnectionError):  # plain HTTP
            request(server.server_port)
    with listening(tls=tls_context(*pair, str(certificates / "client.pem"))) as server:
        assert _over_tls(server.server_port, certificates, client=True) == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            _over_tls(server.server_port, certificates, client=False)


def test_f09_a_client_that_never_finishes_the_handshake_is_cut_off(certificates: Path) -> None:
    context = tls_context(str(certificates / "server.pem"), str(certificates / "server.key"), None)
    with listening(request_s=1.0, tls=context) as server:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE_S) as slow:
            assert slow.recv(100) == b""
        assert _over_tls(server.server_port, certificates, client=False) == 200


def test_a_certificate_that_cannot_be_used_is_said_so(certificates: Path) -> None:
    missing = str(certificates / "no.pem")
    with pytest.raises(Unavailable, match=r"TLS cannot use .*no\.pem: .*No such file"):
        tls_context(missing, missing, None)
    with pytest.raises(Unavailable, match=r"TLS cannot use .*client.pem"):
        tls_context(str(certificates / "client.pem"), str(certificates / "server.key"), None)
