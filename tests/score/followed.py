"""Advice that is followed: four real training scripts, started anew as the screen of a real terminal says."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fakenvml import Fake
from tests.pty_programs import Terminal
from tests.score.marks import Result
from tests.workloads.cases import CASES, Case
from tests.workloads.stage import CPUS, Play, ready, start

NAME = "threads of four experiments, started as gputop says"
THREADS = 2 * CPUS  # that each of them has at first
ADVICE = re.compile(r"export OMP_NUM_THREADS=(\d+)")
CLEARED = re.compile(r"cleared .*threads-host .*busy (\d+) -> (\d+) %")
FOUND_S, CLEARED_S, RUN_S = 90.0, 150.0, 400.0
(_CASE,) = [case for case in CASES if case.name == "threads of four experiments"]


@dataclass(frozen=True)
class Followed:
    """What the terminal said: the threads it advises, and both screens."""

    threads: int
    before: str
    after: str
    detect_s: float
    clear_s: float


def follow() -> Followed:
    """Plays it; AssertionError with the screen where something that must be said was not."""
    with tempfile.TemporaryDirectory(prefix="followed-") as name, ExitStack() as stack:
        folder = Path(name)
        fake = Fake(folder / "driver", gpus=_CASE.gpus)
        accounts = {gpu: fake.lend(gpu) for gpu in range(_CASE.gpus)}
        with ExitStack() as first:
            _train(THREADS, folder / "first", accounts, first)
            began_s = time.monotonic()
            terminal = stack.enter_context(Terminal((sys.executable, "-m", "gputop"), env=fake.env()))
            terminal.wait_for(lambda lines: bool(ADVICE.search("\n".join(lines))), FOUND_S)
            detect_s, before = time.monotonic() - began_s, terminal.text()
        threads = int(ADVICE.search(before)[1])
        began_s = time.monotonic()
        _train(threads, folder / "then", accounts, stack)
        terminal.wait_for(lambda lines: any(CLEARED.search(line) for line in lines), CLEARED_S)
        return Followed(threads, before, terminal.text(), detect_s, time.monotonic() - began_s)


def _train(threads: int, folder: Path, accounts: dict[int, Path], stack: ExitStack) -> None:
    """All four, each with this many threads."""
    folder.mkdir()
    case: Case = replace(_CASE, faulty_environment={"OMP_NUM_THREADS": str(threads)})
    ready(start(Play(case), RUN_S, folder, accounts, stack))


def played() -> Result:
    """As a row of the score."""
    try:
        seen = follow()
    except AssertionError as why:
        return Result(mark="silent", said=str(why).partition("\n")[0])
    right = seen.threads == max(1, CPUS // _CASE.copies)
    return Result(
        mark="right" if right else "wrong",
        said="" if right else f"OMP_NUM_THREADS={seen.threads}",
        detect_s=seen.detect_s,
        clear_s=seen.clear_s,
    )


if __name__ == "__main__":
    seen = follow()
    print(seen.before, seen.after, f"said after {seen.detect_s:.0f} s, over after {seen.clear_s:.0f} s", sep="\n\n")
