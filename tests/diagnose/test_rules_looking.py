"""Steps that look inside a process: they run as they are printed, with the rights that this takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.finding import Step
from gputop.model import Frame, Missing
from tests.diagnose.test_rules_context import on_cpu
from tests.diagnose.test_rules_usage import elsewhere
from tests.rule_cases import after, found, scenario

HIDDEN = (Missing(metric="read_bytes_per_s", reason="denied"),)


def steps(viewer: int | None, **trainer: Any) -> dict[str, Step]:
    machine = elsewhere(**trainer)

    def frame(t: float) -> Frame:
        return replace(machine.frame(t), viewer_uid=viewer)

    told = found(after(frame, 240), "gpu-idle-cpu-busy")
    assert told is not None
    return {step.action: step for step in told.steps if step.action}


@pytest.mark.parametrize(
    ("viewer", "trainer", "root"),
    [
        (1000, {"uid": 1000}, False),
        (1002, {"uid": 1000}, True),
        (0, {"uid": 1000}, False),
        (None, {"uid": 1000}, False),  # nobody knows who looks
        (1002, {"uid": None, "missing": HIDDEN}, True),
        (1000, {"uid": 1000, "missing": HIDDEN}, True),  # it has made itself unreadable
    ],
)
def test_a_look_inside_is_a_command_of_gputop_and_as_root_where_it_must_be(
    viewer: int | None, trainer: dict[str, Any], root: bool
) -> None:
    told = steps(viewer, **trainer)
    sudo = "sudo " if root else ""
    assert told["stack"].command == f"{sudo}gputop stack 100"
    assert told["profile"].command == f"{sudo}gputop profile 100"
    assert {step.needs_root for step in told.values()} == {root}


@pytest.mark.parametrize(
    ("viewer", "command"),
    [
        (1000, "tr '\\0' '\\n' </proc/100/environ | grep CUDA_VISIBLE"),
        (1002, "sudo cat /proc/100/environ | tr '\\0' '\\n' | grep CUDA_VISIBLE"),
    ],
)
def test_the_environment_of_another_user_is_read_as_root(viewer: int, command: str) -> None:
    machine = on_cpu(uid=1000)
    told = found(after(lambda t: replace(machine.frame(t), viewer_uid=viewer), 200), "no-cuda-context")
    assert told is not None
    assert (told.steps[-1].command, told.steps[-1].needs_root) == (command, viewer != 1000)


@pytest.mark.parametrize("name", ["gpu-idle-cpu-busy", "collective-wait", "starved-cause-unknown", "head-of-line"])
def test_no_step_needs_py_spy_on_path(name: str) -> None:
    told = found(scenario(name)[-1][1], name)
    assert told is not None
    printed = [step.command for step in told.steps if step.action == "stack"]
    assert printed
    assert all(command and "gputop stack " in command for command in printed)
