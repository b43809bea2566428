"""A rule about programs that take long to begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gputop import units
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.looking import closed, stack
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import computes, notebook, serves, trains
from gputop.diagnose.view import View
from gputop.model import Process


class Phase(NamedTuple):
    """What a program does before its first step, as far as it shows."""

    doing: str
    evidence: Evidence
    steps: Sequence[Step]


@rule(
    "slow-start",
    "Does a program take long to begin?",
    level=Level.USE,
    state="starting",
    short="START",
    confirmed_by=("compiles",),
    number="R49",
    rows=(44,),
    needs=(),
    partly=("busy_percent",),
)
def slow_start(view: View) -> Iterator[Finding]:
    """A training run that has not used its GPU since its start, and what it does instead."""
    for trainer in view.trainers(cold=True):
        fresh = _seen_from_start(view, trainer)
        age_s = trainer.process.age_s or 0.0
        at_work = trainer.warm and trainer.duty is not None
        if at_work or (view.mean(trainer, "busy_percent", whole=True) or 0.0) > 0:
            view.notes(trainer)["worked"] = True
        if view.notes(trainer).get("worked") or not fresh or age_s < view.limit("info_s"):
            continue
        if not trains(trainer) or notebook(trainer) or serves(trainer):
            continue
        without = not any(process.gpus for process in trainer.tree)
        if without and any(gpu.unlisted for gpu in view.gpus()):
            continue  # it may well be on one of these
        if without and (trainer.cores is None or computes(view, trainer)):
            continue  # it trains on the CPU, which is told elsewhere
        if not without and not view.knows(trainer, "duty"):
            continue
        severity: Severity = "warn" if age_s >= view.limit("warn_s") else "info"
        phase = _phase(view, trainer)
        waited = Evidence(
            text=f"{units.ago(age_s)} old, its GPU not used yet", value=age_s, unit="s", limit=view.limit("info_s")
        )
        yield view.found(
            trainer,
            severity,
            f"has not begun to train: {phase.doing}",
            evidence=(waited, phase.evidence),
            steps=(*phase.steps, stack(view, trainer.process, "see what its main thread does")),
            confidence=0.7,
            lost_share=None,
            onset_s=age_s,
        )


def _seen_from_start(view: View, trainer: Trainer) -> bool:
    """Whether nothing was missed: seen young, or without the thread that torch starts with the first backward pass."""
    notes, names = view.notes(trainer), [name for name, _ in trainer.process.thread_names]
    first_s = notes.setdefault("first_s", trainer.process.age_s or 0.0)
    named = any(name.startswith(("pt_nccl", "pt_tcpstore", "pt_data_pin", "cuda")) for name in names)
    backward = any(name.startswith("pt_autograd") for name in names)
    return not backward and (first_s <= view.limit("young_s") or named)


def _phase(view: View, trainer: Trainer) -> Phase:
    process, names = trainer.process, [name for name, _ in trainer.process.thread_names]
    cores = Evidence(text=f"{trainer.cores or 0:.1f} cores in use", value=trainer.cores, unit="cores")
    if trainer.compiling:
        return Phase("it compiles kernels", cores, _COMPILES)
    if view.above(trainer.read_chars, "loads_bytes_per_s") and view.below(trainer.cores, "loads_cores"):
        read, limit = trainer.read_chars or 0.0, view.limit("loads_bytes_per_s")
        reads = Evidence(text=f"reads {read / 1e6:.0f} MB/s", value=read, unit="B/s", limit=limit)
        return Phase("it loads weights or data", reads, LOADS)
    blocked = process.blocked_percent
    if view.above(blocked, "blocked_percent"):
        text, limit = f"blocked on storage at {blocked:.0f} % of looks", view.limit("blocked_percent")
        return Phase(
            "it waits for files", Evidence(text=text, value=blocked, unit="%", limit=limit), _files(view, process)
        )
    store = any(name.startswith("pt_tcpstore") for name in names)
    if (process.world_size or 1) > 1 and view.below(trainer.cores, "asleep_cores"):
        here = len(trainer.job.ranks) if trainer.job else 1
        text = f"{here} of {process.world_size} ranks {'runs' if here == 1 else 'run'} on this machine; this one sleeps"
        return Phase(
            "it waits for other ranks" if store else "it may wait for other ranks", Evidence(text=text), _RANKS
        )
    return Phase("what it does does not show", cores, ())


def _files(view: View, process: Process) -> tuple[Step, ...]:
    trace, root = f"strace -f -e trace=openat -p {process.pid}", closed(view, process)
    return (
        Step(text="thousands of small files over the network: put the Python environment on a local disk"),
        Step(text="see which files it opens", command=f"sudo {trace}" if root else trace, needs_root=root),
    )


_COMPILES = (
    Step(
        text="keep what torch.compile made for the next start", command="export TORCHINDUCTOR_CACHE_DIR=$HOME/.inductor"
    ),
    Step(text="compile extensions for the GPUs of this machine only", command="unset TORCH_CUDA_ARCH_LIST"),
)
LOADS = (
    Step(text="map weights instead of reading them: safetensors, or torch.load(..., mmap=True)"),
    Step(text="keep the checkpoint on a local disk; load it once a machine and broadcast it"),
)
_RANKS = (
    Step(text="start the ranks that are missing: WORLD_SIZE must be how many there are"),
    Step(text="MASTER_ADDR and MASTER_PORT must be the same everywhere, and reachable"),
    Step(text="let NCCL say what it waits for", command="export NCCL_DEBUG=INFO"),
)
