"""Recordings that were cut, damaged or made up, and files that are no place for one."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputop.export import codec
from gputop.model import Frame
from gputop.record.lines import FLUSHED, MAGIC
from gputop.record.recorder import Recorder
from gputop.record.recording import Recording
from gputop.safe.files import Refused
from gputop.safe.text import clean
from tests.hostile import STRINGS
from tests.record.test_record import NAMES, record, replayed
from tests.record_child import frames

pytestmark = pytest.mark.waits

SOME = frames(8)
KILLS = 100  # of each kind of file


def killed(path: str, kills: int, seed: int) -> list[int]:
    """How many frames each recorder had written for sure when it was killed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.record_child", path, str(kills), str(seed)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return [int(line) for line in done.stdout.split()]


def readable(path: Path) -> list[Frame]:
    """What can be replayed; nothing of a file that was cut before its first frame was whole."""
    try:
        return [plain(frame) for frame in replayed(path)]
    except Refused:
        return []


def plain(frame: Frame) -> Frame:
    """Without what replay says of the file."""
    from dataclasses import replace

    return replace(frame, notes=tuple(note for note in frame.notes if note.key != "recording-damaged"))


@pytest.mark.parametrize("name", NAMES)
def test_f01_a_recorder_killed_at_any_moment_loses_at_most_one_frame(tmp_path: Path, name: str) -> None:
    written = killed(str(tmp_path / f"{{}}-{name}"), KILLS, seed=1)
    wanted = frames(max(written) + 1)
    assert sum(count > 0 for count in written) > KILLS / 2
    for number, count in enumerate(written):
        path = tmp_path / f"{number}-{name}"
        found = readable(path) if path.exists() else []
        assert len(found) in (count, count + 1)
        assert found == wanted[: len(found)]


