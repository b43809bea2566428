"""What the time of a trainer goes into: compute, memory traffic, or overhead, by three numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gputop.diagnose.efficiency.chip import dram_of_top, partitioned, tensor_of_top
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View

QUESTION = "compute, memory or overhead?"


class Regime(NamedTuple):
    """Its name, None where nobody can tell, and its numbers, which are shares, by what they are of."""

    name: str | None
    numbers: Mapping[str, float]

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """The question with its answer, and the numbers in one line."""
        shares = ", ".join(f"{share:.0%}" for share in self.numbers.values())
        return (QUESTION, self.name or "not known"), (", ".join(self.numbers), shares)


def regime(view: View, trainer: Trainer) -> Regime:
    """Overhead is all time in which the GPU waits; of the rest the unit that is near its limit gives the name."""
    numbers = dict(_numbers(trainer))
    if trainer.duty is None or partitioned(trainer):
        return Regime(None, numbers)
    if trainer.duty < view.limit("starved.duty"):
        return Regime("overhead", numbers)
    return Regime(_units(view, trainer) if trainer.sm is not None else _proxies(view, trainer), numbers)


def _units(view: View, trainer: Trainer) -> str | None:
    table = "gpu-bound-healthy."
    compute = (tensor_of_top(trainer) or 0.0) >= view.limit(f"{table}compute")
    compute = compute or (trainer.fp32 or 0.0) >= view.limit(f"{table}fp32")
    memory = (dram_of_top(trainer) or 0.0) >= view.limit(f"{table}dram")
    if compute and memory:
        return "compute- and memory-bound"
    return "compute-bound" if compute else "memory-bound" if memory else None


def _proxies(view: View, trainer: Trainer) -> str | None:
    """Where a card does not tell of its units: moving data takes less power than computing."""
    power, memory = trainer.power_share, trainer.memory_busy
    if power is None or memory is None:
        return None
    if power >= view.limit("mem-bw-bound.most_power_share"):
        return "compute-bound"
    if memory >= view.limit("mem-bw-bound.memory_busy") and power >= view.limit("mem-bw-bound.power_share"):
        return "memory-bound"
    return "compute-bound" if power >= view.limit("gpu-bound-healthy.power_share") else None


def _numbers(trainer: Trainer) -> Iterator[tuple[str, float]]:
    """Arithmetic, memory traffic, and for how much of the time the GPU works beside the CPU."""
    if trainer.tensor is not None:
        yield "tensor cores", trainer.tensor
    elif trainer.power_share is not None:
        yield "power above idle", trainer.power_share
    if trainer.dram is not None:
        yield "DRAM", trainer.dram
    elif trainer.memory_busy is not None:
        yield "DRAM in use", trainer.memory_busy
    if trainer.duty is not None:
        yield "CPU-GPU overlap", trainer.duty
