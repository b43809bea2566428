"""The first line: which machine, what it is doing, and how fresh all of this is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from textual.strip import Strip

from gputop import severity, units
from gputop.fit import fit
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Host, Pressure
from gputop.severity import Levels
from gputop.ui.gpus.scene import GIB, inventory
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run

HOSTNAME_CELLS = 24
_ALWAYS = 99  # how dearly the name of the machine is kept, or of what is shown: it stays
ROOMY = 100  # narrower, pieces stand closer and GPU names are shorter
Piece = tuple[int, list[Run]]  # how dearly it is kept, and how it reads


class RecordingStatus(NamedTuple):
    """What is recorded beside the screen."""

    seconds: float
    size_bytes: int
    paused: bool  # nothing can be written now


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What the header says about the monitor itself."""

    label: str = "live"  # the source
    interval_s: float = 1.0
    frozen: bool = False
    slow_link_s: float | None = None  # the terminal is behind: drawn only this often
    replay: bool = False  # the time shown is one of the past
    stands: str = ""  # why that time does not move, where no bar of it says so
    taped: RecordingStatus | None = None
    ended: bool = False  # this frame is the last one
    readonly: bool = False  # nothing is changed from here


def header(frame: Frame, width: int, look: Look, status: Status) -> Strip:
    """The header in one line: what does not fit goes, the least important first."""
    return joined(_left(frame, width, look), fresh(frame, status, look), width, look)


def trail(hostname: str, names: Sequence[str], right: list[Piece], width: int, look: Look) -> Strip:
    """The header of a screen that shows one thing: where that is, from the outside in; at the right what it is like."""
    pieces: list[Piece] = [(20 + place, [Run("> ", "dim"), Run(name, "text")]) for place, name in enumerate(names)]
    pieces[-1] = (_ALWAYS, [Run("> ", "dim"), Run(names[-1], "bright", True)])
    if hostname:
        pieces.insert(0, (19, [Run(drawing.cut(hostname, HOSTNAME_CELLS), "bright", True)]))
    return joined(pieces, right, width, look)


def joined(left: list[Piece], right: list[Piece], width: int, look: Look) -> Strip:
    """What fits of both sides, the least important left out first."""
    gap = 2 if width >= ROOMY else 1

    def cells(piece: Piece) -> int:
        return gap + drawing.cells(piece[1])

    shown = fit([*left, *right], width - 9, cells, keep=lambda piece: piece[0], always=_ALWAYS)
    left, right = ([piece for piece in side if piece in shown] for side in (left, right))
    line = Line(look, on="raised").add(" gputop ", "busy", bold=True, reverse=True)
    for _, runs in left:
        line.add(" " * gap).runs(runs)
    line.to(width - 1 - sum(map(cells, right)))
    for _, runs in right:
        line.add(" " * gap).runs(runs)
    return line.strip(width)


def _left(frame: Frame, width: int, look: Look) -> list[Piece]:
    host = frame.host
    pieces: list[Piece] = [(_ALWAYS, [Run(drawing.cut(frame.hostname, HOSTNAME_CELLS), "bright", True)])]
    if frame.gpus:
        pieces.append((90, [Run(drawing.cut(inventory(frame.gpus, memory=width >= ROOMY), 40), "dim")]))
    if host.driver_version:
        pieces.append((10, _said("driver", host.driver_version)))
    if host.cuda_version:
        pieces.append((9, _said("CUDA", host.cuda_version)))
    cpu = _said("cpu", f"{units.percent(host.cpu_percent)}%", known=host.cpu_percent is not None)
    pieces.append((70, _alarmed(cpu, host.cpu_percent, severity.CPU, look)))
    memory = severity.share_percent(host.memory_used_bytes, host.memory_total_bytes)
    pieces.append((60, _alarmed(_memory(host), memory, severity.MEMORY, look)))
    pieces.append((40, _rates("io", ("r", host.read_bytes_per_s), ("w", host.write_bytes_per_s))))
    pieces.append((30, _rates("net", ("", _most(host.receive_bytes_per_s, host.send_bytes_per_s)))))
    stalled = _some(host.io_pressure)
    psi = _said("PSI io", units.percent(stalled), known=bool(stalled))
    pieces.append((50, _alarmed(psi, stalled, severity.PRESSURE, look)))
    if host.load:
        pieces.append((20, [*_said("load", f"{host.load[0]:.0f}"), Run(f"/{host.cpus_total or units.UNKNOWN}", "dim")]))
    return pieces


