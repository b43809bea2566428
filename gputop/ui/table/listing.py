"""The table without a screen: which lines there are, where the cursor is, what every key does to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from gputop.columns import BY_ID
from gputop.model import Frame, Identity, Process
from gputop.ui.table import tree
from gputop.ui.table.kinship import below
from gputop.ui.table.row import LEVELS, Key, TableRow, depth
from gputop.ui.table.tree import TableView
from gputop.ui.widgets.cursor_list import CALM_S, CursorList


class Tags:
    """Which processes are tagged."""

    def __init__(self) -> None:
        self._tagged: set[Identity] = set()

    def __len__(self) -> int:
        return len(self._tagged)

    def __contains__(self, row: TableRow) -> bool:
        """Whether a line is tagged: its process, or all that it stands for."""
        return all(process.identity in self._tagged for process in _own(row))

    def toggle(self, row: TableRow) -> None:
        """Tag a line, or no longer."""
        self._set(_own(row), row not in self)

    def toggle_all(self, row: TableRow, only: Collection[Identity] | None = None) -> None:
        """Tag a line with everything below it, shown or not, or no longer; of all that is below it `only` these."""
        kin = below(row.process, row.frame.processes) if row.process else []
        wanted = [process for process in kin if only is None or process.identity in only]
        self._set([*_own(row), *row.members, *wanted], row not in self)

    def clear(self) -> None:
        """Remove all tags."""
        self._tagged.clear()

    def keep(self, frame: Frame) -> None:
        """Forget those that have ended."""
        if self._tagged:
            self._tagged = {one for one in self._tagged if one in frame.by_identity}

    def processes(self, frame: Frame) -> list[Process]:
        """The tagged processes as they are now."""
        return [process for process in frame.processes if process.identity in self._tagged]

    def _set(self, processes: Iterable[Process], tagged: bool) -> None:
        identities = {process.identity for process in processes}
        self._tagged = self._tagged | identities if tagged else self._tagged - identities


def _own(row: TableRow) -> list[Process]:
    return row.members if row.process is None else [row.process]


class Listing(CursorList):
    """Lines of the newest frame, with a cursor that keeps its process."""

    def __init__(self, view: TableView) -> None:
        self.view = view
        self.rows: list[TableRow] = []
        self.follow = True
        self.matching: frozenset[Identity] | None = None  # those looked for; None: all
        self.tags = Tags()
        self._frame: Frame | None = None
        self._idle: tree.Idle = lambda _: None
        self._order: tree.Order = tree.NOWHERE
        self._opened = False

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self.rows)

    @property
    def cursor(self) -> TableRow | None:
        """The selected line."""
        return self.rows[self.at] if self.rows else None

    def feed(self, frame: Frame, now_s: float, idle: tree.Idle = lambda _: None) -> None:
        """Take in a frame; lines change places only when no key was just pressed."""
        self._frame, self._idle = frame, idle
        self.tags.keep(frame)
        if self.view.gpu is not None and self.view.gpu not in frame.by_uuid:
            self.view = replace(self.view, gpu=None)
        if self.may_rank(now_s):
            self._rank(now_s)
        else:
            self._build()
            if now_s - self._touched_s >= CALM_S and self._newly_known():
                self._rank(now_s)
        if not self._opened and not self.touched and (first := tree.first_rank(self.rows)):
            self._opened = True
            self._find(first)
            self.unfold()
            self.reveal()

    def go(self, key: Key) -> bool:
        """Put the cursor on a line, unfolding what it is in; whether there is such a line: else nothing moves."""
        above = {row.key: row.parent for row in self.unfolded()}
        if key not in above:
            return False
        inside, parent = list[Key](), above.get(key)
        while parent:
            inside.append(parent)
            parent = above.get(parent)
        for opened in (inside, [("more", *inside[0])] if inside else []):
            if key not in {row.key for row in self.rows}:
                self.look(replace(self.view, folds={**self.view.folds, **dict.fromkeys(opened, True)}))
        self._find(key)
        self.reveal()
        return True

    def unfolded(self) -> list[TableRow]:
        """Every line there would be if nothing were folded, in the order they would have."""
        if self._frame is None:
            return []
        view, rows = self.view, self.rows
        while folded := [row.key for row in rows if row.open is False]:
            view = replace(view, folds={**view.folds, **dict.fromkeys(folded, True)})
            rows = tree.build(self._frame, view, self._order, True, self._idle, self.matching)
        return rows

    def fold(self) -> None:
        """Fold the cursor's line, or go to its parent when there is nothing to fold."""
        row = self.cursor
        if row and row.open and row.kind != "more":
            folds = {key: is_open for key, is_open in self.view.folds.items() if key != ("more", *row.key)}
            self.look(replace(self.view, folds={**folds, row.key: False}))
        elif row and row.parent:
            self._find(row.parent)
            self.reveal()

    def unfold(self) -> None:
        """Show what is below the cursor's line."""
        row, at = self.cursor, self.at
        if row and row.open is False:
            self.look(replace(self.view, folds={**self.view.folds, row.key: True}))
            self.at = at

    def level(self, step: int) -> None:
        """Unfold (1) or fold (-1) one level of what is to be seen; 0 unfolds everything, and again goes back."""
        view = self.view
        if step > 0:
            level = min((depth(row) for row in self.rows if row.open is False), default=view.level) + 1
        elif step < 0:
            level = max((depth(row) for row in self.rows if row.open), default=0)
            whole = view.level == LEVELS or any(key[0] == "more" and open for key, open in view.folds.items())
            level = LEVELS - 1 if whole else level
        else:
            level = 1 if view.level == LEVELS else LEVELS
        self.look(replace(view, level=min(max(0, level), LEVELS), folds={}))

    def look(self, view: TableView, now_s: float | None = None) -> None:
        """Show the same frame in another way; with a time the lines are sorted again, strictly."""
        self.view = view
        if now_s is None:
            self._build()
        else:
            self._order = tree.exact(self._order)
            self._rank(now_s)

    def _rank(self, now_s: float) -> None:
        self._ranked_s = now_s
        self._build(calm=False)

    def _newly_known(self) -> bool:
        """Whether a line has a value to sort by that had none when it was placed: rates are known from the second
        frame on."""
        column = BY_ID[self.view.sort]
        unknown = (row for row in self.rows if not row.rails and row.placed_by is None)
        return any(column.value(row.sums) is not None for row in unknown)

    def _build(self, calm: bool = True) -> None:
        if self._frame is None:
            return
        before, in_sight = self.rows, self.in_sight
        self.matching = tree.matching(self._frame, self.view)
        self.rows = tree.build(self._frame, self.view, self._order, calm, self._idle, self.matching)
        self._order = dict(tree.walk(self.rows))
        if before and self.follow:
            self._find(before[self.at].key, {row.key: row.parent for row in before})
        self.settle(in_sight)

    def _find(self, key: Key | None, parents: Mapping[Key, Key | None] | None = None) -> None:
        """Put the cursor on a line or on what it is folded into; when it has ended, leave it where it is."""
        places = {row.key: place for place, row in enumerate(self.rows)}
        while key is not None and key not in places:
            key = (parents or {}).get(key)
        if key is not None:
            self.at = places[key]
