"""Ten thousand real processes: how few of their files a tick reads, and that nothing is lost among them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from gputop.collect.proc.gpu_processes import ProcessTable
from gputop.source import Interest
from tests.fakeproc import opened
from tests.process_watch import Watch, built, running, watch

pytestmark = pytest.mark.alone

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
                pytest.skip(f"not covered: this machine does not start {SLEEPERS} processes")
            lines.append(line)
        yield int(lines[0])


def test_p19_ten_thousand_processes(watch: Watch, crowd: int) -> None:
    tables: list[ProcessTable] = []

    def tick(every: bool = False) -> tuple[int, float]:
        """Files opened at a look, and the seconds since the one before."""
        time.sleep(1)
        count = opened("/proc", lambda: tables.append(watch.reader.read([crowd], Interest(every_process=every))))
        return count, tables[-1].taken_s - (tables[-2].taken_s if len(tables) > 1 else 0.0)

    first, _ = tick()
    assert first >= SLEEPERS
    for _ in range(4):
        tick()
    total = passed_s = 0.0
    while passed_s < 6:
        count, after_s = tick()
        total, passed_s = total + count, passed_s + after_s
        assert count < SLEEPERS / 5 * after_s * 1.2 + 1000, "sleepers take turns over five seconds"
    assert total > SLEEPERS, "and everyone has one"
    looks = 0
    while looks < 4 or sum(process.command != () for process in tables[-1].processes) < SLEEPERS:
        looks += 1
        assert looks < 60, "what all are called is known in the end, on a busy machine late"
        count, after_s = tick(every=True)
        assert count < 1000 * after_s * 1.2 + 1000, "with all of them on screen, a thousand sleepers a second"
    _, after_s = tick(every=True)  # on a busy machine what many are called became known in the look before
    last = tables[-1]
    assert last.count >= SLEEPERS
    assert SLEEPERS <= len(last.processes) <= last.count, "some others end between the list and their turn"
    trainer = next(process for process in last.processes if process.pid == crowd)
    assert (trainer.threads, trainer.read_bytes_per_s) == (8, 0.0)
    before = {process.identity: process for process in tables[-2].processes}
    same = sum(before.get(process.identity) is process for process in last.processes)
    assert last.count - same < 1000 * after_s * 1.2 + 1000, "who sleeps and is not read stays the same object"
