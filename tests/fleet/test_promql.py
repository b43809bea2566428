"""The client against a real server on loopback: what arrives there, and whatever a server may answer."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from gputop.fleet import promql
from gputop.fleet.address import PrometheusAddress, parse
from gputop.fleet.promql import PrometheusClient, Unanswered
from tests.fleet.scripted import Act, ScriptedPrometheus, body, instant, names, saying
from tests.http_receiver import HttpReceiver, answer, close, garbage, nobody

HTML = b"<html><body>Sign in \x1b]0;owned\x07</body></html>"


def client(url: str, timeout_s: float = 10.0, **more: Any) -> PrometheusClient:
    return PrometheusClient(PrometheusAddress(url=url, place="here", **more), timeout_s)


def refused(act: Act, timeout_s: float = 10.0, **more: Any) -> str:
    """What is said of an answer."""
    with HttpReceiver(act) as server, pytest.raises(Unanswered) as why:
        client(server.url(""), timeout_s, **more).instant("up")
    text = str(why.value)
    assert text.isprintable()
    assert len(text) < 220
    return text


def test_a_query_is_a_form_with_a_deadline_for_the_server_too() -> None:
    with ScriptedPrometheus(names(3)) as server:
        asked = PrometheusClient(parse(f"{server.url}/"))
        values = asked.instant('label_replace(up, "gputop_value", "x", "", "")')
        assert len(values) > 3
        assert {sample.labels["instance"] for sample in values} == set(names(3))
        asked.over("up", 0.0, 3600.0, 60.0)
        first, second = server.asked
    assert (first.path, first.form["timeout"]) == ("/api/v1/query", "10s")
    assert second.path == "/api/v1/query_range"
    assert {name: second.form[name] for name in ("start", "end", "step")} == {
        "start": "0.000", "end": "3600.000", "step": "60",
    }  # fmt: skip
    assert "Authorization" not in first.headers


def test_values_that_are_no_numbers_are_unknown_and_times_are_placed() -> None:
    series = [instant(5.0, text, a=str(place)) for place, text in enumerate(("1.5", "NaN", "+Inf", "-Inf", "1e400"))]
    with HttpReceiver(answer(200, body(series))) as server:
        found = client(server.url("")).instant("x")
    assert [one.value for one in found] == [1.5, None, None, None, None]
    assert {one.at_s for one in found} == {5.0}
    points = [[0.0, "1"], [60.2, "NaN"], [180.0, "3"], [1e9, "4"]]
    with HttpReceiver(answer(200, body([{"metric": {}, "values": points}], "matrix"))) as server:
        (one,) = client(server.url("")).over("x", 0.0, 240.0, 60.0)
    assert one.evenly(0.0, 60.0, 4) == (1.0, None, None, 3.0)


WRONG: dict[str, object] = {
    "no object": [],
    "a number": 7,
    "no status": {"data": {"resultType": "vector", "result": []}},
    "no data": {"status": "success"},
    "another kind": {"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}},
    "no list": {"status": "success", "data": {"resultType": "vector", "result": {}}},
    "no metric": {"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, "2"]}]}},
    "a label of a number": {"status": "success", "data": {"resultType": "vector",
                            "result": [{"metric": {"a": 7}, "value": [1, "2"]}]}},
    "a value of a number": {"status": "success", "data": {"resultType": "vector",
                            "result": [{"metric": {}, "value": [1, 2]}]}},
    "a value without time": {"status": "success", "data": {"resultType": "vector",
                             "result": [{"metric": {}, "value": ["2"]}]}},
    "no time": {"status": "success", "data": {"resultType": "vector",
                "result": [{"metric": {}, "value": [None, "2"]}]}},
    "a text as time": {"status": "success", "data": {"resultType": "vector",
                       "result": [{"metric": {}, "value": ["1", "2"]}]}},
    "a word": {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "x"]}]}},
    "histograms": {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "histogram": []}]}},
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_an_answer_of_another_shape_is_refused(case: str) -> None:
    assert "not one of the query API" in refused(answer(200, json.dumps(WRONG[case]).encode()))


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (answer(200, HTML), "the answer is not JSON: is this the address of a Prometheus?"),
        (answer(200, b""), "the answer is not JSON"),
        (answer(200, b"[" * 200_000), "the answer is not JSON"),
        (answer(200, b'{"status": 1' + b"0" * 9999 + b"}"), "the answer is not JSON"),
        (answer(200, body([])[:-4]), "the answer is not JSON"),
        (answer(500, HTML), "HTTP 500 Internal Server Error"),
        (answer(404, HTML), "HTTP 404 Not Found: no query API there, check the address"),
        (answer(302, b"", Location="http://elsewhere"), "HTTP 302 Found: redirects are not followed"),
        (answer(401, HTML), "HTTP 401 Unauthorized: give a token with --token-file"),
        (answer(403, b"{}"), "HTTP 403 Forbidden: give a token"),
        (answer(422, b'{"status":"error","errorType":"execution","error":"too \\u001b[2J many\\nsamples"}'),
         "query failed: execution: too"),
        (answer(200, b'{"status":"error","error":7}'), "query failed: no reason given"),
        (answer(503, b'{"status":"error","errorType":"timeout","error":"query timed out"}'),
         "timeout: query timed out"),
        (close, "the server closed the connection without an answer"),
        (garbage, "no valid answer"),
    ],
)  # fmt: skip
def test_h05_what_is_no_answer_is_one_line(act: Act, says: str) -> None:
    assert says in refused(act)


def test_h05_a_server_that_hangs_or_trickles_has_a_deadline() -> None:
    for name in ("hang", "trickle"):
        with HttpReceiver() as server:
            server.then(getattr(server, name))
            with pytest.raises(Unanswered, match=r"no answer within 0.5 s"):
                client(server.url(""), 0.5).instant("up")


def test_h05_nobody_listens_and_no_such_host() -> None:
    with pytest.raises(Unanswered, match="connection refused"):
        client(nobody()).instant("up")
    with pytest.raises(Unanswered, match="unknown host name"):
        client("http://no-such-host.invalid").instant("up")


def test_h05_an_answer_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promql, "MOST_BYTES", 1 << 20)

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
        try:
            for _ in range(1 << 12):
                handler.wfile.write(b" " * (1 << 16))
        except OSError:  # the reader has had enough
            pass

    assert refused(endless) == "the answer is larger than 1 MiB: restrict it with --match"


def _echo(handler: BaseHTTPRequestHandler) -> None:
    said = f"who is {handler.headers['Authorization']}?"
    saying(400, json.dumps({"status": "error", "errorType": "bad", "error": said}).encode())(handler)


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ({"token": "tk-secret"}, "Bearer tk-secret"),
        ({"user": "alice", "password": "pw-secret"}, "Basic YWxpY2U6cHctc2VjcmV0"),
        ({"user": "alice"}, "Basic YWxpY2U6"),
    ],
)
def test_who_asks_is_told_to_the_server_and_to_nobody_else(given: dict[str, str], header: str) -> None:
    with HttpReceiver(answer(200, body([]))) as server:
        client(server.url(""), **given).instant("up")
        (got,) = server.got
    assert got.headers["Authorization"] == header
    said = refused(_echo, **given)
    assert "who is" in said
    for secret in (header.partition(" ")[2], *(value for name, value in given.items() if name != "user")):
        assert secret not in said
        assert secret not in repr(PrometheusAddress(url="http://x", place="x", **given))


@pytest.mark.parametrize(
    ("text", "url", "place", "user"),
    [
        ("http://p:9090", "http://p:9090", "p:9090", ""),
        ("https://p/", "https://p", "p", ""),
        ("https://a%40b:pw@p/prometheus/", "https://p/prometheus", "p", "a@b"),
        ("http://[::1]:9090/graph", "http://[::1]:9090", "[::1]:9090", ""),
        ("http://p/x/api/v1/", "http://p/x", "p", ""),
    ],
)
def test_an_address_is_taken_apart(text: str, url: str, place: str, user: str) -> None:
    found = parse(text)
    assert (found.url, found.place, found.user) == (url, place, user)


@pytest.mark.parametrize(
    "text", ["", "p:9090", "file:///etc/passwd", "http://", "http://u:pw-secret@p:x", "http://p/?q=pw-secret",
             "http://p pw-secret", "http://p/\x1b]0;x", "http://p/#x", "http://ü", "http://p/" + 3000 * "x"]
)  # fmt: skip
def test_no_address_is_one_line_without_a_password(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as why:
        parse(text)
    assert "pw-secret" not in str(why.value)
    assert str(why.value).isprintable()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    tool = shutil.which("openssl")
    if tool is None:
        pytest.skip("not covered: openssl is not installed, so no query by https was sent")
    key, cert = str(tmp_path / "key"), str(tmp_path / "cert")
    command = [tool, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
               "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return key, cert


def test_the_other_scheme_is_named_where_the_port_speaks_it() -> None:
    with HttpReceiver(answer(200, b"{}")) as server, pytest.raises(Unanswered) as why:
        client(server.url("").replace("http:", "https:")).instant("up")
    assert str(why.value) == "no TLS on this port: use http://"

    def alert(handler: BaseHTTPRequestHandler) -> None:
        """As a TLS server answers a request by HTTP."""
        handler.wfile.write(b"\x15\x03\x01\x00\x02\x02\x46")

    assert refused(alert) == "this port speaks TLS: use https://"


def test_https_needs_a_certificate_that_is_trusted(
    certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, cert = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with HttpReceiver(answer(200, body([instant(1.0, 2.0)])), tls=context) as server:
        with pytest.raises(Unanswered, match="certificate refused"):
            client(server.url("")).instant("up")
        monkeypatch.setenv("SSL_CERT_FILE", cert)
        assert [one.value for one in client(server.url("")).instant("up")] == [2.0]
