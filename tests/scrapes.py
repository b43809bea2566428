"""The exporter under test: its text as the official parsers read it, a program that serves it, raw HTTP."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from gputop.monitor import Update
from gputop.prometheus.collector import UpdateCollector
from gputop.prometheus.exposition import CachedExposition
from gputop.prometheus.samples import ExportLimits

T = TypeVar("T")
PATIENCE_S = 60.0
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Series(NamedTuple):
    """One series as a parser reads it."""

    name: str
    labels: Mapping[str, str]
    value: float


def collected(*updates: Update, **limits: Any) -> UpdateCollector:
    """A collector that has taken these updates, one second apart or as their frames say."""
    collector = UpdateCollector(lambda: 1.0, ExportLimits(**limits))
    for update in updates:
        collector.take(update)
    return collector


def parsed(text: bytes, content_type: str = "text/plain") -> list[Series]:
    """The series of a text; the official parser raises for what is no such text."""
    read = openmetrics_families if "openmetrics" in content_type else text_families
    return [
        Series(sample.name, sample.labels, sample.value) for family in read(text.decode()) for sample in family.samples
    ]


def exported(*updates: Update, accept: str = "", **limits: Any) -> list[Series]:
    """The series after these updates."""
    return parsed(*CachedExposition(collected(*updates, **limits)).text(accept))


def values(series: list[Series], name: str, /, **labels: str) -> list[float]:
    """The values of the series with this name and these labels."""
    return [one.value for one in series if one.name == name and labels.items() <= one.labels.items()]


def until(ready: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """Ask again until the answer is true; that is returned."""
    deadline = time.monotonic() + seconds
    while not (found := ready()):
        assert time.monotonic() < deadline, "never so"
        time.sleep(0.05)
    return found


class Served(NamedTuple):
    """A program that serves metrics on loopback."""

    port: int
    program: subprocess.Popen[str]
    said: list[str]  # lines on standard error until it was ready

    def get(self, path: str = "/metrics", **headers: str) -> http.client.HTTPResponse:
        """The answer to a GET, read whole."""
        return request(self.port, path, **headers)

    def series(self) -> list[Series]:
        """The series it serves now."""
        answer = self.get()
        assert answer.status == 200
        return parsed(answer.content)  # type: ignore[attr-defined]


def request(port: int, path: str = "/metrics", method: str = "GET", **headers: str) -> Any:
    """The answer to one request, with its body as `content`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        answer.content = answer.read()  # type: ignore[attr-defined]
        return answer
    finally:
        connection.close()


@contextmanager
def exporting(
    *arguments: str, env: Mapping[str, str] | None = None, before: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """`gputop export prometheus` with these arguments, ended afterwards. `before`: a program that starts it."""
    command = [*before, sys.executable, "-m", "gputop", "export", "prometheus", *arguments]
    program = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=env)
    try:
        yield program
    finally:
        program.terminate()
        try:
            program.communicate(timeout=PATIENCE_S)
        finally:
            program.kill()


@contextmanager
def serving(*arguments: str, env: Mapping[str, str] | None = None) -> Iterator[Served]:
    """The same on a free port of loopback, once it serves."""
    with exporting("--listen", "127.0.0.1:0", *arguments, env=env) as program:
        assert program.stderr is not None
        said = [line := program.stderr.readline()]
        while "serving http" not in line:
            assert line, said
            said.append(line := program.stderr.readline())
        yield Served(int(line.rpartition(":")[2].partition("/")[0]), program, said)


def conversation(port: int, sent: bytes) -> bytes:
    """What comes back after these bytes, until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(sent)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received
