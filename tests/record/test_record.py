"""Recordings: what was recorded comes back, from a file of either kind, whole or appended to, back and forth."""

from __future__ import annotations

import gzip
import math
import random
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.diagnose import Finding, Subject
from gputop.model import Frame, Identity
from gputop.monitor import Monitor, Update
from gputop.record.recorder import Recorder
from gputop.record.recording import Recording
from gputop.source import Seekable
from tests.hostile import SECRETS

ANCHOR_S = 1_795_185_127.0
NAMES = ("run.jsonl", "run.jsonl.gz")


def frames(count: int, name: str = "healthy") -> list[Frame]:
    demo = Demo(SCENARIOS[name], pace=False, anchor_s=ANCHOR_S)
    return [demo.frame(demo.at_s + second) for second in range(count)]


SOME = frames(130)


def record(path: Path, taken: list[Frame], **more: object) -> Recorder:
    recorder = Recorder(str(path))
    for number, frame in enumerate(taken, 1):
        recorder.take(Update(frame=frame, **more))  # type: ignore[arg-type]
        while recorder.frames + recorder.missed < number - 20:
            time.sleep(0.001)
    assert recorder.close(30)
    assert (recorder.missed, recorder.problem) == (0, None)
    return recorder


def replayed(path: Path) -> list[Frame]:
    return [update.frame for update in Monitor(Recording(str(path), pace=False), unjudged=math.inf).updates()]


@pytest.mark.parametrize("name", NAMES)
def test_what_was_recorded_is_replayed(tmp_path: Path, name: str) -> None:
    recorder = record(tmp_path / name, SOME)
    assert replayed(tmp_path / name) == SOME
    info = (tmp_path / name).stat()
    assert (recorder.frames, recorder.size_bytes) == (len(SOME), info.st_size)
    assert stat.S_IMODE(info.st_mode) == 0o600


