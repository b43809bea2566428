"""What a DataLoader is advised to be told, less what it is known to have been told."""

from __future__ import annotations

import math

from gputop.diagnose.finding import Step
from gputop.diagnose.room import idle_cpus, share_of_cpus
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View

_MOST = 8


def pins(trainer: Trainer) -> bool:
    """Whether it is seen to copy batches to pinned memory; who has no such thread may hide it, or call it otherwise."""
    return any(name == "pt_data_pin" for name, _ in trainer.process.thread_names)


def settings(trainer: Trainer) -> str:
    """What helps beside the number of loaders."""
    return "persistent_workers=True" if pins(trainer) else "pin_memory=True, persistent_workers=True"


def aside(view: View, trainer: Trainer, text: str, *, more: str = "") -> Step:
    """To load in processes of their own, where there are CPUs for them; `more`: what else the DataLoader is told."""
    loaders = first_loaders(view, trainer)
    if not loaders:
        return Step(text="no CPU is idle for loaders: give the job more CPUs, or do less for each sample")
    return Step(text=text, command=f"DataLoader(..., num_workers={loaders}{more})")


def first_loaders(view: View, trainer: Trainer) -> int:
    """How many to begin with where there are none: no more than CPUs are idle, none where that is not half of one."""
    spare = idle_cpus(view, trainer)
    if spare is not None and spare < view.limit("starved-cpu-idle.spare"):
        return 0
    return max(1, math.floor(min(_MOST, share_of_cpus(view, trainer) / 2, math.inf if spare is None else spare)))
