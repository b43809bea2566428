"""Tagged processes: bound to who they are, so that no sorting, folding or reused pid moves a tag to another."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gputop.model import Frame, Identity, Process
from gputop.ui.table.kin import below
from gputop.ui.table.row import Row


class Tags:
    """Which processes are tagged."""

    def __init__(self) -> None:
        self._tagged: set[Identity] = set()

    def __len__(self) -> int:
        return len(self._tagged)

    def __contains__(self, row: Row) -> bool:
        """Whether a line is tagged: its process, or all for whom it speaks."""
        return all(process.identity in self._tagged for process in _own(row))

    def toggle(self, row: Row) -> None:
        """Tag a line, or no longer."""
        self._set(_own(row), row not in self)

    def toggle_all(self, row: Row, only: Collection[Identity] | None = None) -> None:
        """Tag a line with everything below it, shown or not, or no longer; of all that is below it `only` these."""
        kin = below(row.process, row.frame.processes) if row.process else []
        wanted = [process for process in kin if only is None or process.identity in only]
        self._set([*_own(row), *row.members, *wanted], row not in self)

    def clear(self) -> None:
        """Tag nobody."""
        self._tagged.clear()

    def keep(self, frame: Frame) -> None:
        """Forget who has ended."""
        if self._tagged:
            self._tagged = {one for one in self._tagged if one in frame.by_identity}

    def processes(self, frame: Frame) -> list[Process]:
        """The tagged processes as they are now."""
        return [process for process in frame.processes if process.identity in self._tagged]

    def _set(self, processes: Iterable[Process], tagged: bool) -> None:
        identities = {process.identity for process in processes}
        self._tagged = self._tagged | identities if tagged else self._tagged - identities


def _own(row: Row) -> list[Process]:
    return row.members if row.process is None else [row.process]
