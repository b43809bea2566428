"""Recordings of any length: read to their end in little memory; what is cut or made up there is told."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.model import Frame
from gputop.record import deltas, index, lines
from gputop.safe.bounded_gzip import TooLarge, Unpacker
from tests.pty_programs import wait_until
from tests.record.test_record import NAMES, Watched, record, replayed
from tests.record.test_record_faults import plain
from tests.record_child import frames

pytestmark = pytest.mark.waits

SOME = frames(8)


def unpacked(unpack: Unpacker, *members: bytes) -> Iterator[int]:
    """The sizes of what they hold, one after the other."""
    for member in members:
        yield sum(map(len, unpack.feed(member)))
        unpack.again()


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_of_many_gigabytes_is_read_to_its_end(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_MOST_LOST", 1 << 27)
    path = tmp_path / name
    record(path, SOME)
    os.truncate(path, 1 << 34)  # without a line end: not looked through for long
    assert [plain(frame) for frame in replayed(path)] == SOME


def test_f05_a_member_is_held_against_its_own_size() -> None:
    bomb, small = gzip.compress(bytes(100 << 20), 9), gzip.compress(bytes(1 << 20), 9)
    good = gzip.compress(os.urandom(2 << 20))
    with pytest.raises(TooLarge, match="more than 200 times its size"):
        list(unpacked(Unpacker(), good, bomb))  # all in all it is less
    with pytest.raises(TooLarge):
        list(unpacked(Unpacker(), *[small] * 40))  # what is more than that is allowed once, not to each
    assert list(unpacked(Unpacker(), *[good] * 3, *[small] * 10)) == [2 << 20] * 3 + [1 << 20] * 10


def test_f06_who_keeps_what_was_packed_has_a_bound_and_the_reason_is_true() -> None:
    good = gzip.compress(os.urandom(1 << 20))
    with pytest.raises(TooLarge, match=r"it decompresses to more than 0\.00195312 GiB"):
        list(unpacked(Unpacker(2 << 20), *[good] * 3))


@pytest.mark.parametrize("name", NAMES)
def test_the_places_of_a_long_recording_take_no_more_room(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_MOST_ENTRIES", 4)
    many, path = frames(400), tmp_path / name
    record(path, many)
    watched = Watched(path)
    watched.source.speed = 0
    wait_until(lambda: watched.source.complete, 30)
    found = watched.source._index.entries
    assert 2 <= len(found) <= 4
    assert [entry.at_s for entry in found] == sorted(entry.at_s for entry in found)
    for second in (399, 1, 300, 201):
        watched.source.seek(second)
        watched.until(many[second])
    watched.monitor.stop()


def test_f05_what_changed_after_one_whole_frame_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    record(path, SOME)
    first, *rest = path.read_bytes().splitlines(keepends=True)[1:]
    monkeypatch.setattr(deltas, "_MOST_BYTES", len(first) + len(rest[0]))
    assert [plain(frame) for frame in replayed(path)] == SOME[:2]


@pytest.fixture
def cut(tmp_path: Path) -> str:
    """A recording whose last line is cut."""
    path = tmp_path / "cut.jsonl"
    record(path, SOME)
    os.truncate(path, path.stat().st_size - 20)
    return str(path)


CUT = "the recording is damaged in 1 place: the last line is truncated"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("log", "{}/log.csv"), 0),
        (("record", "{}/other.jsonl"), 0),
        (("snapshot", "--format", "csv", "--count", "99"), 0),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_f04_a_command_says_that_a_recording_is_cut(tmp_path: Path, cut: str, args: tuple[str, ...], code: int) -> None:
    argv = [sys.executable, "-m", "gputop", *(arg.format(tmp_path) for arg in args), "--source", cut]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (code, f"gputop: {CUT}\n")


def test_f04_what_is_printed_of_a_damaged_recording_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, SOME)
    header, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join((header, b"garbage\n", *rest)))
    argv = [sys.executable, "-m", "gputop", "--once", "--source", str(path)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stderr.startswith("gputop: the recording is damaged in 1 place: not JSON")
    assert "damaged" not in done.stdout, "a terminal shows both: it is told once"


def test_f04_the_screen_says_at_the_end_that_a_recording_is_cut(cut: str) -> None:
    def told(frame: Frame) -> list[str]:
        return [note.text for note in frame.notes if note.key == "recording-damaged"]

    watched = Watched(Path(cut))
    watched.source.speed = 200
    wait_until(lambda: bool(watched.shown) and bool(told(watched.shown[-1])), 30)
    assert [plain(frame) for frame in watched.shown] == [*SOME[:7], SOME[6]]
    assert told(watched.shown[-1]) == [CUT]
    watched.source.speed = 0  # else it plays on within milliseconds, before anybody looks
    watched.source.seek(3)
    watched.until(SOME[3])
    watched.monitor.stop()
