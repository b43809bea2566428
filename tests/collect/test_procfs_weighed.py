"""The names lane weighs: PSS, within its share of the time, and shared memory."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from gputop.collect.proc.metadata import ProcessMetadata
from gputop.collect.proc.metadata_lane import MetadataLane, MetadataRequest
from gputop.model import Identity
from tests.fakeproc import FakeProc, proc, until

__all__ = ["proc"]


def test_pss_is_weighed(proc: FakeProc) -> None:
    for pid in (42, 43):
        proc.add(pid)
        proc.write(
            f"{pid}/smaps_rollup",
            "5600-7ffd ---p 0 00:00 0  [rollup]\nRss:   1756 kB\nPss:     328 kB\nPss_Dirty: 1 kB\n",
        )
    wanted = [MetadataRequest(Identity(pid, 500_000), "python", weigh=True) for pid in (42, 43)]

    def weighed(pid: int) -> bool:
        proc.now_s += 0.06
        proc.names.want(wanted)
        return "pss_bytes" in proc.names.known(Identity(pid, 500_000)).values

    until(lambda: weighed(42) and weighed(43))
    assert proc.names.known(Identity(42, 500_000)).values["pss_bytes"] == 328 * 1024


def test_of_many_that_are_slow_to_weigh_none_waits_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    """72 of them, 20 ms each: with 1 % of the time that is one every two seconds."""
    now, weighed = [100.0], Counter[int]()

    def weigh(dossier: ProcessMetadata, tell: object) -> None:
        now[0] += 0.02
        weighed[dossier.identity.pid] += 1

    monkeypatch.setattr(ProcessMetadata, "weigh", weigh)
    monkeypatch.setattr(ProcessMetadata, "ask", lambda *_: None)
    names = MetadataLane(clock=lambda: now[0])
    wanted = [MetadataRequest(Identity(pid, 1), "python", weigh=True) for pid in range(1, 73)]
    while now[0] < 100 + 72 * 2 * 1.2:
        names.want(wanted)
        while not names._asks.empty():
            names._answer(names._asks.get())  # type: ignore[arg-type]
        now[0] += 1.0
    assert len(weighed) == 72
    assert sum(weighed.values()) <= 72 * 1.2 + 2  # no more than its share


def weighed(proc: FakeProc, pid: int) -> dict:
    """What the names lane says of a process after it was weighed."""

    def done() -> bool:
        proc.now_s += 0.06
        proc.names.want([MetadataRequest(Identity(pid, 500_000), "python", weigh=True, shm=True)])
        values = proc.names.known(Identity(pid, 500_000)).values
        told = {missing.metric for missing in values.get("missing", ())}
        return "shm_total_bytes" in values or "shm_total_bytes" in told

    until(done)
    return proc.names.known(Identity(pid, 500_000)).values


def test_shared_memory_is_that_of_the_process_s_own_namespace(proc: FakeProc, tmp_path: Path) -> None:
    proc.add(42)
    (proc.proc / "42/root").symlink_to("/")
    size, values = os.statvfs("/dev/shm"), weighed(proc, 42)
    assert values["shm_total_bytes"] == size.f_blocks * size.f_frsize
    assert 0 <= values["shm_used_bytes"] <= values["shm_total_bytes"]


def test_a_folder_where_shared_memory_should_be_has_no_size(proc: FakeProc) -> None:
    proc.add(42)
    (proc.proc / "42/root/dev/shm").mkdir(parents=True)
    missing = {missing.metric: missing.reason for missing in weighed(proc, 42)["missing"]}
    assert (missing["shm_total_bytes"], missing["shm_used_bytes"]) == ("absent", "absent")
