"""What the overview shows and opens: hosts that are watched over ssh, or those of a Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from textual.strip import Strip

from gputop.hosts.overview import HostRow
from gputop.hosts.spanning import SpanningJob
from gputop.hosts.watch import Hosts, HostWatch
from gputop.ui.hosts import picture
from gputop.ui.theme import Look


class Board(Protocol):
    """The hosts of an overview."""

    again: str  # title of the key that asks hosts without data now

    @property
    def label(self) -> str:
        """What the hosts are called together: `16 hosts`."""

    @property
    def origin(self) -> str:
        """Where they come from, in the header; empty for ssh."""

    def rows(self) -> Sequence[HostRow]:
        """The newest line of each host."""

    def notice(self) -> str:
        """What is wrong with all of them in one line; empty if nothing is."""

    def waiting(self) -> str:
        """What stands in the place of the lines before there are any."""

    def remark(self) -> str:
        """Something to say once; empty if there is nothing new."""

    def wall_s(self) -> float | None:
        """The time to show; None: that of the newest update."""

    def jobs(self) -> Sequence[SpanningJob]:
        """Jobs with ranks on several hosts."""

    def details(self, row: HostRow | None, width: int, height: int, look: Look, way: str) -> list[Strip]:
        """What is known of the selected host, in at most `height` lines. `way`: the key that opens it."""

    def open(self, name: str) -> str:
        """Ask for the whole screen of a host; returns what to say of that."""

    @property
    def wanted(self) -> str:
        """The host that was asked for and has no values yet; empty if there is none."""

    def opened(self) -> HostWatch | str:
        """The host that was asked for, once, as soon as it has values; or why it has none. Empty: wait."""

    def show(self, watch: HostWatch | None) -> None:
        """The whole screen of this host is open; or of none, and what was asked for is no longer wanted."""

    def reconnect(self) -> str:
        """Ask hosts without data now; returns what to say of that."""

    def close(self) -> None:
        """End all connections; returns at once."""


class SshBoard:
    """Hosts that are all watched over ssh, whichever is open."""

    again, origin, wanted = "Reconnect", "", ""

    def __init__(self, hosts: Hosts, label: str, jobs: Callable[[], Sequence[SpanningJob]]) -> None:
        self._hosts, self.label, self.jobs = hosts, label, jobs
        self._opened: HostWatch | None = None

    def rows(self) -> Sequence[HostRow]:
        """The newest line of each host."""
        return self._hosts.rows()

    def notice(self) -> str:
        """Empty: each host has a connection, and its line says what is wrong with that."""
        return ""

    def waiting(self) -> str:
        """Empty: each host has a line from the start."""
        return ""

    def remark(self) -> str:
        """Empty."""
        return ""

    def wall_s(self) -> float | None:
        """None: an update comes every second."""
        return None

    def details(self, row: HostRow | None, width: int, height: int, look: Look, way: str) -> list[Strip]:
        """The findings of the selected host with their first step."""
        newest = self._hosts.by_name[row.name].newest if row else None
        return picture.details(row, newest, width, height, look, way)

    def open(self, name: str) -> str:
        """A host that has values is opened; of another one the reason is said."""
        watch = self._hosts.by_name[name]
        if watch.newest is None:
            return f"{name}: {watch.row().why or 'no values yet'}"
        self._opened = watch
        return ""

    def opened(self) -> HostWatch | str:
        """The host that was asked for."""
        found, self._opened = self._opened, None
        return found or ""

    def show(self, watch: HostWatch | None) -> None:
        """All frames of the open one are made, of the others fewer."""
        self._hosts.open(watch)

    def reconnect(self) -> str:
        """Connect to hosts without data now."""
        self._hosts.reconnect()
        return "connecting"

    def close(self) -> None:
        """End all connections; returns at once."""
        self._hosts.close()
