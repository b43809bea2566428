"""The command is asked, too: of a recording it must say what the rules say here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from gputop.model import Frame
from tests.score.marks import Said
from tests.score.tools import gputop
from tests.workloads.command import Diagnosed, of_recording


def otherwise(file: Path, frames: Iterable[Frame]) -> str:
    """What `gputop diagnose` says at the end of a recording and the rules do not, or they and it does not."""
    *_, last = gputop((frame.wall_s, frame) for frame in frames)
    with tempfile.TemporaryDirectory(prefix="settings-") as home:
        return differs(of_recording(file, Path(home)), last)


def differs(told: Diagnosed, said: Said) -> str:
    """In words; empty where they agree, and the exit code fits."""
    sides = {
        "leads": (told.primary, said.primary),
        "told": (told.named, said.named),
        "warns": (told.alarms, said.alarms),
    }
    wrong = [f"{what}: {', '.join(sorted(ours ^ theirs))}" for what, (theirs, ours) in sides.items() if ours != theirs]
    if told.code != told.due_code:
        wrong.append(f"exit code {told.code} for {told.due_code}")
    return "; ".join(wrong)
