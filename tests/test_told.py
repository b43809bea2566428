"""What was seen inside a process makes a finding surer: for a while, by every witness, and in a recording too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.diagnose import Finding
from gputop.diagnose.rules import RULES
from gputop.export import codec
from gputop.model import Fact, Frame, Identity
from gputop.monitor import Monitor
from gputop.profile import Profile, parse
from gputop.record.parse import parse as parsed
from gputop.trace.read import read
from gputop.trace.verdict import View
from tests.judged import Machine, after, found, judged, silent
from tests.test_monitor import Played
from tests.test_trace_signatures import waiting

TRAINER = Identity(100, 1)
ALONE = Machine(gpu={"busy_percent": 40.0}, trainer={"read_chars_per_s": 40e6})
LOADS = parse(
    "MainThread;main (train.py:9);__next__ (dataloader.py:708);fetch (fetch.py:52);load (data.py:3) 60\n"
    "MainThread;main (train.py:9);backward (tensor.py:1) 40\n"
)
WAITS = parse(
    "MainThread;main (train.py:9);__next__ (dataloader.py:708);get (queue.py:180) 60\n"
    "MainThread;main (train.py:9);backward (tensor.py:1) 40\n"
)
TRAINS = parse("MainThread;main (train.py:9);fetch (fetch.py:52) 9\nMainThread;main (train.py:9);step (adam.py:2) 91\n")


def said(monitor: Monitor, told: dict[int, Profile | View | list[Fact]]) -> list[tuple[Frame, Finding | None]]:
    """The frames, and what is found in them, where these things are told after so many frames."""
    seen: list[tuple[Frame, Finding | None]] = []
    for number, update in enumerate(monitor.updates()):
        if number in told:
            monitor.tell(TRAINER, told[number])
        finding = next((one for one in update.findings if one.rule == "loader-in-main"), None)
        seen.append((update.frame, finding))
    return seen


def sure(seen: Iterable[tuple[Frame, Finding | None]]) -> list[tuple[float, str]]:
    """Each confidence and grade, once."""
    return list(dict.fromkeys((round(one.confidence, 3), one.grade) for _, one in seen if one))


def test_stacks_that_show_it_make_it_surer_for_a_quarter_of_an_hour() -> None:
    seen = said(Monitor(Played(range(1300), machine=ALONE)), {200: LOADS})
    assert sure(seen) == [(0.7, "correlation"), (0.85, "profile")]
    grades = [finding.grade for _, finding in seen if finding]
    assert grades.count("profile") == pytest.approx(900, abs=2)
    assert grades[-1] == "correlation"
    _, confirmed = seen[300]
    assert confirmed is not None
    assert confirmed.evidence[-1].text == "its main thread is loading data itself in 60 % of 100 samples"
    frame, _ = seen[301]
    assert {round(fact.age_s) for fact in frame.facts} == {100}


def test_what_a_witness_says_anew_replaces_what_it_said() -> None:
    seen = said(Monitor(Played(range(260), machine=ALONE)), {200: LOADS, 220: TRAINS})
    assert sure(seen[:221]) == [(0.7, "correlation"), (0.85, "profile")]
    assert sure(seen[225:]) == [(0.7, "correlation")]
    assert sure(said(Monitor(Played(range(230), machine=ALONE)), {200: LOADS, 210: Profile()})[215:]) == [
        (0.7, "correlation")
    ]


def test_a_trace_and_the_notes_of_the_program_are_witnesses_too(tmp_path: Path) -> None:
    trace = View(read(waiting(30, "SingleProcess").write(tmp_path / "x.json")))
    note = [Fact(process=TRAINER, witness="notes", name="loads-in-main", text="num_workers=0")]
    for witness in (trace, note):
        assert sure(said(Monitor(Played(range(230), machine=ALONE)), {200: witness})[205:]) == [(0.85, "profile")]
    other = View(read(waiting(30, "MultiProcessing").write(tmp_path / "y.json")))
    assert sure(said(Monitor(Played(range(230), machine=ALONE)), {200: other})) == [(0.7, "correlation")]


def test_a_recording_carries_it_wherever_one_begins() -> None:
    seen = said(Monitor(Played(range(400), machine=ALONE)), {100: LOADS})
    lines = [codec.line(codec.frame_line(frame)).encode() for frame, _ in seen]
    for first in (0, 250):
        frames = [frame for line in lines[first:] if isinstance(frame := parsed(line), Frame)]
        *_, (_, end) = judged(frames)
        again = found(end, "loader-in-main")
        assert again is not None
        assert (again.confidence, again.evidence) == (seen[-1][1].confidence, seen[-1][1].evidence)  # type: ignore[union-attr]


def test_stacks_tell_what_the_loaders_do_apart_from_the_main_thread() -> None:
    profile = parse(
        "MainThread (100);main (t.py:9);__next__ (dataloader.py:708) 80\nMainThread (100);main (t.py:8) 20\n"
        "MainThread (101);main (t.py:9);_worker_loop (worker.py:7);svd (_linalg.py:1681) 30\n"
        "MainThread (101);main (t.py:9);_worker_loop (worker.py:7);Queue.get (queues.py:113) 10\n"
    )
    frame, _ = said(Monitor(Played(range(3), machine=ALONE)), {0: profile})[-1]
    assert [(fact.name, fact.share, fact.text) for fact in frame.facts] == [
        ("waits-for-data", 0.8, "its main thread is waiting for the DataLoader in 80 % of 100 samples"),
        ("linalg-in-loaders", 0.75, "its loaders are in linear algebra of NumPy in 75 % of their samples"),
    ]
    assert RULES["openblas-on-intel"].confirmed_by == ("linalg-in-loaders",)


def test_time_that_goes_back_knows_nothing_of_it() -> None:
    seen = said(Monitor(Played([*range(210), *range(100)], machine=ALONE)), {200: LOADS})
    assert seen[209][0].facts
    assert not any(frame.facts for frame, _ in seen[210:])


def test_what_no_rule_sees_from_outside_is_told_by_whoever_looked_inside() -> None:
    busy = Machine(gpu={"busy_percent": 97.0})
    monitor = Monitor(Played(range(300), machine=busy))
    seen: list[Finding | None] = []
    for number, update in enumerate(monitor.updates()):
        if number == 100:
            monitor.tell(TRAINER, WAITS)
        seen.append(next((one for one in update.findings if one.rule == "seen-inside"), None))
    assert set(seen[:100]) == {None}
    finding = seen[-1]
    assert finding is not None
    assert (finding.severity, finding.grade, finding.primary) == ("warn", "profile", True)
    assert finding.headline == "was looked into: its main thread is waiting for the DataLoader in 60 % of 100 samples"
    assert [step.command for step in finding.steps] == ["gputop profile --list 100"]


@pytest.mark.parametrize(("machine", "profile"), [(Machine(gpu={"busy_percent": 97.0}), TRAINS), (ALONE, LOADS)])
def test_what_is_little_or_told_by_another_rule_is_not_told_again(machine: Machine, profile: Profile) -> None:
    monitor = Monitor(Played(range(300), machine=machine))
    for number, update in enumerate(monitor.updates()):
        if number == 100:
            monitor.tell(TRAINER, profile)
        if number > 240:
            assert "seen-inside" not in {one.rule for one in update.findings}


def test_a_rank_of_which_a_trace_told_small_kernels_is_judged_as_the_abstention_promised() -> None:
    machine = Machine(gpu={"sm_active_percent": 20.0}, trainer={"world_size": 2})
    small = Fact(process=TRAINER, witness="trace", name="small-grids", text="a trace says: small kernels")
    said = after(lambda t: replace(machine.frame(t), facts=(small,)), 90)
    assert found(said, "busy-not-effective") is not None
    assert silent(said, "busy-not-effective") is None
