"""A host as a source: frames arrive, a lost connection is opened again, silence and noise end it with a reason."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from threading import Event, Thread

from gputop.demo import open_demo
from gputop.export import codec
from gputop.hosts.source import RemoteHost
from gputop.model import Frame
from gputop.record.deltas import FrameLines
from tests.pty_programs import wait_until


def frames(count: int) -> list[Frame]:
    return [*islice(open_demo("healthy", pace=False).frames(Event()), count)]


def recording(count: int) -> bytes:
    """What `gputop record -` writes of so many frames."""
    lines = FrameLines()
    return "".join((codec.line(codec.header("n1")), *(lines.line(frame)[0] for frame in frames(count)))).encode()


class Scripted:
    """A remote command that writes these bytes and then ends, or stays silent."""

    def __init__(self, text: bytes, why: str, silence_s: float, *, stays: bool = False) -> None:
        self._here, self._there = socket.socketpair()
        self._here.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", *divmod(int(silence_s * 1e6), 1_000_000))
        )
        self._why = why
        Thread(target=self._write, args=(text, stays), daemon=True).start()

    def _write(self, text: bytes, stays: bool) -> None:
        try:
            self._there.sendall(text)
            if not stays:
                self._there.shutdown(socket.SHUT_WR)
        except OSError:  # its reader has heard enough
            pass

    @property
    def output(self) -> int:
        return self._here.fileno()

    def end(self) -> None:
        self._here.shutdown(socket.SHUT_RDWR)

    def reason(self) -> str:
        self._here.close()
        self._there.close()
        return self._why


def host(*commands: Callable[[], Scripted]) -> RemoteHost:
    """A host whose connections are these, one after another; it does not wait between them."""
    waiting = list(commands)
    made = RemoteHost("n1", lambda _: waiting.pop(0)(), interval_s=1.0)
    made._wait = lambda _: made.close() if not waiting else None  # type: ignore[method-assign]
    return made


def all_frames(source: RemoteHost) -> Iterator[Frame]:
    return source.frames(Event())


def test_frames_arrive_as_they_were_recorded_and_a_note_says_why_they_stopped() -> None:
    source = host(lambda: Scripted(recording(3), "connection lost", 5))
    found = list(all_frames(source))
    assert [frame.mono_s for frame in found[:3]] == [frame.mono_s for frame in frames(3)]
    note = found[3].note("host-lost")
    assert note is not None
    assert note.text == "n1: connection lost; reconnecting"
    assert source.link.state == "lost"
    assert source.link.why == "connection lost"
    assert source.link.frame_s is not None


def test_h02_a_lost_connection_is_opened_again() -> None:
    source = host(
        lambda: Scripted(recording(2), "connection lost", 5),
        lambda: Scripted(b"", "connection refused", 5),
        lambda: Scripted(recording(1), "its gputop ended", 5),
    )
    found = list(all_frames(source))
    assert [bool(frame.note("host-lost")) for frame in found] == [False, False, True, False, True]


def test_h03_what_a_login_shell_prints_first_is_skipped() -> None:
    greeting = b"Welcome to n1!\n\x1b[31m*** maintenance on Friday ***\x1b[m\n\n" * 20
    source = host(lambda: Scripted(greeting + recording(1), "its gputop ended", 5))
    assert len(list(all_frames(source))) == 2


def test_h03_a_hostile_stream_ends_with_one_line_and_the_rest_goes_on() -> None:
    source = host(
        lambda: Scripted(b"\x1b]0;x\x07{" * 5000, "connection closed", 5),
        lambda: Scripted(os.urandom(1 << 16), "connection closed", 5),
        lambda: Scripted(recording(1), "its gputop ended", 5),
    )
    found = list(all_frames(source))
    assert len(found) == 2
    assert source.link.why.isprintable()


def test_h02_silence_ends_the_connection_and_is_the_reason() -> None:
    source = host(lambda: Scripted(recording(1), "", 0.2, stays=True))
    found = list(all_frames(source))
    assert len(found) == 2
    assert source.link.why == "no data for 20 s"


def test_h02_a_host_that_is_silent_from_the_start_is_tried_again() -> None:
    source = host(
        lambda: Scripted(b"", "", 0.2, stays=True), lambda: Scripted(recording(1), "its gputop ended", 5)
    )  # fmt: skip
    reasons = []
    made = source._wait
    source._wait = lambda seconds: (reasons.append(source.link.why), made(seconds))  # type: ignore[method-assign,func-returns-value]
    assert len(list(all_frames(source))) == 2
    assert reasons[0] == "no data for 20 s"


def test_h03_what_never_becomes_a_recording_is_named_as_that() -> None:
    source = host(lambda: Scripted(b"y\n" * 5000, "", 5, stays=True))
    assert list(all_frames(source)) == []
    assert source.link.why == "its output is not a recording"


def test_close_ends_a_source_that_waits_for_data() -> None:
    source = RemoteHost("n1", lambda _: Scripted(recording(1), "connection closed", 60, stays=True))
    found: list[Frame] = []
    reader = Thread(target=lambda: found.extend(source.frames(Event())), daemon=True)
    reader.start()
    wait_until(lambda: source.link.state == "live", 20, "the first frame")
    source.close()
    reader.join(20)
    assert not reader.is_alive()
    assert len(found) == 1


def test_without_ssh_the_reason_says_so(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from gputop.hosts.source import recorder

    monkeypatch.setenv("PATH", str(tmp_path))
    source = RemoteHost("n1", recorder("n1", 1.0))
    source._wait = lambda _: source.close()  # type: ignore[method-assign]
    assert list(all_frames(source)) == []
    assert source.link.why == "ssh cannot be run: ssh is not installed"