def test_a_packed_recording_is_members_of_at_most_sixty_frames_that_any_tool_reads(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    record(path, SOME)
    data = path.read_bytes()
    text = gzip.decompress(data)
    assert [text.count(f'{{"type":"{kind}"'.encode()) for kind in ("frame", "change")] == [3, len(SOME) - 3]
    starts = [
        place for place in range(len(data)) if data.startswith(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff", place)
    ]
    assert len(starts) == 3
    assert [gzip.decompress(data[a:b]).count(b"\n") for a, b in zip(starts, [*starts[1:], None], strict=True)] == [
        61, 60, 10,
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_gone_on_with(tmp_path: Path, name: str) -> None:
    record(tmp_path / name, SOME[:5])
    record(tmp_path / name, SOME[20:25])
    assert replayed(tmp_path / name) == SOME[:5] + SOME[20:25]


@pytest.mark.parametrize("name", NAMES)
def test_p15_after_a_reboot_time_goes_on_as_the_wall_clock_says(tmp_path: Path, name: str) -> None:
    record(tmp_path / name, SOME[:5])
    record(tmp_path / name, [replace(frame, mono_s=frame.mono_s - SOME[0].mono_s + 7) for frame in SOME[50:55]])
    assert replayed(tmp_path / name) == SOME[:5] + SOME[50:55]


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0, -2e9])
def test_p14_a_jump_of_the_wall_clock_does_not_move_replay(tmp_path: Path, jump_s: float) -> None:
    path = tmp_path / "run.jsonl"
    record(path, [*SOME[:5], *(replace(frame, wall_s=frame.wall_s + jump_s) for frame in SOME[5:10])])
    assert [frame.mono_s for frame in replayed(path)] == [frame.mono_s for frame in SOME[:10]]


def test_no_secret_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    processes = tuple(replace(SOME[0].processes[0], pid=pid, command=argv) for pid, argv in enumerate(SECRETS.values()))
    found = Finding(rule="x", severity="warn", subject=Subject(kind="host"), headline="run --password=hunter2 now")
    record(path, [replace(SOME[0], processes=processes)], findings=(found,))
    text = path.read_text()
    assert [secret for secret in SECRETS if secret in text] == []


class Watched:
    """A paced recording under a monitor, and what it shows."""

    def __init__(self, path: Path) -> None:
        self.source = Recording(str(path))
        self.monitor = Monitor(self.source, unjudged=10**9)
        self.shown: list[Frame] = []
        self.ended = Event()
        self.monitor.start(lambda update: self.shown.append(update.frame), lambda _: self.ended.set())

    def until(self, frame: Frame) -> None:
        """Wait until this is the newest one shown."""
        until_s = time.monotonic() + 30
        while not self.shown or self.shown[-1] != frame:
            assert time.monotonic() < until_s, [shown.mono_s - SOME[0].mono_s for shown in self.shown]
            time.sleep(0.005)

    def busy(self, count: int) -> list[float | None]:
        return self.monitor.history.values("host", "cpu_percent", count)


@pytest.fixture(params=NAMES)
def watched(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Watched]:
    record(tmp_path / request.param, SOME)
    watched = Watched(tmp_path / request.param)
    watched.source.speed = 0
    watched.until(SOME[0])
    yield watched
    watched.monitor.stop()
    assert watched.ended.wait(10)


def test_one_can_go_anywhere(watched: Watched) -> None:
    source = watched.source
    assert isinstance(source, Seekable)
    for second in (100, 99, 40, 41, 0, 129, 128, 3):
        source.seek(second)
        assert source.position_s == second
        watched.until(SOME[second])
        assert source.position_s == second
        known = min(second + 1, 60)
        seen = [value for value in watched.busy(known) if value is not None]
        assert seen == pytest.approx([frame.host.cpu_percent for frame in SOME[second + 1 - known : second + 1]])
    assert source.length_s == 129
    assert source.span == (SOME[0].wall_s, SOME[129].wall_s)


def test_beyond_the_ends_are_the_ends(watched: Watched) -> None:
    watched.source.seek(1e9)
    watched.until(SOME[129])
    watched.source.seek(-5)
    watched.until(SOME[0])
    watched.source.seek(64.4)
    watched.until(SOME[64])


def test_going_to_where_one_is_moves_nothing(watched: Watched) -> None:
    source = watched.source
    for second in (0, 64, 129):
        source.seek(second)
        watched.until(SOME[second])
        count = len(watched.shown)
        for _ in range(3):
            source.seek(-1 if second == 0 else second)
            until_s = time.monotonic() + 30
            while source.going:
                assert time.monotonic() < until_s
                time.sleep(0.001)
            assert (source.position_s, watched.shown[count:]) == (second, [])
    source.seek(0)
    watched.until(SOME[0])
    source.seek(0)
    source.speed = 200
    watched.until(SOME[129])
    assert watched.shown[-130:] == SOME


def test_it_plays_on_from_where_it_was_taken_to_and_waits_at_the_end(watched: Watched) -> None:
    watched.source.seek(110)
    watched.source.speed = 200
    watched.until(SOME[129])
    place = watched.shown.index(SOME[110])
    assert watched.shown[place:] == SOME[110:]
    assert not watched.ended.is_set()
    watched.source.seek(125)
    watched.until(SOME[129])
    assert watched.shown[-5:] == SOME[125:]


def test_looks_that_are_not_quite_on_time_are_gone_through_one_by_one(tmp_path: Path) -> None:
    chance = random.Random(3)
    taken = [
        replace(frame, mono_s=SOME[0].mono_s + 2 * second + chance.uniform(-0.02, 0.02))
        for second, frame in enumerate(SOME[:60])
    ]
    record(tmp_path / "run.jsonl", taken)
    watched = Watched(tmp_path / "run.jsonl")
    watched.source.speed = 0
    watched.source.seek(60)
    watched.until(taken[30])
    for place in [*range(31, 40), *range(38, 20, -1)]:
        forward = taken[place].mono_s > watched.shown[-1].mono_s
        watched.source.seek(watched.source.position_s + (2 if forward else -2))
        watched.until(taken[place])
    watched.monitor.stop()


def test_a_recording_has_no_details_and_says_so(watched: Watched) -> None:
    missing = watched.source.inspect(Identity(1, 1))
    assert (missing.metric, missing.reason) == ("details", "absent")
    assert missing.unlock == "recordings hold no details"


def test_findings_are_marks(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    found = Finding(rule="power", severity="crit", subject=Subject(kind="gpu", gpus=("G",)), headline="too hot")
    recorder = Recorder(str(path))
    for second, frame in enumerate(SOME[:10]):
        recorder.take(Update(frame=frame, findings=(found,) if second in (3, 4, 8) else ()))
    assert recorder.close(30)
    assert replayed(path) == SOME[:10]
    watched = Watched(path)
    until_s = time.monotonic() + 30
    while not watched.source.complete:
        assert time.monotonic() < until_s
        time.sleep(0.01)
    assert [(mark.at_s, mark.text, mark.severity) for mark in watched.source.marks] == [
        (3, "too hot", "crit"), (8, "too hot", "crit"),
    ]  # fmt: skip
    watched.monitor.stop()


def test_the_golden_recording_of_version_1_stays_readable() -> None:
    path = Path(__file__).parents[1] / "golden" / "recording-v1.jsonl"
    first, second = replayed(path)
    assert (first.hostname, first.wall_s, first.mono_s) == ("old-node", 1_795_185_127.25, 1000.5)
    assert second == replace(first, wall_s=1_795_185_128.25, mono_s=1001.5)
    assert (first.gpus[0].uuid, first.gpus[0].busy_percent, first.gpus[0].vram_used_bytes) == ("the uuid", 12.25, 1015)
    assert first.processes[0].command == ("the command",)
