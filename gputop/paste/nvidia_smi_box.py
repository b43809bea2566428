"""Parse the box printed by plain `nvidia-smi` into the values of `nvidia-smi -q`, as far as present."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gputop.paste.nvidia_smi import SmiGpu, SmiProcess
from gputop.paste.nvidia_smi_advice import CUT, summarize
from gputop.paste.pasted import Pasted, TextKind, lines
from gputop.safe.text import clean

_TITLE = re.compile(r"^\|\s+NVIDIA-SMI \S+\s+Driver Version: (\S+)(?:\s+CUDA Version: (\S+))?", re.MULTILINE)
_NAME = re.compile(
    r"^\|\s+(\d{1,3})\s+(\S[^|]{0,60}?)\s+(On|Off|N/A)\s*\|\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]{4,8})\s+\S+\s*\|\s*(\S+)"
)
_STATE = re.compile(
    r"^\|\s*\S+\s+(\d{1,3}|N/A)C?\s+(P\d{1,2}|N/A)\s+(\d{1,4}|N/A)W?\s*/\s*(\d{1,4}|N/A)W?\s*\|"
    r"\s*(\d{1,8}|N/A)(?:MiB)?\s*/\s*(\d{1,8}|N/A)(?:MiB)?\s*\|\s*(\d{1,3}|N/A)%?"
)
_PROCESS = re.compile(
    r"^\|\s+(\d{1,3})\s+(?:\S+\s+\S+\s+)?(\d{1,10})\s+[CGM+]{1,3}\s+(\S[^|]{0,120}?)\s+(\d{1,8}|N/A)(?:MiB)?\s*\|"
)
_MOST_GPUS = 64
_STATES = (
    ("temperature", "gpu current temp"),
    ("performance state",),
    ("gpu power readings", "power draw"),
    ("gpu power readings", "current power limit"),
    ("fb memory usage", "used"),
    ("fb memory usage", "total"),
    ("utilization", "gpu"),
)


def looks_like(text: str) -> bool:
    """Whether it has the title of the box."""
    return _TITLE.search(text) is not None


def parse(text: str) -> tuple[dict[str, str], tuple[SmiGpu, ...]]:
    """Driver and CUDA versions, and the GPUs with their processes."""
    rows = lines(text)
    title = _TITLE.search(text)
    head = {"Driver Version": clean(title[1], 40)} if title else {}
    if title and title[2]:
        head["CUDA Version"] = clean(title[2], 40)
    programs: dict[str, list[SmiProcess]] = {}
    for line in rows:
        if (found := _PROCESS.match(line)) and not _NAME.match(line):
            used = float(found[4]) * 2**20 if found[4].isdigit() else None
            programs.setdefault(found[1], []).append(SmiProcess(int(found[2]), clean(found[3], 120), used))
    return head, tuple(_cards(rows, programs))[:_MOST_GPUS]


def _cards(rows: Sequence[str], programs: dict[str, list[SmiProcess]]) -> Iterator[SmiGpu]:
    named = None
    for line in rows:
        if found := _NAME.match(line):
            named = found
        elif named is not None and (state := _STATE.match(line)):
            values = [(path, value) for path, value in zip(_STATES, state.groups(), strict=True) if value != "N/A"]
            values += [(("product name",), clean(named[2], 80)), (("minor number",), named[1])]
            values += [(("persistence mode",), {"On": "Enabled", "Off": "Disabled"}.get(named[3], "N/A"))]
            values += [(("ecc errors", "volatile", "uncorrectable"), clean(named[5], 20))]
            yield SmiGpu(bus=named[4], values=tuple(values), programs=tuple(programs.get(named[1], ())))
            named = None


def read(text: str) -> Pasted:
    """The report on the box."""
    head, cards = parse(text)
    rows = [line.strip() for line in lines(text) if line.strip()]
    named = sum(_NAME.match(line) is not None for line in rows)
    # each part ends with a ruler: text after it does not mean the box was truncated
    inside = [line for line in rows if line.startswith(("|", "+"))]
    if inside and inside[-1].startswith("+") and named <= len(cards):
        return summarize(head, cards)
    return summarize(head, cards, whole=False).with_problems((CUT,))


KIND = TextKind("nvidia-smi", "nvidia-smi", looks_like, read)
