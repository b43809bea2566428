"""One writer per `--format`."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from gputop.export import codec, diagnosis, text
from gputop.export.format import Format, Write, redacted
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


def cell(value: str) -> str:
    """A text that a spreadsheet does not take for a formula."""
    return f"'{value}" if value.startswith(_FORMULA) else value


FIELDS: dict[str, Callable[[Gpu], str]] = {
    "index": lambda gpu: cell(gpu.index),
    "name": lambda gpu: cell(gpu.name),
    "utilization.gpu": lambda gpu: _whole(gpu.busy_percent),
    "utilization.memory": lambda gpu: _whole(gpu.memory_busy_percent),
    "memory.used": lambda gpu: _mib(gpu.vram_used_bytes),
    "memory.total": lambda gpu: _mib(gpu.vram_total_bytes),
    "temperature.gpu": lambda gpu: _whole(gpu.temperature_celsius),
    "power.draw": lambda gpu: _watts(gpu.power_watts),
}


def rows(out: TextIO, *, ascii: bool = False) -> Write:
    """A header, then a row per GPU and update: percent, MiB, degrees Celsius, watts, without units."""
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


def snapshot(update: Update) -> dict[str, Any]:
    """The object printed by `gputop --json`."""
    return {
        "version": codec.VERSION,
        "frame": codec.encode(redacted(update.frame)),
        "findings": [diagnosis.finding(found, update.frame) for found in update.findings],
        "abstained": [diagnosis.abstained(silent, update.frame) for silent in update.abstained],
        "jobs": [diagnosis.job(one, update.frame) for one in update.jobs],
        "host_state": diagnosis.host(update.host),
    }


def objects(out: TextIO, *, ascii: bool = False) -> Write:  # noqa: ARG001
    """Each update as one object on one line; always ASCII."""

    def write(update: Update) -> None:
        out.write(codec.dumps(snapshot(update)) + "\n")

    return write


def lines(out: TextIO, *, ascii: bool = False) -> Write:  # noqa: ARG001
    """A header, then one line per frame: the format of recordings and streams."""
    begun = False

    def write(update: Update) -> None:
        nonlocal begun
        if not begun:
            out.write(codec.line(codec.header(update.frame.hostname)))
            begun = True
        out.write(codec.line(codec.frame_line(redacted(update.frame))))

    return write


FORMATS: Mapping[str, Format] = {"text": text.table, "json": objects, "jsonl": lines, "csv": rows}
