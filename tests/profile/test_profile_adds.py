"""A profile adds to a finding: what was found from outside stays, and what has ended goes."""

from __future__ import annotations

from dataclasses import replace

from gputop.demo import SCENARIOS, Demo
from gputop.model import Frame
from tests.rule_cases import found, judged, played, scenario


def test_a_profile_adds_to_what_was_found_from_outside() -> None:
    without = SCENARIOS["seen-inside"]
    without = replace(without, server=replace(without.server, seen_inside=()))
    from_outside = found(played(without, 400)[-1][1], "starved-cause-unknown")
    inside = found(scenario("seen-inside", 400)[-1][1], "seen-inside")
    assert from_outside is not None
    assert inside is not None
    texts = [one.text for one in inside.evidence]
    kinds = [text.split(" ")[0:2] for text in texts]
    assert all(one.text.split(" ")[0:2] in kinds for one in from_outside.evidence), texts
    assert "logging" in inside.headline
    assert inside.state != "see profile"
    assert inside.steps[0].text.startswith("Log every 50 steps")
    assert not any("stands with the profile" in step.text for step in inside.steps)
    kept = {step.text for step in from_outside.steps if not step.action}
    assert kept <= {step.text for step in inside.steps}


def test_a_finding_goes_with_the_last_of_its_processes() -> None:
    said = [*judged(_frames())]
    before, gone = said[-2][1], said[-1][1]
    about = [one for one in before.findings if one.subject.processes]
    assert about, "there is something to be told first"
    assert not [one for one in gone.findings if one.subject.kind in ("process", "job") and one.subject.processes]


def _frames() -> list[Frame]:
    demo = Demo(SCENARIOS["seen-inside"], pace=False, anchor_s=1_795_185_127.0, at_s=0.0)
    frames = [demo.frame(float(t)) for t in range(0, 300, 2)]
    last = frames[-1]
    others = tuple(process for process in last.processes if process.job is None)[:1]
    keeps = others or tuple(replace(last.processes[0], pid=999_999, job=None, gpus=()) for _ in range(1))
    ended = replace(last, mono_s=last.mono_s + 2, wall_s=last.wall_s + 2, processes=keeps, jobs=(), facts=())
    return [*frames, ended]
