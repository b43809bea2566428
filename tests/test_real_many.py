"""Ten thousand real processes: how few of their files a tick reads, and that nothing is lost among them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from gputop.collect.processes.shares import ProcessTable
from gputop.source import Interest
from tests.fakeproc import opened
from tests.watching import Watch, built, running, watch

__all__ = ["watch"]

SLEEPERS = 10_000


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[int]:
    """Sleepers, and one trainer with eight threads and two loaders, whose pid this is."""
    program = built("bench/population.c", tmp_path, "-pthread")
    with running(program, str(SLEEPERS), "1", "8", "2", stdin=PIPE) as child:
        assert child.stdout is not None
        lines = []
        while (line := child.stdout.readline().strip()) != "ready":
            if not line:
                pytest.skip(f"this machine does not start {SLEEPERS} processes")
            lines.append(line)
        yield int(lines[0])


def test_p19_ten_thousand_processes(watch: Watch, crowd: int) -> None:
    tables: list[ProcessTable] = []

    def tick(every: bool) -> int:
        time.sleep(1)
        return opened("/proc", lambda: tables.append(watch.reader.read([crowd], Interest(every_process=every))))

    first = tick(False)
    assert first >= SLEEPERS
    for _ in range(4):
        tick(False)
    counts = [tick(False) for _ in range(6)]
    assert max(counts) < SLEEPERS / 5 * 1.6, "sleepers take turns over five seconds"
    assert sum(counts) > SLEEPERS, "and everyone has one"
    every = [tick(True) for _ in range(4)]
    assert max(every) < 2500, "with all of them on screen, no more than a thousand sleepers a second"
    last = tables[-1]
    assert last.count >= SLEEPERS
    assert len(last.processes) == last.count
    trainer = next(process for process in last.processes if process.pid == crowd)
    assert (trainer.threads, trainer.read_bytes_per_s) == (8, 0.0)
    before = {process.identity: process for process in tables[-2].processes}
    same = sum(before.get(process.identity) is process for process in last.processes)
    assert same > SLEEPERS * 0.8, "who sleeps stays the same object"
