"""The children tab, and the pane of the loaders: what started it, what it started, and what those do now."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip

from gputop import labels, units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Identity, Process, Relative
from gputop.optional_sums import mean
from gputop.process_totals import add, io_percent
from gputop.ui.details.lines import plain, said
from gputop.ui.details.process_view import ProcessView
from gputop.ui.theme import Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Run, wrap
from gputop.ui.widgets.grid import Grid, GridColumn
from gputop.ui.widgets.tabs import Body, Entry


@frozen_dataclass(frozen=True, slots=True)
class Kin:
    """One line: a relative, and the process of the frame that it is, if that is known."""

    identity: Identity
    name: str
    relation: str
    process: Process | None = None
    file: str = units.UNKNOWN  # what it reads now

    @property
    def blocked(self) -> str:
        """What it waits for."""
        if self.process is None:
            return units.UNKNOWN
        return "-" if self.process.state == "R" else self.process.waiting_in or units.UNKNOWN

    @property
    def doing(self) -> str:
        """The file it reads; of one that reads none its command."""
        if self.file not in ("-", units.UNKNOWN) or self.process is None:
            return self.file
        return self.file if self.process.name.startswith("pt_data") else labels.line(self.process)


def _cpu(kin: Kin) -> str:
    return units.percent(kin.process.cpu_percent) if kin.process else units.UNKNOWN


def _state(kin: Kin) -> str:
    return (kin.process and kin.process.state) or units.UNKNOWN


def _read(kin: Kin) -> str:
    return units.rate(kin.process.read_bytes_per_s) if kin.process else units.UNKNOWN


def _reads(kin: Kin) -> str:
    return units.count(kin.process.read_calls_per_s) if kin.process else units.UNKNOWN


def _blocked_percent(kin: Kin) -> str:
    return units.percent(io_percent(kin.process)) if kin.process else units.UNKNOWN


KERNELS = 2  # the last pid that the kernel itself started: nothing is above it
BESIDE = 9  # cells of a rule that are neither its title nor its facts
PID: GridColumn[Kin] = GridColumn("PID", 7, lambda kin: str(kin.identity.pid))
NAME: GridColumn[Kin] = GridColumn("NAME", 15, lambda kin: kin.name, right=False)
FIGURES: tuple[GridColumn[Kin], ...] = (
    GridColumn("CPU%", 4, _cpu),
    GridColumn("ST", 2, _state, right=False, keep=6),
    GridColumn("BLOCKED ON", 21, lambda kin: kin.blocked, right=False, keep=3),
    GridColumn("IO%", 3, _blocked_percent, keep=5),
    GridColumn("READ/s", 6, _read),
    GridColumn("READS/s", 7, _reads, keep=2),
)
RELATION: GridColumn[Kin] = GridColumn("", 6, lambda kin: kin.relation, right=False, token="dim")
FILE_NOW: GridColumn[Kin] = GridColumn("FILE NOW", 24, lambda kin: kin.file, right=False, tail=True)
DOING: GridColumn[Kin] = GridColumn("FILE NOW, OR COMMAND", 20, lambda kin: kin.doing, right=False, keep=7)


def body(view: ProcessView, width: int) -> Body:
    """Parents from the outermost in, itself, its children."""
    grid = Grid((PID, RELATION, NAME, *FIGURES, DOING), width, view.look)
    mine, children = view.process, _children(view)
    kin = [*_parents(view), Kin(mine.identity, mine.name, "this", mine, _path(view.detail.file_now)), *children]

    def entry(one: Kin) -> Entry:
        token: Token = "bright" if one.relation == "this" else "dim" if one.relation == "parent" else "text"
        return Entry(one.identity, lambda on, shift: grid.line(one, on, shift, token))

    lines = [[Run(line, "dim")] for text in _unknown(view, children) for line in wrap(text, max(20, width - 4))]
    facts = f"{len(children)} {'child' if len(children) == 1 else 'children'}"
    return Body([*map(entry, kin), *plain(view, width, [[], *lines] if lines else [])], [grid.titles()], facts)


def _parents(view: ProcessView) -> list[Kin]:
    """From the outermost in: from the details; without them those of the frame."""
    overview = view.detail.overview
    if overview is None:
        return [Kin(one.identity, one.name, "parent", one) for one in reversed(view.parents)]
    return [_kin(view, one, "parent") for one in reversed(overview.parents)]


def _unknown(view: ProcessView, children: Sequence[Kin]) -> list[str]:
    """What neither the details nor the frame have, and why."""
    found, (outermost, *_) = [], [*reversed(view.parents), view.process]
    if view.detail.overview is None and outermost.pid > KERNELS:
        found.append(f"parents of {outermost.pid}: {said(view, 'overview')}")
    if view.detail.children is None and children:
        found.append(f"files of the children: {said(view, 'children')}")
    return found


def _children(view: ProcessView) -> list[Kin]:
    """Those of the frame; those that only the details know."""
    known = {process.identity: process for process in view.children}
    relatives = view.relatives
    found = [
        Kin(one, process.name, "child", process, _path_of(relatives.get(one), view)) for one, process in known.items()
    ]
    return found + [_kin(view, one, "child") for one in relatives.values() if one.identity not in known]


def _kin(view: ProcessView, one: Relative, relation: str) -> Kin:
    return Kin(one.identity, one.name, relation, view.frame.by_identity.get(one.identity), _path_of(one, view))


def _path_of(relative: Relative | None, view: ProcessView) -> str:
    hidden = any(missing.metric == "file" for missing in view.detail.missing)
    return units.UNKNOWN if relative is None or (relative.file is None and hidden) else _path(relative.file)


def _path(file: object) -> str:
    path = getattr(file, "path", None)
    return path if isinstance(path, str) else "-"


def pane(view: ProcessView, width: int, room: int) -> list[Strip]:
    """The loaders in at most `room` lines: a rule with their sums, titles, a line each, how many more there are."""
    loaders, look = view.loaders, view.look
    if not loaders or room < 3:
        return []
    identities = {one.identity for one in loaders}
    kin = [one for one in _children(view) if one.identity in identities]
    title = f"children: {labels.amount(len(loaders), 'DataLoader worker')}"
    used = f"cpu {units.percent(add(one.cpu_percent for one in loaders))}%"
    read = f"read {units.rate(add(one.read_bytes_per_s for one in loaders))}/s"
    blocked = f"{units.percent(mean(io_percent(one) for one in loaders))}%"
    facts = f"{used}  {read}  blocked on storage {blocked}"
    if len(title) + len(facts) + BESIDE > width:  # a number is not cut
        facts = f"{used}  {read}  blocked {blocked}"
    grid = Grid((PID, NAME, *FIGURES, FILE_NOW), width, look)
    shown = kin if len(kin) <= room - 2 else kin[: room - 3]
    strips = [drawing.rule(title, width, look, right=facts), grid.titles()]
    strips += [grid.line(one) for one in shown]
    if len(shown) < len(kin):
        strips.append(drawing.Line(look).add(f"{'':4}+{len(kin) - len(shown)} more, in Children", "dim").strip(width))
    return strips
