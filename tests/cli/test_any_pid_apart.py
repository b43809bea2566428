"""Processes that each train by themselves below a parent that only joins them: every pid of them leads to those."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputop.cli.process import waits_for_children
from gputop.profile.code import Call
from tests.cli.test_any_pid import Started
from tests.process_watch import ROOT, running
from tests.traced_jobs import environment, scratch

pytestmark = pytest.mark.jobs

APART = str(ROOT / "tests/workloads/apart.py")
WAYS = {
    "spawned": (("torch", "0"), True, ()),
    "with-loaders": (("torch", "1"), True, ()),
    "forked": (("fork", "0"), True, ("sh", "-c", '"$@"; true', "run.sh")),
    "no-agent": (("fork", "1"), False, ()),
    "fork-server": (("forkserver", "0"), False, ()),
    "pool": (("pool",), True, ()),
}


@contextmanager
def apart(*arguments: str, agent: bool = True, behind: tuple[str, ...] = (), count: int = 2) -> Iterator[Started]:
    """What has made a step in each of its trainers; with `agent` as by `gputop run`."""
    with (
        scratch() as folder,
        running(
            *behind, sys.executable, APART, *arguments,
            env=environment(folder) if agent else None, stderr=subprocess.DEVNULL,
        ) as child,
    ):  # fmt: skip
        assert child.stdout is not None
        assert [child.stdout.readline().split()[:1] for _ in range(count)] == [["ready"]] * count
        yield Started(child.pid, folder)


def trainers(job: Started, behind: tuple[str, ...]) -> tuple[int, list[int]]:
    """The parent, and those that train, in the order of their start."""
    parent = job.below()[0] if behind else job.pid
    below = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in job.below(parent)}
    found = [pid for pid, line in below.items() if b"resource_tracker" not in line and b"forkserver" not in line]
    found += [child for pid, line in below.items() if b"forkserver" in line for child in job.below(pid)]
    assert len(found) == 2
    return parent, found


@pytest.mark.parametrize("way", WAYS)
def test_every_pid_leads_to_the_processes_that_train(way: str) -> None:
    arguments, agent, behind = WAYS[way]
    with apart(*arguments, agent=agent, behind=behind) as job:
        parent, found = trainers(job, behind)
        for pid in dict.fromkeys((job.pid, parent)):
            shown = job.stacks(str(pid))
            assert [(one["pid"], one["role"], one["rank"]) for one in shown] == [
                (found[0], "trainer", 0),
                (found[1], "trainer", 1),
                (parent, "launcher", None),
            ]
        said = job.ask("profile", "--for", "1s", "--json", str(job.pid))
        assert f"{parent} is a launcher: profiling its ranks (--launcher profiles {parent})" in said
        assert [one["pid"] for one in json.loads(said[said.index("{") :])["ranks"]] == found
        for pid in (job.pid, found[1]) if agent else ():
            said = job.ask("trace", "--steps", "2", str(pid))
            assert "rank0.json.gz" in said
            assert "rank1.json.gz" in said


def test_a_trainer_that_waits_for_what_its_children_send_is_no_launcher() -> None:
    with apart("feeds", count=1) as job:
        assert [one["pid"] for one in job.stacks(str(job.pid))] == [job.pid]


def test_where_it_cannot_be_told_who_trains_those_that_may_are_named() -> None:
    """A parent that waits for results, as of a pool, may train as well; here no agent tells."""
    with apart("pool", agent=False) as job:
        parent, found = trainers(job, ())
        said = job.ask("stack", "--json", str(parent))
        two = f"{found[0]}, {found[1]}"
        assert f"{parent} is waiting, and {two} below it may do the work: choose one of those\n" in said
        assert [one["pid"] for one in json.loads(said[said.index("{") :])["processes"]] == [parent]


PROCESS = "/usr/lib/python3.11/multiprocessing/process.py"
JOINS = [
    (("poll", "/usr/lib/python3.11/multiprocessing/popen_fork.py"), ("join", PROCESS)),
    (("wait", "/x/multiprocessing/connection.py"), ("ProcessContext.join", "/x/torch/multiprocessing/spawn.py")),
    (("Popen._wait", "/usr/lib/python3.11/subprocess.py"), ("main", "/home/u/all.py")),
]
WAITS = [
    (("poll", "/x/popen_fork.py"), ("join", PROCESS), ("_shutdown_workers", "/x/torch/utils/data/dataloader.py")),
    (("Connection.recv", "/x/multiprocessing/connection.py"), ("main", "/home/u/rl.py")),
    (("Thread.join", "/x/threading.py"), ("main", "/home/u/train.py")),
    (("join", "/home/u/process.py"),),
    (),
]


@pytest.mark.parametrize(("stack", "waits"), [*((one, True) for one in JOINS), *((one, False) for one in WAITS)])
def test_a_parent_that_joins_is_told_from_one_that_waits_for_data(
    stack: tuple[tuple[str, str], ...], waits: bool
) -> None:
    assert waits_for_children([Call(name=name, file=file, line=1) for name, file in stack]) is waits
