"""Recordings whose beginning is damaged: what comes after it is replayed; what is no recording still is none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gputop.export import codec
from gputop.record.recording import Recording
from gputop.safe.files import Refused
from tests.pty_programs import wait_until
from tests.record.test_record import NAMES, Watched, record, replayed
from tests.record.test_record_faults import plain
from tests.record_child import frames

pytestmark = pytest.mark.waits

MANY = frames(180)
HEADER = b'{"type":"header","version":1}\n'
CHECKSUM = "its checksum does not match its text"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Two recordings of the same frames, as bytes."""
    folder = tmp_path_factory.mktemp("whole")
    for name in NAMES:
        record(folder / name, MANY)
    return {name: (folder / name).read_bytes() for name in NAMES}


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def zeroed(data: bytes, begin: int, end: int) -> bytes:
    return data[:begin] + bytes(end - begin) + data[end:]


def said(path: Path) -> set[str]:
    """What replay says of the damage, with every frame."""
    notes = [frame.note("recording-damaged") for frame in replayed(path)]
    return {note.text if note else "nothing" for note in notes}


@pytest.mark.parametrize("damage", [(100, 300), (0, 2), (0, 512), (3, 40), (12, 13), 1, 3, 12, 150])
def test_f04_a_damaged_first_member_costs_no_other(
    tmp_path: Path, whole: dict[str, bytes], damage: int | tuple[int, int]
) -> None:
    path, data = tmp_path / "run.jsonl.gz", whole["run.jsonl.gz"]
    path.write_bytes(flipped(data, damage) if isinstance(damage, int) else zeroed(data, *damage))
    assert [plain(frame) for frame in replayed(path)] == MANY[60:]
    (told,) = said(path)
    assert told.startswith("the recording is damaged in ")


@pytest.mark.parametrize("line", [0, 1, 2])
def test_f04_a_damaged_line_at_the_beginning_costs_its_frames(
    tmp_path: Path, whole: dict[str, bytes], line: int
) -> None:
    path, lines = tmp_path / "run.jsonl", whole["run.jsonl"].splitlines(keepends=True)
    lines[line] = flipped(lines[line], len(lines[line]) // 2)
    path.write_bytes(b"".join(lines))
    kept = {0: MANY, 1: MANY[60:], 2: MANY[:1] + MANY[60:]}[line]  # what follows was told by what changed
    assert [plain(frame) for frame in replayed(path)] == kept
    assert f"the recording is damaged in 1 place: {CHECKSUM}" in said(path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "garbage", [b"\n", b"\x00\xff garbage\n", b"{}x\n", b"[3]\n", b'{"type":"frame","frame":{},"crc":"00000000"}\n']
)
@pytest.mark.parametrize("header", [HEADER, b""])
def test_f04_garbage_before_the_first_frame_is_skipped_and_said(
    tmp_path: Path, header: bytes, garbage: bytes, packed: bool
) -> None:
    path = tmp_path / "run.jsonl"
    text = header + garbage + b"".join(codec.line(codec.frame_line(frame)).encode() for frame in MANY[:3])
    path.write_bytes(gzip.compress(text) if packed else text)
    assert [plain(frame) for frame in replayed(path)] == MANY[:3]
    (told,) = said(path)
    assert told.startswith("the recording is damaged in 1 place: ")


def test_f04_one_can_go_anywhere_in_what_a_damaged_first_member_left(tmp_path: Path, whole: dict[str, bytes]) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(zeroed(whole["run.jsonl.gz"], 0, 300))
    watched = Watched(path)
    watched.source.speed = 0
    wait_until(lambda: watched.source.complete, 30)
    for second in (100, 20, 119, 0):
        watched.source.seek(second)
        wait_until(lambda second=second: bool(watched.shown) and plain(watched.shown[-1]) == MANY[60 + second], 30)
    assert watched.source.span == (MANY[60].wall_s, MANY[179].wall_s)
    watched.monitor.stop()


OTHERS = {
    "text": b"hello\n" * 20_000,
    "other JSON": b'{"name": "gputop"}\n' * 20_000,
    "one object": json.dumps({"frames": [1, 2, 3]}, indent=1).encode(),
    "events": b'{"type":"event","text":"x"}\n' * 3,
    "packed text": gzip.compress(b"hello\n"),
    "bytes": bytes(range(256)) * 400,
}


@pytest.mark.parametrize("kind", OTHERS)
def test_f04_what_is_no_recording_is_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(OTHERS[kind])
    with pytest.raises(Refused, match=r"^/.* is not a recording: [^\n]*$"):
        Recording(str(path))


def test_f04_a_later_version_is_refused_behind_damage_too(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"garbage\n" + HEADER.replace(b"1", b"2") + codec.line(codec.frame_line(MANY[0])).encode())
    with pytest.raises(Refused, match="version 2, this gputop reads 1: update gputop"):
        Recording(str(path))


def test_f04_where_no_frame_is_left_the_damage_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(HEADER + b"garbage\n")
    with pytest.raises(Refused, match="holds no frame that can be read: not JSON"):
        Recording(str(path))
    path.write_bytes(zeroed(gzip.compress(HEADER), 14, 20))
    with pytest.raises(Refused, match="holds no frame that can be read: a damaged part"):
        Recording(str(path))
    path.write_bytes(HEADER)
    with pytest.raises(Refused, match="holds no frame: nothing to show"):
        Recording(str(path))