@pytest.mark.parametrize("name", NAMES)
def test_f03_what_goes_on_after_a_kill_is_not_behind_garbage(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    written = killed(str(path), 25, seed=2)
    record(path, SOME[:1])
    found = replayed(path)
    assert sum(written) + 1 <= len(found) <= sum(written) + 26
    assert not any(frame.note("recording-damaged") for frame in found)
    text = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    assert sum(json.loads(line)["type"] in ("frame", "change") for line in text.splitlines()) == len(found)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Two recordings of the same frames, as bytes."""
    folder = tmp_path_factory.mktemp("whole")
    for name in NAMES:
        record(folder / name, SOME)
    return {name: (folder / name).read_bytes() for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_f01_f03_cut_anywhere_it_is_replayed_and_gone_on_with(
    tmp_path: Path, whole: dict[str, bytes], name: str
) -> None:
    data, chance, path = whole[name], random.Random(3), tmp_path / name
    for size in sorted({*(chance.randrange(len(data)) for _ in range(16)), 1, 5, 9, 11, 40, len(data) - 1}):
        path.unlink(missing_ok=True)
        path.write_bytes(data[:size])
        found = readable(path)
        assert found == SOME[: len(found)]
        try:
            record(path, SOME[:2])
        except Refused:
            assert size < 3, "a cut magic number is nobody's"
            continue
        kept = replayed(path)[:-2]
        assert kept == found[: len(kept)]
        assert len(kept) >= len(found) - cut_in_its_flush(data, size)


def cut_in_its_flush(data: bytes, size: int) -> bool:
    """Whether a packed frame was being written still, though its text can be read."""
    return data[:2] == MAGIC[:2] and FLUSHED in data[size - 4 : size + 5]


def test_f04_an_empty_file_and_other_files_are_no_recordings(tmp_path: Path) -> None:
    for number, data in enumerate(
        [
            b"",
            b"\n\n",
            b"\x00" * 4096,
            b"hello\n",
            b"{}\n",
            b'{"type":"frame"}\n',
            gzip.compress(b""),
            gzip.compress(b"x"),
        ]
    ):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(data)
        with pytest.raises(Refused) as refused:
            Recording(str(path))
        assert "\n" not in str(refused.value)
        assert str(path) in str(refused.value)


def test_f04_a_later_version_is_refused_and_says_to_update(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"type":"header","version":2}\n' + codec.line(codec.frame_line(SOME[0])))
    with pytest.raises(Refused, match="version 2, this gputop reads 1: update gputop"):
        Recording(str(path))
    with pytest.raises(Refused, match="not a recording"):
        Recorder(str(path))


def test_f04_a_changed_line_is_skipped_and_said(tmp_path: Path) -> None:
    path, many = tmp_path / "run.jsonl", frames(62)
    record(path, many)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"type"', b'"tyqe"', 1)
    lines[5:5] = [b"\x00\xff garbage\n", b"[" * 5000 + b"\n"]
    path.write_bytes(b"".join(lines))
    found = replayed(path)
    assert [plain(frame) for frame in found] == many[:2] + many[60:]  # what follows was told by what changed
    note = found[-1].note("recording-damaged")
    assert note
    assert note.text == "the recording is damaged in 3 places: its checksum does not match its text"


@pytest.mark.parametrize("name", NAMES)
def test_f04_bits_flipped_parts_zeroed_lost_or_swapped(tmp_path: Path, whole: dict[str, bytes], name: str) -> None:
    path, chance, known = tmp_path / name, random.Random(4), [frame.processes for frame in SOME]
    for number in range(32):
        data = bytearray(whole[name] * 2 if name.endswith(".gz") else whole[name])
        a, b = sorted(chance.randrange(len(data)) for _ in range(2))
        match number % 4:
            case 0:
                data[a] ^= 1 << chance.randrange(8)
            case 1:
                data[a : a + 2000] = bytes(len(data[a : a + 2000]))
            case 2:
                del data[a : a + 3000]
            case 3:
                data[a : a + 1500], data[b : b + 1500] = data[b : b + 1500], data[a : a + 1500]
        path.write_bytes(data)
        try:
            found = replayed(path)
        except Refused:
            continue
        assert all(a.mono_s < b.mono_s for a, b in pairwise(found))
        assert all(frame.processes in known for frame in found)


def test_f04_a_damaged_member_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    many = frames(180)
    record(path, many)
    data = bytearray(path.read_bytes())
    place = len(data) // 2
    data[place : place + 64] = bytes(64)
    path.write_bytes(data)
    found = [plain(frame) for frame in replayed(path)]
    assert found[:60] == many[:60]
    assert found[-60:] == many[-60:]


def line(frame: object) -> str:
    return json.dumps({"type": "frame", "frame": frame}) + "\n"


HEADER = '{"type":"header","version":1}\n'
BASE = {"wall_s": 1_795_185_127.0, "mono_s": 10.0, "hostname": "n", "host": {}}
NOTE = {"subject": "host", "key": "k"}
GPU = {"uuid": "u", "index": "0", "name": "n"}
FORGED = (
    {"mono_s": "soon"}, {"mono_s": None}, {"mono_s": 1e308}, {"wall_s": -5.0}, {"wall_s": 9e14}, {"wall_s": 0},
    {"gpus": [GPU] * 1025}, {"gpus": [GPU | {"power_watts": 1e300}]}, {"gpus": [GPU | {"power_watts": 2e15}]},
    {"processes": [{"pid": 1, "started_ticks": 1}] * 65_537}, {"processes": 10**9}, {"host": []}, {"hostname": {}},
)  # fmt: skip


@pytest.mark.parametrize("change", FORGED, ids=lambda change: str(change)[:40])
def test_f05_a_forged_frame_is_skipped_or_mended(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "forged.jsonl"
    rest = [line(BASE | {"mono_s": 10.0 + second, "wall_s": BASE["wall_s"] + second}) for second in (0, 1, 3)]
    path.write_text(HEADER + "".join(rest[:2]) + line(BASE | {"mono_s": 12.0} | change) + rest[2])
    found = replayed(path)
    assert len(found) in (3, 4)
    for before, after in pairwise(found):
        assert 0 < after.mono_s - before.mono_s < 10
        assert 0 < after.wall_s < 253_402_300_799
        time.localtime(after.wall_s)


def test_f05_hostile_strings_are_harmless(tmp_path: Path) -> None:
    path = tmp_path / "forged.jsonl"
    texts = [text.encode("utf-8", "replace").decode() for text in STRINGS]
    forged = [
        line(BASE | {"mono_s": 10.0 + number, "hostname": text, "notes": [NOTE | {"text": text}]})
        for number, text in enumerate(texts)
    ]
    events = [json.dumps({"type": "event", "kind": text, "text": text, "severity": text}) + "\n" for text in texts]
    path.write_text(HEADER + line(BASE | {"mono_s": 1}) + "".join(forged) + "".join(events))
    found = replayed(path)[1:]
    assert [frame.hostname for frame in found] == [clean(text) for text in texts]
    assert [frame.notes[0].text for frame in found] == [clean(text) for text in texts]
    source = Recording(str(path))
    next(iter(source.past()), None)
    until_s = time.monotonic() + 30
    while not source.complete:
        assert time.monotonic() < until_s
        time.sleep(0.01)
    assert [mark.text for mark in source.marks] == [clean(text, 200) for text in texts]
    assert {mark.severity for mark in source.marks} == {"info"}


def test_f05_f06_a_bomb_is_left_at_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    good = (HEADER + line(BASE) + line(BASE | {"mono_s": 11.0})).encode()
    path.write_bytes(gzip.compress(good) + gzip.compress(b'{"' + b" " * 60_000_000))
    found = replayed(path)
    assert len(found) == 2
    assert path.stat().st_size < 100_000


@settings(
    max_examples=150, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)  # fmt: skip
@given(st.lists(st.one_of(
    st.binary(max_size=60),
    st.sampled_from([HEADER, line(BASE), line(BASE | {"mono_s": 11.5}), '{"type":"event","text":"x"}\n', "{}\n"]),
    st.fixed_dictionaries({}, optional={
        "wall_s": st.floats() | st.integers() | st.text(max_size=3), "mono_s": st.floats() | st.integers(),
        "gpus": st.lists(st.none() | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2), max_size=2),
    }).map(lambda change: line(BASE | change)),
), max_size=8), st.booleans())  # fmt: skip
def test_f05_any_file_is_frames_in_growing_time_or_refused(parts: list[bytes | str], packed: bool) -> None:
    data = HEADER.encode() + b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)
    path = Path(f"/proc/self/fd/{(fd := os.memfd_create('forged'))}")
    try:
        os.write(fd, gzip.compress(data) if packed else data)
        found = readable(path)
        assert all(a.mono_s < b.mono_s for a, b in pairwise(found))
    finally:
        os.close(fd)
