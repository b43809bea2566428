"""What is larger than anything real is clamped, and said in one line: files with a hole, lines without end."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.record import lines
from gputop.record.lines import Damage, Splitter
from gputop.record.recording import Recording
from gputop.safe.files import Refused
from gputop.trace import events
from gputop.trace.events import Events, NoTrace
from gputop.trace.text import Text
from gputop.ui.terminal import driver

HOLE = 64 << 30  # bytes of a sparse file: read whole, it takes minutes


def sparse(path: Path, text: bytes) -> Path:
    path.write_bytes(text)
    os.truncate(path, HOLE)
    return path


class Counted:
    """Pieces of a text without end, and how many characters somebody took."""

    def __init__(self, first: str, rest: str) -> None:
        self.taken = 0
        self._first, self._rest = first, rest * (1 << 16)

    def __iter__(self) -> Iterator[str]:
        yield self._first
        while True:
            self.taken += len(self._rest)
            yield self._rest


@pytest.mark.parametrize("head", [b"", b'{"type":"header","version":1}\n', b'{"type":"header","version":1}\n{"type"'])
def test_a_line_without_end_in_a_recording_is_said_and_not_read_on(tmp_path: Path, head: bytes) -> None:
    path = sparse(tmp_path / "run.jsonl", head)
    with pytest.raises(Refused, match=r"a line without an end: the rest is not read"):
        Recording(str(path))


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_looked_through_for_the_next_whole_line_is_bounded(
    tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_MOST_LOST", 1 << 20)
    path = sparse(tmp_path / "run", b"\x1f\x8b\x08damaged" if packed else b'{"type"')
    damage = Damage()
    with path.open("rb") as file:
        assert list(lines.read(file, 0, damage)) == []
        assert file.tell() < 1 << 28
    assert damage.count == 1


def test_a_stream_without_a_line_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_MOST_LOST", 1 << 20)
    monkeypatch.setattr(lines, "MOST_CHARS", 1 << 18)
    damage = Damage()
    splitter = Splitter(damage)
    fed = 0
    while not damage.gives_up:
        assert list(splitter.feed(bytes(1 << 16))) == []
        fed += 1
        assert fed < 100
    assert str(damage) == "the recording is damaged in 1 place: a line without an end: the rest is not read"


@pytest.mark.parametrize("rest", ["\0", "x", "{", '{"a', "[", " ", "\n,", "\ufeff"])
@pytest.mark.parametrize("head", ['{"traceEvents": [', '{"traceEvents": [{"ph": "X"},', "[", "", '{"other": "'])
def test_text_without_end_in_a_trace_is_given_up(head: str, rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_LOST", 1 << 20)
    pieces = Counted(head, rest)
    found = Events(iter(pieces))
    try:
        for _ in found.batches():
            assert pieces.taken < 1 << 25
    except NoTrace:
        pass
    else:
        assert any(note.endswith(events.EARLY) for note in found.notes)
    assert pieces.taken < 1 << 25


def test_of_a_text_with_a_hole_only_the_end_is_read(tmp_path: Path) -> None:
    """What logrotate leaves of a log that is still written to: zeros up to where it was cut."""
    path = tmp_path / "train.log"
    with path.open("wb") as file:
        file.seek(3 << 30)
        file.write("loss: nan\nMüller\n".encode())
    text = Text(str(path))
    tail, more = text.tail(64)
    assert more
    assert tail.endswith("loss: nan\nMüller\n")
    assert text.last(8) == "Müller\n".encode()
    text.close()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("more", range(4))
def test_the_end_of_a_long_text_is_the_same_in_any_encoding(tmp_path: Path, encoding: str, more: int) -> None:
    whole = "step 1: loss 0.5\n" * 2000 + "x" * more + "the end\n"
    path = tmp_path / "log"
    mark = codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b""
    path.write_bytes(mark + whole.encode(encoding))
    text = Text(str(path))
    tail, longer = text.tail(100)
    text.close()
    assert longer
    assert tail == whole[-100:]


@pytest.mark.parametrize(
    ("said", "drawn"),
    [((120, 65_535), (120, 500)), ((65_535, 40), (2000, 40)), ((65_535, 65_535), (2000, 500)), ((2000, 500), None)],
)
def test_a_terminal_larger_than_any_screen_is_clamped_and_it_is_said(
    said: tuple[int, int], drawn: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size(said))
    assert driver.terminal_size() == (drawn or said)
    told = driver.clamped()
    if drawn is None:
        assert told is None
    else:
        assert told == f"the terminal reports {said[0]}×{said[1]} cells: drawn on {drawn[0]}×{drawn[1]}"
