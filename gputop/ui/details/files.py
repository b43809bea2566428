"""The files tab: every open descriptor, the one that moves first."""

from __future__ import annotations

from collections.abc import Callable

from gputop import units
from gputop.labels import amount
from gputop.model import File
from gputop.ui.details.lines import without
from gputop.ui.details.process_view import ProcessView
from gputop.ui.theme import Token
from gputop.ui.widgets.grid import Grid, GridColumn
from gputop.ui.widgets.tabs import Body, Entry

COLUMNS: tuple[GridColumn[File], ...] = (
    GridColumn("FD", 5, lambda file: str(file.fd)),
    GridColumn("KIND", 13, lambda file: file.kind, right=False, token="dim", keep=3),
    GridColumn("MODE", 4, lambda file: file.mode or units.UNKNOWN, right=False, keep=2),
    GridColumn("OFFSET", 6, lambda file: _size(file, file.position_bytes), keep=4),
    GridColumn("SIZE", 6, lambda file: _size(file, file.size_bytes), keep=5),
    GridColumn("IO/s", 7, lambda file: _size(file, file.moved_bytes_per_s, units.rate), keep=6),
    GridColumn("PATH", 20, lambda file: f"{file.path}{' (deleted)' if file.deleted else ''}", right=False),
)


def _size(file: File, value: float | None, unit: Callable[[float | None], str] = units.size) -> str:
    return "" if value is None and file.kind != "file" else unit(value)


def body(view: ProcessView, width: int) -> Body:
    """A line for each descriptor: what is read or written now, files, the rest."""
    detail = view.detail
    if detail.files is None:
        known = view.process.open_files
        return without(view, width, "files", "" if known is None else amount(known, "descriptor"))
    grid = Grid(COLUMNS, width, view.look)

    def entry(file: File) -> Entry:
        token: Token = "bright" if file.moved_bytes_per_s else "text" if file.kind == "file" else "dim"
        rank = 2.0 if file.moved_bytes_per_s else 1.0 if file.kind == "file" else 0.0
        return Entry((file.fd, file.path), lambda on, shift: grid.line(file, on, shift, token), rank)

    count = detail.files_count or len(detail.files)
    unread = f", {count - len(detail.files)} not read" if count > len(detail.files) else ""
    return Body([entry(file) for file in detail.files], [grid.titles()], f"{amount(count, 'descriptor')}{unread}")