def fresh(frame: Frame, status: Status, look: Look) -> list[Piece]:
    """How fresh what is on the screen is, and what is done with it."""
    clock = time.strftime("%H:%M:%S", time.localtime(frame.wall_s))
    pieces: list[Piece] = []
    if status.slow_link_s is not None:
        pieces.append((87, [Run(f"slow link: redraw every {status.slow_link_s:.0f} s", "warn")]))
    if frame.late_s > max(1.0, status.interval_s / 2):
        pieces.append((85, [Run(f"sampled {frame.late_s:.0f} s late", "warn")]))
    if slow := frame.note("slow"):
        pieces.append((86, [Run(drawing.cut(slow.text.partition(":")[0], 32), "warn")]))
    if status.taped:
        pieces.append((91, _taped(status.taped, look)))
    if status.readonly:
        pieces.append((89, [Run("read-only", "bright")]))
    if status.frozen:
        pieces.append((93, [Run(" frozen ", "bright", True, True)]))
    if status.ended:
        pieces.append((94, [Run(" ended ", "warn", True, True)]))
    if status.replay:
        stands = [Run(f" {status.stands}", "bright", True)] if status.stands else []
        pieces.append((95, [Run(" REPLAY ", "memory", True, True), *stands]))
        pieces.append((88, [Run(time.strftime("%Y-%m-%d", time.localtime(frame.wall_s)), "dim")]))
    else:
        pieces.append((80, [Run(f"{drawing.cut(status.label, 24)} {_seconds(status.interval_s)}s", "dim")]))
    pieces.append((92, [Run(clock, "bright")]))
    return pieces


def _seconds(interval_s: float) -> str:
    """With a decimal, and with two where there are two: 1.0, 0.25."""
    text = f"{interval_s:.2f}"
    return text.removesuffix("0")


def _taped(taped: RecordingStatus, look: Look) -> list[Run]:
    if taped.paused:
        return [Run(f"{look.glyphs.record} rec paused", "warn", True)]
    extent = f" {units.ago(taped.seconds).split()[0]} {units.size(taped.size_bytes)}"
    return [Run(f"{look.glyphs.record} rec", "bright", True), Run(extent, "dim")]


def _said(label: str, value: str, *, known: bool = True) -> list[Run]:
    return [Run(f"{label} ", "dim"), Run(value if known else value.rstrip("%"), "bright" if known else "dim")]


def _alarmed(runs: list[Run], value: float | None, levels: Levels, look: Look) -> list[Run]:
    """A label and its value, the value with a sign and a colour where the machine is short of it."""
    label, said, *rest = runs
    return [label, *drawing.alarmed(said.text, value, levels, look, said.token), *rest]


def _memory(host: Host) -> list[Run]:
    if host.memory_used_bytes is None or host.memory_total_bytes is None:
        return _said("mem", units.UNKNOWN, known=False)
    used, total = host.memory_used_bytes / GIB, host.memory_total_bytes / GIB
    digits = 1 if total < 100 else 0
    return [*_said("mem", f"{used:.{digits}f}"), Run(f"/{total:.0f}G", "dim")]


def _rates(label: str, *rates: tuple[str, float | None]) -> list[Run]:
    text = " ".join(f"{sign}{units.rate(value)}" for sign, value in rates)
    return _said(label, text, known=any(value and value >= 1024 for _, value in rates))


def _most(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _some(pressure: Pressure | None) -> float | None:
    return pressure.some_percent if pressure else None
