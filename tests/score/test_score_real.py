"""The score of real processes: recordings made of a simulated server, as if they had been played."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.model import Role
from gputop.monitor import Update
from gputop.record.recorder import Recorder
from tests.rule_cases import Machine
from tests.score import followed, real, told
from tests.score.__main__ import lacking
from tests.score.asked import differs
from tests.score.disturbed import LOST_SHARE, PLAIN, RECORDED, STRANGER, VARIANTS, disturbed
from tests.score.kept import Kept, NotKept
from tests.score.marks import Result, Said
from tests.score.tools import TOOLS
from tests.workloads.cases import CASES
from tests.workloads.command import Diagnosed
from tests.workloads.stage import Performance, Play

ONSET_S = 120
BY_NAME = {case.name: case for case in CASES}
CASE = BY_NAME["too few workers"]
TWIN = f"{CASE.name}, healthy twin"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one fault, recorded from its onset on, its twin, and how it went when advice was followed."""
    folder = tmp_path_factory.mktemp("kept")
    for scenario, variant in ((CASE.plants, PLAIN.name), ("healthy", "healthy twin")):
        demo = Demo(SCENARIOS[scenario], pace=False, anchor_s=1_795_185_127.0, at_s=0.0)
        frames = [demo.frame(float(t)) for t in range(ONSET_S, ONSET_S + CASE.seconds + 30)]
        recorder = Recorder(str(folder / f"{CASE.name}, {variant}.jsonl.gz"), wait=True)
        for frame in frames:
            recorder.take(Update(frame=frame))
        recorder.close()
        cast = [[frames[0].jobs[0].members[0].pid], [gpu.index for gpu in frames[0].gpus], frames[0].wall_s]
        (folder / f"{CASE.name}, {variant}.json").write_text(json.dumps([cast]))
    result = {"mark": "right", "misled": [], "detect_s": 60.0, "clear_s": 40.0}
    (folder / f"{followed.NAME}.json").write_text(json.dumps([["as it is", "gputop", result]]))
    return folder


def test_a_play_is_judged_without_other_trainings_of_the_machine() -> None:
    frame = Machine(loaders=1).frame(0.0)
    trainer, worker = frame.processes
    strangers = (
        replace(trainer, pid=300),
        replace(worker, pid=301, parent_pid=300),
        replace(trainer, pid=302, role=Role.OTHER),  # a neighbour is a part of some plays
    )
    seen = replace(frame, processes=(*frame.processes, *strangers))
    one = Performance([Update(frame=seen)], roots=[trainer.pid], gpus=["0"], since_s=0.0)
    ((_, alone),) = real.alone(one, [one])
    assert [process.pid for process in alone.processes] == [trainer.pid, worker.pid, 302]


def test_what_is_kept_is_judged_by_every_tool_and_disturbed_by_gputop(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = real.all_played([CASE.name, "small files", followed.NAME], list(VARIANTS), kept, plays=False)
    assert {(name, tool) for name, variant, tool in runs if variant == PLAIN.name} == {
        (followed.NAME, "gputop"), *((name, tool) for name in (CASE.name, TWIN) for tool in TOOLS)
    }  # fmt: skip
    ours = {(name, variant): one for (name, variant, tool), one in runs.items() if tool == "gputop"}
    assert set(ours) == {(followed.NAME, PLAIN.name), *((name, how) for name in (CASE.name, TWIN) for how in RECORDED)}
    assert all(ours[CASE.name, how].mark == "right" for how in RECORDED if how != "all thresholds x 0.7")
    assert all((ours[TWIN, how].false_alarms, ours[TWIN, how].mark) == (0, None) for how in RECORDED)
    assert ours[CASE.name, PLAIN.name].command == ours[TWIN, PLAIN.name].command == ""
    assert "not judged: small files: there is no" in capsys.readouterr().out
    assert real.twins(runs) == f"Of the {len(real.names()) - 1} healthy twins 1 were judged."
    _the_page_has_all_of_it(told.page(runs, PLAIN.name, "How."))


def _the_page_has_all_of_it(text: str) -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    head = rows[0]
    twin_min = {row[0]: row[head.index("healthy min")] for row in rows if len(row) == len(head)}
    assert {twin_min[tool] for tool in TOOLS} == {"3"}
    assert {twin_min[how] for how in RECORDED} == {"3"}
    assert "disturbed, " in text
    assert "2 of 2 runs, healthy twins included" in text


def test_what_is_not_kept_is_not_played_where_nothing_may_be(tmp_path: Path) -> None:
    kept = Kept(tmp_path, plays=False)
    with pytest.raises(NotKept):
        kept.recording([Play(CASE)], 1)
    with pytest.raises(NotKept):
        kept.followed()


def test_a_recording_is_disturbed_as_a_server_is() -> None:
    frames = [(float(t), Machine().frame(t)) for t in range(1000)]
    assert list(disturbed(frames, PLAIN, Random(1))) == frames
    lossy = list(disturbed(frames, VARIANTS["20 % of the samples lost"], Random(1)))
    assert len(lossy) == pytest.approx(1000 * (1 - LOST_SHARE), rel=0.05)
    assert set(lossy) <= set(frames)
    jitter = list(disturbed(frames, VARIANTS["sample and clock jitter"], Random(1)))
    off = [frame.mono_s - before.mono_s for (_, frame), (_, before) in zip(jitter, frames, strict=True)]
    assert 0.3 < max(map(abs, off)) <= 0.35
    ((_, frame),) = disturbed(frames[:1], VARIANTS["other users' processes"], Random(1))
    (process,) = frame.processes
    assert frame.viewer_uid == STRANGER
    assert process.write_bytes_per_s is None
    assert ("write_bytes_per_s", "denied") in {(one.metric, one.reason) for one in process.missing}
    assert [note.key for note in frame.notes] == ["denied-io"]
    assert "faults 30 % weaker" not in RECORDED


def test_what_never_leads_is_right_where_it_is_told_in_both_tiers() -> None:
    assert real.truth_of(BY_NAME["too many workers"], False).beside
    assert not real.truth_of(BY_NAME["too many workers"], True).beside
    assert not real.truth_of(CASE, False).beside


def test_the_command_must_say_the_same_and_end_as_it_says() -> None:
    finding = {"rule": "starved-cpu-idle", "severity": "warn", "primary": True, "causes": ["cold-cache"]}
    both = frozenset(("starved-cpu-idle", "cold-cache"))
    said = Said(0.0, primary=both, named=both, alarms=frozenset(("starved-cpu-idle",)))
    assert differs(Diagnosed(1, [finding]), said) == ""
    assert differs(Diagnosed(0, [finding]), said) == "exit code 0 for 1"
    assert differs(Diagnosed(1, [finding], judging=True), said) == ""
    assert differs(Diagnosed(3, [], judging=True), Said(0.0)) == ""  # of something else on the machine
    assert differs(Diagnosed(0, [], judging=True), Said(0.0)) == "exit code 0 for 3"
    assert differs(Diagnosed(0, []), said) == (
        "leads: cold-cache, starved-cpu-idle; told: cold-cache, starved-cpu-idle; warns: starved-cpu-idle"
    )
    assert "leads" in differs(Diagnosed(1, [{**finding, "primary": False}]), said)


def test_only_what_is_whole_lands() -> None:
    runs = {(name, PLAIN.name, "gputop"): Result(mark="right") for name in real.names()}
    assert lacking(runs, real.names(), False) == ""
    assert lacking(runs, real.names(), True) == "the disturbances"
    del runs[CASE.name, PLAIN.name, "gputop"]
    assert lacking(runs, real.names(), False) == CASE.name
