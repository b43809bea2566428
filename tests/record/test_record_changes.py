"""Frames told by what changed: the same frames come back, and what is damaged or made up never mixes two of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gputop.export.format import redacted
from gputop.model import Frame, Process
from gputop.model.ranges import held
from gputop.record.deltas import MOST, WHOLE_EVERY, DeltaChain, FrameLines
from gputop.record.parse import frame_of
from gputop.record.recording import Recording
from gputop.safe.files import Refused
from tests.full_frame import filled
from tests.record.test_record import frames, replayed

BUSY = frames(4, "showcase")


def back(taken: list[Frame]) -> list[tuple[Frame, bool]]:
    """The frames as a reader has them, and whether each was written whole."""
    writer, found, chain = FrameLines(), list[tuple[Frame, bool]](), DeltaChain(b"")
    for frame in taken:
        text, whole = writer.line(frame)
        if whole:
            chain, number = DeltaChain(text.encode()), 0
        else:
            number = chain.add(text.encode())
        data = chain.frame(number)
        assert data is not None
        found.append((frame_of(data), whole))
    return found


def later(frame: Frame, **changes: Any) -> Frame:
    return replace(frame, wall_s=frame.wall_s + 1, mono_s=frame.mono_s + 1, **changes)


def test_what_changed_makes_the_same_frames() -> None:
    full, first = filled(Frame), BUSY[0]
    bare = later(full, host=type(full.host)(), gpus=(), processes=(), jobs=(), notes=(), facts=(), cost_percent=None)
    one, *rest = first.processes
    told = replace(one, command=("train", "--token=abc"), user=None, cpu_percent=None, libraries=("b", "a"))
    taken = [*BUSY, full, bare, later(later(full)), first, later(first, processes=(told, *rest))]
    found = back(taken)
    assert [frame for frame, _ in found] == [held(redacted(frame)) for frame in taken]
    assert sum(whole for _, whole in found) < len(taken) / 2


@pytest.mark.parametrize(
    ("change", "whole"),
    [
        (lambda some: some[1:], False),
        (lambda some: (*some, Process(pid=7, started_ticks=9)), False),
        (lambda some: (*some[2:], replace(some[0], started_ticks=1)), False),  # its pid has another process now
        (lambda some: (), False),
        (lambda some: (Process(pid=7, started_ticks=9), *some), True),
        (lambda some: (some[1], some[0], *some[2:]), True),
        (lambda some: (*some, some[0]), True),
    ],
)
def test_processes_come_and_go_in_their_order(
    change: Callable[[tuple[Process, ...]], tuple[Process, ...]], whole: bool
) -> None:
    taken = [BUSY[0], later(BUSY[0], processes=change(BUSY[0].processes)), later(later(BUSY[0]))]
    found = back(taken)
    assert [frame for frame, _ in found] == [redacted(frame) for frame in taken]
    assert found[1][1] == whole


HEADER = '{"type":"header","version":1}'
GPU = {"uuid": "u", "index": "0", "name": "n", "busy_percent": 1}
WHOLE = {"wall_s": 1e9, "mono_s": 1, "hostname": "n", "host": {"uptime_s": 5}, "gpus": [GPU]}


def change(after: float, **more: Any) -> dict[str, Any]:
    return {"type": "change", "frame": {"wall_s": 1e9 + after, "mono_s": after + 1, **more}, "after": after}


FORGED: tuple[dict[str, Any], ...] = (
    change(2) | {"after": 1},  # a line was lost
    change(2) | {"after": None},
    change(2) | {"gone": []}, change(2) | {"gone": {"gpus": 3}}, change(2) | {"gone": {"gpus": [{}, [[]], [{}]]}},
    change(2, gpus={"uuid": "u"}), change(2, gpus=[3]), change(2, gpus=[{"busy_percent": 1}]),
    change(2, gpus=[{"uuid": ["u"]}]), change(2, gpus=[{"uuid": "u", "busy_percent": "x"}]), change(2, host=[]),
    change(2, processes=[{"pid": 1, "started_ticks": number} for number in range(65_537)]),
    {"type": "change", "frame": {"mono_s": "soon"}, "after": 2}, {"type": "change"},
)  # fmt: skip


@pytest.mark.parametrize("forged", FORGED, ids=lambda line: json.dumps(line)[:60])
def test_f05_a_forged_change_is_skipped_and_the_next_whole_frame_counts(tmp_path: Path, forged: dict[str, Any]) -> None:
    path = tmp_path / "forged.jsonl"
    first = change(1, gpus=[{"uuid": "u", "busy_percent": 2}], host={"uptime_s": None})
    whole = {"type": "frame", "frame": {**WHOLE, "mono_s": 9, "wall_s": 1e9 + 8}}
    lines = [{"type": "frame", "frame": WHOLE}, first, forged, change(3, late_s=7), whole]
    path.write_text("\n".join([HEADER, *map(json.dumps, lines), ""]))
    found = replayed(path)
    assert [frame.gpus[0].busy_percent for frame in found][:2] == [1, 2]
    assert (found[0].host.uptime_s, found[1].host.uptime_s) == (5, None)
    assert found[-1].gpus[0].busy_percent == 1
    assert all(before.mono_s < after.mono_s for before, after in pairwise(found))
    assert found[-1].note("recording-damaged") or len(found) == 5


def test_f05_changes_without_a_frame_and_without_end(tmp_path: Path) -> None:
    path = tmp_path / "forged.jsonl"
    whole = json.dumps({"type": "frame", "frame": WHOLE})
    some = [json.dumps(change(float(second))) for second in range(1, MOST + 9)]
    path.write_text("\n".join([HEADER, some[0], whole, *some, ""]))
    assert len(replayed(path)) == MOST
    assert WHOLE_EVERY < MOST


def test_f05_what_follows_a_whole_frame_that_makes_no_sense_is_lost_too(tmp_path: Path) -> None:
    path = tmp_path / "forged.jsonl"
    wrong = {"type": "frame", "frame": {**WHOLE, "mono_s": 3, "gpus": [{"uuid": "u", "index": 0}]}}
    after = change(4, gpus=[{"uuid": "u", "index": "0"}])
    path.write_text("\n".join([HEADER, *map(json.dumps, [{"type": "frame", "frame": WHOLE}, wrong, after]), ""]))
    assert len(replayed(path)) == 1


def test_f05_a_file_of_which_no_frame_can_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "wrong.jsonl"
    wrong = {"type": "frame", "frame": {"wall_s": 1e9, "mono_s": 1.0, "host": {}}}
    path.write_text("\n".join([HEADER, json.dumps(wrong), json.dumps(wrong), ""]))
    with pytest.raises(Refused, match="holds no frame that can be read: frame has no hostname"):
        Recording(str(path))
