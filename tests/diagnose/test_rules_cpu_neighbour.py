"""Neighbours: who takes most is held against the whole job, and against all that the disks do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.engine import Verdict
from gputop.model import Frame, Identity, Job, Process
from tests.diagnose.test_rules_cpu_place import DISK, FULL, STUCK, WAITS, shared
from tests.rule_cases import after, refused, silent


def named(said: Verdict) -> bool:
    """Whether a neighbour is told of, alone or as a cause."""
    return any("neighbour" in (finding.rule, *finding.causes) for finding in said.findings)


def ranks(alone: Callable[[float], Frame], count: int) -> Callable[[float], Frame]:
    """The same trainer as so many ranks of its job, with a GPU and loaders each."""

    def frame(t: float) -> Frame:
        one = alone(t)
        mine = [process for process in one.processes if process.job == "j"]
        more = [
            replace(
                process,
                pid=process.pid + 1000 * n,
                parent_pid=process.parent_pid + (1000 * n if process.parent_pid == 100 else 0),
                gpus=tuple(replace(share, uuid=f"G{n}") for share in process.gpus),
            )
            for n in range(1, count)
            for process in mine
        ]
        cards = [replace(one.gpus[0], uuid=f"G{n}", index=str(n)) for n in range(1, count)]
        job = replace(one.jobs[0], ranks=tuple(Identity(100 + 1000 * n, 1) for n in range(count)))
        return replace(one, gpus=(*one.gpus, *cards), processes=(*one.processes, *more), jobs=(job,))

    return frame


@pytest.mark.parametrize(
    ("host", "other", "loader", "count", "fires"),
    [
        (FULL, {"cpu_percent": 700.0}, {"cpu_percent": 150.0}, 1, True),
        (FULL, {"cpu_percent": 700.0}, {"cpu_percent": 150.0}, 2, False),  # 4 cores of each of two ranks
        (FULL, {"cpu_percent": 900.0}, {"cpu_percent": 150.0}, 2, True),
        (DISK, {"read_bytes_per_s": 150e6}, STUCK | {"read_bytes_per_s": 50e6}, 1, True),
        (DISK, {"read_bytes_per_s": 150e6}, STUCK | {"read_bytes_per_s": 50e6}, 2, False),
        (DISK, {"read_bytes_per_s": 250e6}, STUCK | {"read_bytes_per_s": 50e6}, 2, True),
    ],
)
def test_a_neighbour_is_held_against_all_ranks_of_the_job(
    host: dict[str, Any], other: dict[str, Any], loader: dict[str, Any], count: int, fires: bool
) -> None:
    said = after(ranks(shared(WAITS, host, other, loader), count))
    assert named(said) == fires


def test_another_job_is_named_and_not_its_key() -> None:
    seen = shared(WAITS, FULL, {"cpu_percent": 1200.0, "job": "991.9"}, {})

    def frame(t: float) -> Frame:
        one = seen(t)
        job = Job(key="991.9", name="pack/train", user="bob", members=(Identity(991, 9),))
        return replace(one, jobs=(*one.jobs, job))

    (told,) = (one for one in after(frame).findings if "neighbour" in (one.rule, *one.causes))
    assert "CPU contention, mostly from pack/train of user bob" in told.headline
    assert "991.9" not in " ".join(item.text for item in told.evidence)


@pytest.mark.parametrize(
    ("read", "hidden", "fires"),
    [
        (1025e6, True, False),  # who takes it is hidden
        (33e6, True, False),  # most of it, though what is seen is no small part
        (30e6, True, True),
        (None, True, False),
        (1025e6, False, False),  # in a container nobody sees processes of the host
        (None, False, True),
    ],
)
def test_a_neighbour_on_the_disk_is_held_against_all_that_the_disks_move(
    read: float | None, hidden: bool, fires: bool
) -> None:
    host = DISK | {"read_bytes_per_s": read, "write_bytes_per_s": 0.0}
    seen = shared({}, host, {"read_bytes_per_s": 15e6}, STUCK | {"read_bytes_per_s": 1e6})
    carol = Process(pid=992, started_ticks=9, name="fio", uid=3, cgroup="/c", **refused("read_bytes_per_s"))

    def frame(t: float) -> Frame:
        one = seen(t)
        return replace(one, processes=(*one.processes, carol)) if hidden else one

    said = after(frame)
    assert named(said) == fires
    assert (silent(said, "neighbour") is not None) == (hidden and not fires)
