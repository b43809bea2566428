"""The files tab: where the result lies, what opens each file, and what was taken of the same before."""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Sequence

from gputop import units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.profile.store import COLLAPSED, FLAME, META, SPEEDSCOPE, StoredProfile
from gputop.safe.text import clean
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run
from gputop.ui.widgets.tabs import Body, ListTab, text_entry

_HINTS = {
    SPEEDSCOPE: "for https://www.speedscope.app (local, no upload)",
    FLAME: "a flame graph for any browser",
    COLLAPSED: "collapsed stacks: gputop explain, inferno",
    META: "what it is about",
}
_PERFETTO = "for https://ui.perfetto.dev (local, no upload)"
_NAME = 22  # cells; with the longest hint just what a terminal of 80 has
_FIRST = (SPEEDSCOPE, FLAME, COLLAPSED)


@frozen_dataclass(frozen=True, slots=True)
class ResultFile:
    """A file of a result."""

    path: str
    size_bytes: int | None

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.rpartition("/")[2]

    @property
    def hint(self) -> str:
        """What opens it."""
        return _HINTS.get(self.name, _PERFETTO if ".json" in self.name else "")


def ordered(files: Sequence[ResultFile]) -> list[ResultFile]:
    """What one opens first, first."""
    places = {name: place for place, name in enumerate(_FIRST)}
    return sorted(files, key=lambda file: (file.name == META, places.get(file.name, len(places)), file.name))


def scp(path: str, host: str, user: str = "") -> str:
    """The command that brings a file to the machine one sits at."""
    return f"scp {shlex.quote(f'{user}@{host}:{path}' if user else f'{host}:{path}')} ."


class Files(ListTab):
    """Files first, then older ones of the same command; the keys are about the one under the cursor."""

    id, title = "files", "Files"
    takes = "Open"
    keys = ListTab.keys | {"take"}
    terms = ("speedscope", "collapsed stacks", "Perfetto")

    def __init__(self, files: Sequence[ResultFile], older: Sequence[StoredProfile], mine: StoredProfile | None) -> None:
        self.files, self.older, self.mine = ordered(files), older, mine

    @property
    def file(self) -> ResultFile | None:
        """The one under the cursor; the first where that is none."""
        selected = self.selected
        found = (file for file in self.files if file.path == selected)
        return next(found, self.files[0] if self.files else None)

    @property
    def chosen(self) -> StoredProfile | None:
        """The older one under the cursor."""
        return next((kept for kept in self.older if ("older", kept.name) == self.selected), None)

    def body(self, width: int, look: Look) -> Body:
        """A line for each; where they lie in its facts."""
        entries = [text_entry(file.path, _file(file), width, look) for file in self.files]
        if not self.files:
            entries = [text_entry("none", [Run("nothing saved", "dim")], width, look)]
        place: Hashable = ("title",)
        entries.append(text_entry(("blank",), [Run("")], width, look))
        text = (
            "earlier profiles of this process and of the same command"
            if self.older
            else "no earlier profile of this command"
        )
        entries.append(text_entry(place, [Run(text, "dim")], width, look))
        for kept in self.older:
            same = self.mine is not None and (kept.pid, kept.started_ticks) == (self.mine.pid, self.mine.started_ticks)
            mark = "this process" if same else "same command"
            runs = [
                Run(drawing.fit(clean(kept.title, 200), max(20, width - 18), more=look.glyphs.more)),
                Run(f"  {mark}", "dim"),
            ]
            entries.append(text_entry(("older", kept.name), runs, width, look))
        where = self.mine.path if self.mine else ""
        return Body(entries, [], drawing.tail(where, max(10, width // 2), look.glyphs.more))


def _file(file: ResultFile) -> list[Run]:
    size = "" if file.size_bytes is None else f"{units.size(file.size_bytes)}B"
    return [Run(drawing.fit(file.name, _NAME), "text"), Run(f"{size:>8}  ", "text"), Run(file.hint, "dim")]


def summary(files: Sequence[ResultFile], look: Look) -> list[Line]:
    """The files in a line each, below another tab."""
    return [Line(look).add("  ").runs(_file(file)) for file in ordered(files) if file.name != META][:3]
