"""What gputop reads of each class of devices, at work and at rest: the driver is the fake, the reader the real one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gputop.export import codec
from gputop.model import Frame, Gpu, GpuShare, Unit, metrics
from gputop.model.plausible import plausible
from tests.fakenvml import WORKER, Fake, NoCompiler
from tests.fakenvml.profiles import PROFILES
from tests.nvml_child import Child, Seen
from tests.servers import HOST, NOON


@cache
def seen(name: str, idle: bool = False) -> Seen:
    """What the reader knows of a class of devices after some sweeps: every probe had its turn, rates had two looks."""
    profile = PROFILES[name]
    with tempfile.TemporaryDirectory() as folder:
        try:
            fake = Fake(Path(folder) / "driver", profile.gpus, without=profile.without)
        except NoCompiler as why:
            pytest.skip(f"not covered: {why}")
        fake.play(profile, idle=idle)
        with Child(fake, sys_root=str(profile.sysfs(Path(folder) / "sys"))) as child:
            child.sweep(11)
            child.rest_and_sweep(0.4)
            return child.rest_and_sweep(0.4)


@cache
def gpus(name: str, idle: bool = False) -> tuple[Gpu, ...]:
    """The same as parts of a frame, without what is a little different each time."""
    return tuple(_steady(codec.decode(Gpu, gpu)) for gpu in seen(name, idle).gpus)


def _steady(gpu: Gpu) -> Gpu:
    rates = [one.name for one in metrics(Gpu) if one.unit in (Unit.BYTES_PER_S, Unit.PERCENT, Unit.JOULES)]
    known = {name: value for name in rates if (value := getattr(gpu, name)) is not None}
    return replace(gpu, **{name: float(f"{value:.2g}") for name, value in known.items()}, condition_s=0.0, age_s=0.0)


def later(gpu: Gpu, t: float) -> Gpu:
    """A card that goes on as it is, t seconds later: its counters move, its buffer ends now."""
    joules = gpu.energy_joules + gpu.power_watts * t if gpu.energy_joules is not None and gpu.power_watts else None
    samples = tuple((number / 5, gpu.busy_percent) for number in range(30, -1, -1) if gpu.busy_percent is not None)
    return replace(gpu, energy_joules=joules, busy_samples=samples if gpu.busy_samples else ())


def shares(name: str) -> dict[int, tuple[GpuShare, ...]]:
    """What processes have of its GPUs, by number of the process at work."""
    said = seen(name).shares
    return {pid - WORKER: tuple(codec.decode(GpuShare, one) for one in held) for pid, held in said.items()}


def frame(cards: tuple[Gpu, ...], second: float = 60.0) -> Frame:
    """One moment of a machine with these, with what cannot be taken out of it, as every screen and rule gets it."""
    return plausible(Frame(wall_s=NOON + second, mono_s=1000 + second, hostname="node07", host=HOST, gpus=cards))


def each(test: Callable[..., None]) -> Callable[..., None]:
    """Runs a test for every class of devices."""
    return pytest.mark.parametrize("name", PROFILES)(test)
