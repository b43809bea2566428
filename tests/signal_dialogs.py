"""The signal dialog in a test's hands: rows of real processes that are pleasant to read, and what it shows."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gputop.model import Frame, Process, Role
from gputop.ui.signal import SignalDialog
from tests import headless_screens
from tests.headless_screens import Stage
from tests.real_processes import kill, row

TRAINS = ("/usr/bin/python3", "train.py", "--config", "configs/llama7b.yaml")


def trainer(pid: int, **fields: Any) -> Process:
    """The row of a real process that trains."""
    known: dict[str, Any] = {"role": Role.TRAINER, "rank": 0, "user": "alice", "age_s": 45_051.0, "command": TRAINS}
    return row(pid, **{**known, **fields})


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """A child that does nothing until it is ended."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        yield child
    finally:
        kill(child)


def named(frame: Frame) -> Frame:
    """A real job, each of it with a line to read."""
    facts: dict[Role, dict[str, Any]] = {
        Role.TRAINER: {"command": TRAINS},
        Role.LOADER: {"name": "pt_data_worker", "command": TRAINS},
        Role.LAUNCHER: {"command": ("/opt/bin/torchrun", "train.py")},
    }
    rows = [replace(p, user="alice", age_s=45_051.0, **facts[p.role]) for p in frame.processes]
    return replace(frame, processes=tuple(rows), jobs=tuple(replace(job, name="llama-7b") for job in frame.jobs))


def box(stage: Stage) -> str:
    """The dialog, with a pid that is always the same."""
    assert isinstance(stage.app.screen, SignalDialog)
    return headless_screens.box(stage).replace(str(stage.app.screen.question.handles.process.pid), "41207")


async def says(stage: Stage, text: str) -> None:
    """Wait for the last line to say something."""
    await stage.until(lambda: text in stage.lines[-1], f"{text!r} in the last line")
