"""Who is a stranger to a trainer, and who may be of its job: by job, user, control group, and by who started whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.neighbours import unrelated
from gputop.model import Process
from tests.scripted_jobs import frame


def process(pid: int, parent_pid: int, **fields: Any) -> Process:
    return Process(**{"pid": pid, "started_ticks": 1, "parent_pid": parent_pid, "uid": 1, "cgroup": "/a"} | fields)


INIT = process(1, 0, uid=0, cgroup="/init")
SHIM = process(4000, 1, uid=0, cgroup="/shim")
FIRST = process(5000, 4000)  # of the container, as the host sees it
SHELL = process(5001, 5000, group=5001)
TRAINER = process(5002, 5001, group=5002, job="j")
AROUND = (INIT, SHIM, FIRST, SHELL, TRAINER)
OTHER = process(6000, 5001, group=6000)


@pytest.mark.parametrize(
    ("other", "is_one"),
    [
        (OTHER, True),
        (replace(OTHER, group=5002), False),  # in a pipe with the trainer, or in one script
        (replace(OTHER, group=None), False),
        (replace(OTHER, cgroup=None), True),
        (replace(OTHER, parent_pid=5000), False),  # left over, and given to the first process of the container
        (replace(OTHER, parent_pid=1), False),
        (replace(OTHER, parent_pid=0), False),
        (replace(OTHER, parent_pid=7), False),
        (replace(OTHER, parent_pid=5002), False),  # the trainer started it
        (replace(OTHER, parent_pid=5002, job="j"), False),
        (replace(OTHER, parent_pid=5002, job="other"), True),
        (replace(OTHER, parent_pid=1, uid=2), True),
        (replace(OTHER, parent_pid=1, cgroup="/b"), True),
        (replace(OTHER, uid=2, unseen="foreign"), False),
    ],
)
def test_strangers(other: Process, is_one: bool) -> None:
    found = list(unrelated(frame(loose=(*AROUND, other)), TRAINER))
    assert (other in found) == is_one
    assert not {FIRST, SHELL, TRAINER} & set(found), "who started it, and itself"


def test_what_a_script_starts_beside_a_launcher_is_no_stranger_to_its_ranks() -> None:
    script = process(7000, 5001, group=7000)
    launcher = process(7002, 7000, group=7000, job="k")
    rank = process(7003, 7002, group=7003, job="k")  # in a session of its own, as torchrun has it
    server = process(7001, 7000, group=7000)
    found = list(unrelated(frame(loose=(*AROUND, script, launcher, rank, server, OTHER)), rank))
    assert server not in found
    assert OTHER in found


def test_a_pid_of_another_machine_hides_nobody() -> None:
    foreign = process(5001, 0, started_ticks=9, unseen="foreign")
    assert OTHER in unrelated(frame(loose=(*AROUND, OTHER, foreign)), TRAINER)
