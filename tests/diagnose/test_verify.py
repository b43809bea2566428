"""The command that verifies a finding: for the right process, told everywhere, copied and run by a key."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop import cli
from gputop.diagnose import Finding, Step, Subject
from gputop.diagnose.rules import RULES
from gputop.diagnose.verify import EXPERIMENTS, with_verification
from gputop.export.diagnosis import Diagnosis, as_json, page
from gputop.lab import results
from gputop.report import text
from gputop.ui import copy_texts
from gputop.ui.advice.finding_list import FindingList, commands
from tests.advice_scenes import fine, found, hot, server, update
from tests.headless_screens import Stage, play
from tests.scripted_jobs import minute

RANK = server().jobs[0].ranks[0]


def of(rule: str, subject: Subject | None = None, **change: Any) -> Finding:
    subject = subject or found().subject
    return with_verification(found(rule=rule, subject=subject, **change), server())


def test_every_experiment_is_of_a_rule_and_a_command_there_is() -> None:
    assert EXPERIMENTS.keys() <= RULES.keys()
    for experiment in EXPERIMENTS.values():
        program, command, *options = experiment.command.format(pid=7).split()
        assert program == "gputop"
        assert command in cli.COMMANDS
        parsed = cli.parser().parse_args([command, *options])
        assert 7 in (getattr(parsed, "from_pid", None), int(parsed.factory or 0))


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("starved-cpu-idle", "gputop loader --from {}"),
        ("tensor-cores-idle", "gputop lab --from {}"),
        ("gmem-leak", "gputop memory {}"),
        ("host-memory-leak", "gputop memory {}"),
        ("gmem-nearly-full", "gputop maxbatch --from {}"),
    ],
)
def test_a_finding_is_verified_by_the_experiment_of_its_rule(rule: str, command: str) -> None:
    step = of(rule).verify
    assert step is not None
    assert step.command == command.format(RANK.pid)


def test_it_is_for_a_process_that_is_there() -> None:
    shown = server()
    gpu = Subject(kind="gpu", gpus=(shown.gpus[7].uuid,))
    job = Subject(kind="job", job=shown.jobs[0].key)
    assert (of("gmem-nearly-full", job).verify or Step(text="")).command == f"gputop maxbatch --from {RANK.pid}"
    holder = next(one for one in shown.processes if any(share.uuid == gpu.gpus[0] for share in one.gpus))
    trains = replace(shown, processes=tuple(replace(one, role=shown.by_identity[RANK].role) for one in shown.processes))
    held = with_verification(found(rule="gmem-nearly-full", subject=gpu), trains).verify
    assert held is not None
    assert held.command == f"gputop maxbatch --from {holder.pid}"
    assert of("gmem-nearly-full", Subject(kind="host")).verify is None
    assert of("thermal").verify is None
    assert of("starved-cpu-idle", healthy=True).verify is None


def test_it_is_told_in_text_and_in_json() -> None:
    diagnosis = Diagnosis(update=update(of("starved-cpu-idle")), seconds=60)
    said = text(page(diagnosis))
    step = "→ To confirm: time its DataLoader with other settings"
    assert f"{step}\n            gputop loader --from {RANK.pid}\n" in said
    (told,) = as_json(diagnosis)["findings"]
    assert told["verify"]["command"] == f"gputop loader --from {RANK.pid}"
    (none,) = as_json(Diagnosis(update=update(hot()), seconds=60))["findings"]
    assert none["verify"] is None


def test_it_is_copied_after_the_steps() -> None:
    finding_list = FindingList()
    finding_list.feed(update(of("starved-cpu-idle")))
    assert [name for name, _ in commands(finding_list.chosen)] == ["step 1", "step 3", "verify"]
    assert copy_texts.of_finding(finding_list.chosen)[-1] == ("verify", f"gputop loader --from {RANK.pid}")
    assert commands(None) == []


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_key_asks_and_then_lends_the_terminal(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    lent: list[list[str]] = []

    async def scene(stage: Stage) -> None:
        def lend(arguments: list[str]) -> int:
            lent.append(arguments)
            return 0

        monkeypatch.setattr(stage.app, "lend", lend)
        stage.app.main.show(update(of("starved-cpu-idle"), fine()))
        await stage.press("m")
        assert "not now: select a finding first with a" in stage.text
        await stage.press("a")
        await stage.press("m")
        assert f"gputop loader --from {RANK.pid}" in stage.text
        assert "Ctrl+C stops it" in " ".join(stage.text.split())
        await stage.press("enter")  # the first button does no harm
        assert lent == []
        await stage.press("m", "right", "enter")
        await stage.pilot.pause()
        assert lent == [["loader", "--from", str(RANK.pid)]]
        assert "exit code 0" in stage.text

    shown = update().frame
    play(scene, shown, size=size, past=minute(shown))


def test_what_was_measured_stands_beside_the_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    says = "The DataLoader for this host: DataLoader(dataset, num_workers=4)"
    results.keep("loader", {"at_s": time.time() - 130, "of": [*RANK], "says": says})

    async def scene(stage: Stage) -> None:
        stage.app.main.show(update(of("starved-cpu-idle"), fine()))
        await stage.press("a")
        for _ in range(500):
            if "measured 2 min" in stage.text:
                break
            await stage.pilot.pause(0.02)
        assert says in " ".join(stage.text.split())

    shown = update().frame
    play(scene, shown, size=(120, 40), past=minute(shown))
