"""The details of an open process when things go wrong: reads that hang, pids used again, processes nobody sees."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from gputop.collect.details.inspector import Inspector
from gputop.model import PARTS, Identity, Missing, Process
from gputop.source import DetailWish
from tests.details_proc import STARTED, OpenProc, why
from tests.fakeproc import until


@pytest.fixture
def proc(tmp_path: Path) -> OpenProc:
    return OpenProc(tmp_path)


def test_what_is_not_read_yet_is_stale_and_nothing_is_waited_for(proc: OpenProc) -> None:
    identity = proc.whole(42)
    os.mkfifo(proc.proc / "42/environ.pipe")
    (proc.proc / "42/environ").unlink()
    (proc.proc / "42/environ.pipe").rename(proc.proc / "42/environ")
    first = proc.inspector.inspect(identity, DetailWish(parts=("environment",)))
    assert not isinstance(first, Missing)
    assert (first.environment, why(first)) == (None, {"environment": ("stale", None)})


@pytest.mark.parametrize("part", ["environ", "smaps_rollup", "limits", "io", "oom_score"])
def test_p08_a_file_that_never_answers_costs_its_own_part_alone(proc: OpenProc, part: str) -> None:
    identity = proc.whole(42)
    (proc.proc / f"42/{part}").unlink()
    os.mkfifo(proc.proc / f"42/{part}")
    lost = {"environ": "environment", "smaps_rollup": "memory", "oom_score": "overview"}.get(part, part)

    def rest() -> bool:
        detail = proc.inspector.inspect(identity)
        return not isinstance(detail, Missing) and set(why(detail)) == {lost}

    until(rest)
    proc.now_s += 3.0

    def again() -> bool:
        detail = proc.inspector.inspect(identity)
        known = not isinstance(detail, Missing) and (detail.threads or ())[0].cpu_percent is not None
        return known and set(why(detail)) == {lost}  # another read may have been under way when the clock went on

    until(again)
    detail = proc.inspector.inspect(identity)
    assert not isinstance(detail, Missing)
    assert why(detail) == {lost: ("lost", None)}
    assert {name for name in PARTS if getattr(detail, name) is None} == {lost}
    (thread,) = detail.threads or ()
    assert thread.cpu_percent is not None


def test_p08_a_process_that_hangs_is_not_given_another_thread_when_it_is_opened_again(proc: OpenProc) -> None:
    identity = proc.whole(42)
    (proc.proc / "42/environ").unlink()
    os.mkfifo(proc.proc / "42/environ")
    other, before = proc.whole(43), environments()
    for _ in range(5):
        proc.inspector.inspect(identity, DetailWish(parts=("environment",)))
        proc.inspector.inspect(other, DetailWish(parts=("limits",)))
        proc.now_s += 100.0
    assert environments() - before == 1


def environments() -> int:
    """Threads that read an environment."""
    return sum(thread.name == "environment" for thread in threading.enumerate())


def test_p06_a_pid_that_is_another_processs_now_is_refused(proc: OpenProc) -> None:
    identity = proc.whole(42)
    assert proc.detail(identity).limits
    proc.add(42, "other", started=STARTED + 1)
    proc.now_s += 1.0
    proc.inspector.inspect(identity)
    assert proc.inspector.settled(time.monotonic() + 10)
    assert proc.inspector.inspect(identity) == Missing(metric="details", reason="lost")
    assert proc.detail(Identity(42, STARTED + 1)).limits


def test_a_process_that_is_not_there(proc: OpenProc) -> None:
    identity = Identity(4711, 1)
    proc.inspector.inspect(identity)
    assert proc.inspector.settled(time.monotonic() + 10)
    assert proc.inspector.inspect(identity) == Missing(metric="details", reason="lost")


@pytest.mark.parametrize(
    ("unseen", "reason", "word"),
    [("foreign", "denied", "--pid=host"), ("hidden", "denied", "sudo"), ("exited", "lost", "")],
)
def test_a_process_only_the_driver_knows_has_no_details(unseen: str, reason: str, word: str) -> None:
    only = Process(pid=7, started_ticks=0, unseen=unseen)  # type: ignore[arg-type]
    missing = Inspector(lambda: [only], uid=1001).inspect(Identity(7, 0))
    assert isinstance(missing, Missing)
    assert (missing.metric, missing.reason) == ("details", reason)
    assert word in (missing.unlock or "")


def test_what_nobody_asks_for_any_more_is_closed(proc: OpenProc) -> None:
    identities = [proc.whole(pid) for pid in range(42, 62)]
    for identity in identities:
        proc.detail(identity, DetailWish(parts=("limits",)))
    assert len(proc.inspector._open) == 8
    proc.detail(identities[0], DetailWish(parts=("limits",)), after_s=31.0)
    assert list(proc.inspector._open) == [identities[0]]


@pytest.mark.parametrize("how", ["zombie", "of the kernel"])
def test_p04_a_process_without_memory_has_neither_memory_nor_environment(proc: OpenProc, how: str) -> None:
    identity = proc.whole(42, b"")
    path = proc.proc / "42/stat"
    new = (
        path.read_text().replace(" S ", " Z ")
        if how == "zombie"
        else path.read_text().replace(" 4194304 ", " 2129984 ")
    )
    path.write_text(new)
    status = (proc.proc / "42/status").read_text().splitlines()
    proc.write("42/status", "\n".join(row for row in status if not row.startswith("Vm")) + "\n")
    detail = proc.detail(identity)
    assert why(detail) == {"environment": ("absent", None), "memory": ("absent", None)}


def test_children_are_stale_until_the_list_of_processes_is_there(proc: OpenProc) -> None:
    identity = proc.whole(42)
    known = proc.processes.pop()
    assert why(proc.detail(identity)) == {"children": ("stale", None)}
    proc.processes.append(known)
    assert proc.detail(identity, after_s=1.0).children == ()


def test_a_file_that_cannot_be_opened_now_is_not_the_end_of_a_process(proc: OpenProc) -> None:
    identity = proc.whole(42)
    (proc.proc / "42/limits").unlink()
    (proc.proc / "42/limits").symlink_to("limits")  # ELOOP: neither gone nor denied
    assert why(proc.detail(identity)) == {"limits": ("lost", None)}
