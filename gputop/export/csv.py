"""GPUs as comma-separated values, under the names that `nvidia-smi --query-gpu` gives them."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import TextIO

from gputop.export.format import Write
from gputop.model import Gpu
from gputop.monitor import Update
from gputop.safe.text import to_ascii

UNKNOWN = "[N/A]"
_MIB = 1024**2
_FORMULA = ("=", "+", "-", "@")


def _whole(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def _mib(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value / _MIB:.0f}"


def _watts(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def text(value: str) -> str:
    """A text that a spreadsheet does not take for a formula."""
    return f"'{value}" if value.startswith(_FORMULA) else value


FIELDS: dict[str, Callable[[Gpu], str]] = {
    "index": lambda gpu: text(gpu.index),
    "name": lambda gpu: text(gpu.name),
    "utilization.gpu": lambda gpu: _whole(gpu.busy_percent),
    "utilization.memory": lambda gpu: _whole(gpu.memory_busy_percent),
    "memory.used": lambda gpu: _mib(gpu.vram_used_bytes),
    "memory.total": lambda gpu: _mib(gpu.vram_total_bytes),
    "temperature.gpu": lambda gpu: _whole(gpu.temperature_celsius),
    "power.draw": lambda gpu: _watts(gpu.power_watts),
}


def rows(out: TextIO, *, ascii: bool = False) -> Write:
    """The names once, then a row for each GPU of each update: percent, MiB, degrees Celsius, watts, without units."""
    writer = csv.writer(out, lineterminator="\n")
    begun = False

    def write(update: Update) -> None:
        nonlocal begun
        if not begun:
            writer.writerow(FIELDS)
            begun = True
        for gpu in update.frame.gpus:
            if gpu.parent_uuid:
                continue  # nvidia-smi lists cards, not MIG instances
            values = [value(gpu) for value in FIELDS.values()]
            writer.writerow([to_ascii(value) for value in values] if ascii else values)

    return write
