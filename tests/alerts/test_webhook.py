"""Webhooks against a real server on loopback: what arrives, and what a server may do to the sender."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.alerts.message import as_json
from gputop.alerts.receiver import Undelivered
from gputop.alerts.webhook import Webhook, shown_address
from gputop.alerts.webhook_formats import FORMATS
from tests.alert_updates import message
from tests.http_receiver import HttpReceiver, answer, close, garbage, nobody

SECRETS = ("pathsecret", "sigsecret", "tk_secret")


def webhook(url: str, shape: str = "webhook", **fields: Any) -> Webhook:
    return Webhook(name="team", shape=shape, url=url, **{"timeout_s": 10.0, **fields})


def test_slack_gets_one_text() -> None:
    with HttpReceiver() as server:
        webhook(server.url(), "slack").send(message(headline="<!channel> & <https://x|y>"))
    (got,) = server.got
    assert (got.path, got.headers["Content-Type"]) == ("/services/T0/B0/pathsecret", "application/json")
    assert got.json == {
        "text": "CRIT dgx-07: GPU 6: &lt;!channel&gt; &amp; &lt;https://x|y&gt;\n"
        + "\n".join(message().lines).replace("<", "&lt;")
    }


def test_teams_gets_an_adaptive_card_without_markdown() -> None:
    with HttpReceiver() as server:
        webhook(server.url("/workflows/x?sig=sigsecret"), "teams").send(message())
        webhook(server.url("/workflows/x?sig=sigsecret"), "teams").send(message(status="resolved", ended="cleared"))
    fired, resolved = server.got
    assert fired.path == "/workflows/x?sig=sigsecret"
    (attachment,) = fired.json["attachments"]
    assert (fired.json["type"], attachment["contentType"], attachment["contentUrl"]) == (
        "message", "application/vnd.microsoft.card.adaptive", None,
    )  # fmt: skip
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    runs = [run for block in card["body"] for run in block["inlines"]]
    assert [run["type"] for run in runs] == ["TextRun"] * len(runs)
    assert [run["text"] for run in runs] == [message().title, *message().lines]
    assert runs[0]["color"] == "Attention"
    assert resolved.json["attachments"][0]["content"]["body"][0]["inlines"][0]["color"] == "Good"


def test_ntfy_gets_json_at_the_address_of_the_server() -> None:
    with HttpReceiver() as server:
        phone = webhook(server.url("/a%20topic"), "ntfy", token="tk_secret")
        phone.send(message())
        phone.send(message(status="resolved", ended="cleared", evidence=("°" * 9000,)))
    fired, resolved = server.got
    assert (fired.path, fired.headers["Authorization"]) == ("/", "Bearer tk_secret")
    assert fired.json == {
        "topic": "a topic",
        "title": message().title,
        "message": "\n".join(message().lines),
        "priority": 5,
        "tags": ["rotating_light"],
    }
    assert (resolved.json["priority"], resolved.json["tags"]) == (2, ["white_check_mark"])
    assert len(resolved.json["message"].encode()) <= 4096


def test_any_other_service_gets_our_object_and_the_headers_it_wants() -> None:
    with HttpReceiver() as server:
        webhook(server.url("/in"), headers={"X-Api-Key": "tk_secret"}).send(message())
    (got,) = server.got
    assert got.json == as_json(message())
    assert got.headers["X-Api-Key"] == "tk_secret"


CASES: dict[str, tuple[Callable[[HttpReceiver], Any], str, bool]] = {
    "500": (lambda _: answer(500, b"pathsecret failed"), "HTTP 500 Internal Server Error", True),
    "404 of Slack": (lambda _: answer(404, b"no_service"), "HTTP 404 Not Found (no_service)", False),
    "404 that repeats the address": (lambda _: answer(404, b"no /x/pathsecret"), "HTTP 404 Not Found", False),
    "429": (lambda _: answer(429, Retry_After="7"), "HTTP 429 Too Many Requests", True),
    "an unknown code": (lambda _: answer(599, b"\x1b[2J"), "HTTP 599", False),
    "hangs": (lambda server: server.hang, "no answer within 0.3 s", True),
    "answers a byte at a time": (lambda server: server.trickle, "no answer within 0.3 s", True),
    "closes": (lambda _: close, "the server closed the connection without an answer", True),
    "no HTTP": (lambda _: garbage, "no valid answer (BadStatusLine)", True),
    "redirects to a file": (
        lambda _: answer(302, Location="file:///etc/passwd"),
        "HTTP 302 Found: redirects are not followed, use the final address", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("act", "why", "again"), CASES.values(), ids=CASES)
def test_what_a_server_may_do(act: Callable[[HttpReceiver], Any], why: str, again: bool) -> None:
    with HttpReceiver() as server:
        server.then(act(server))
        timeout_s = 0.3 if "0.3 s" in why else 10.0
        with pytest.raises(Undelivered) as refused:
            webhook(server.url(), "slack", timeout_s=timeout_s).send(message())
    assert (str(refused.value), refused.value.again) == (why, again)
    assert refused.value.after_s == (7.0 if why.startswith("HTTP 429") else None)
    assert len(server.got) == 1


def test_a_port_without_tls_is_named() -> None:
    with HttpReceiver() as server, pytest.raises(Undelivered, match=r"^no TLS on this port: use http://$"):
        webhook(server.url().replace("http:", "https:")).send(message())


def test_a_redirect_is_not_followed_to_another_server() -> None:
    with HttpReceiver() as other, HttpReceiver() as server:
        server.then(answer(307, Location=other.url("/elsewhere")))
        with pytest.raises(Undelivered, match="redirects are not followed"):
            webhook(server.url()).send(message())
    assert other.got == []


def test_of_a_huge_answer_little_is_read() -> None:
    def flood(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
        try:
            while True:
                handler.wfile.write(b"x" * 65536)
        except OSError:
            ended.append(True)

    ended: list[bool] = []
    with HttpReceiver(flood) as server:
        webhook(server.url()).send(message())
    assert len(server.got) == 1


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nobody", "Connection refused"),
        ("http://[::1/pathsecret", "no valid answer (ValueError)"),
    ],
)
def test_a_server_that_is_not_there(url: str, why: str) -> None:
    with pytest.raises(Undelivered) as refused:
        webhook(nobody() if url == "nobody" else url).send(message())
    assert str(refused.value) == why


def test_a_host_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "pathsecret")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)  # asking for a real one would leave the machine
    with pytest.raises(Undelivered, match=r"^unknown host name$"):
        webhook("http://alerts.invalid/pathsecret").send(message())


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with HttpReceiver() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url(""))
        monkeypatch.setenv("no_proxy", "")
        webhook("http://alerts.invalid/pathsecret").send(message())
    assert [got.path for got in proxy.got] == ["http://alerts.invalid/pathsecret"]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1 that nobody has signed, with its key in the same file."""
    if not shutil.which("openssl"):
        pytest.skip("not covered: no openssl program to make a certificate, so no message by https")
    path = tmp_path / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", tmp_path / "certificate.pem"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    path.write_bytes(path.read_bytes() + (tmp_path / "certificate.pem").read_bytes())
    return path


def test_a_certificate_is_checked(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with HttpReceiver(tls=tls) as server:
        with pytest.raises(Undelivered, match=r"^certificate refused: self.signed certificate$"):
            webhook(server.url()).send(message())
        assert server.got == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))  # as a site has its own authority
        webhook(server.url()).send(message())
    assert len(server.got) == 1


def test_a_server_that_never_speaks_tls_is_left_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        quiet = webhook(f"https://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=0.3)
        with pytest.raises(Undelivered, match=r"^no answer within 0\.3 s$"):
            quiet.send(message())


@pytest.mark.parametrize("shape", FORMATS)
def test_secrets_are_in_no_text_about_a_receiver(shape: str) -> None:
    one = webhook(
        "https://hooks.example.com/pathsecret?sig=sigsecret", shape, token="tk_secret", headers={"A": "tk_secret"}
    )
    said = f"{one.place} {one!r} {one}"
    assert one.place == f"{shape} https://hooks.example.com/***"
    assert not [secret for secret in SECRETS if secret in said]
    assert shown_address("https://[broken/pathsecret") == "***"
    assert shown_address("https://me:pathsecret@example.com:8443/x") == "https://example.com:8443/***"
