"""What a DataLoader is advised to be told, less what it is known to have been told."""

from __future__ import annotations

from gputop import num_workers
from gputop.diagnose.finding import Step
from gputop.diagnose.room import idle_cpus, share_of_cpus
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import torchlike
from gputop.diagnose.view import View

# how other frameworks load beside the training, {} processes where they ask for a number; the first that is mapped
_OTHERS = {
    "tensorflow": "dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)",
    "jax": "grain.DataLoader(..., worker_count={})",
}


def pins(trainer: Trainer) -> bool:
    """Whether it is seen to copy batches to pinned memory; who has no such thread may hide it, or call it otherwise."""
    return any(name == "pt_data_pin" for name, _ in trainer.process.thread_names)


def settings(trainer: Trainer) -> str:
    """What helps beside the number of loaders."""
    return "persistent_workers=True" if pins(trainer) else "pin_memory=True, persistent_workers=True"


def aside(view: View, trainer: Trainer, text: str, *, more: str = "") -> Step:
    """To load in processes of their own, where there are CPUs for them; `more`: what else a DataLoader is told."""
    loaders = first_loaders(view, trainer)
    if not loaders:
        return Step(text="no CPU is idle for loaders: give the job more CPUs, or do less for each sample")
    if torchlike(trainer):
        return Step(text=text, command=f"DataLoader(..., num_workers={loaders}{more})")
    command = next((_OTHERS[name] for name in _OTHERS if name in trainer.process.libraries), None)
    return Step(text=text, command=command and command.format(loaders))


def first_loaders(view: View, trainer: Trainer) -> int:
    """How many to begin with where there are none: no more than CPUs are idle, none where that is not half of one."""
    return num_workers.first(share_of_cpus(view, trainer), idle_cpus(view, trainer))
