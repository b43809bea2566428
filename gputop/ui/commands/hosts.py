"""Keys of the overview of several hosts, and the way back to it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gputop.ui.commands.command import Command, Place

if TYPE_CHECKING:
    from gputop.ui.hosts.screen import HostsScreen
    from gputop.ui.main.screen import MainScreen

_HERE: tuple[Place, ...] = ("hosts",)


def open_host(hosts: HostsScreen) -> None:
    """Open the selected host."""
    hosts.open_selected()


def sort_beside(hosts: HostsScreen, step: int) -> None:
    """Sort by the column beside."""
    hosts.sort_beside(step)


def sort_by_finding(hosts: HostsScreen) -> None:
    """Sort by the worst finding."""
    hosts.sort("finding")


def reverse(hosts: HostsScreen) -> None:
    """Sort the other way round."""
    hosts.reverse()


def filter_hosts(hosts: HostsScreen) -> None:
    """Show only hosts that match."""
    hosts.filter_hosts()


def reconnect(hosts: HostsScreen) -> None:
    """Connect to hosts without data now."""
    hosts.reconnect()


def show_all(hosts: HostsScreen) -> None:
    """End what is said, and the filter."""
    hosts.bar.hush()
    hosts.show_all()


def to_hosts(main: MainScreen) -> None:
    """Leave the screen of one host."""
    main.to_hosts()


def _no_hosts(hosts: HostsScreen) -> str:
    return "" if hosts.list.count else "no host is shown"


def _none_lost(hosts: HostsScreen) -> str:
    lost = hosts.board.notice() or any(row.state == "lost" for row in hosts.list.every)
    return "" if lost else "every host has values"


def _again(hosts: HostsScreen) -> str:
    return hosts.board.again


def _one_host(main: MainScreen) -> str:
    return "" if main.overview else "only this host is watched"


COMMANDS = (
    Command("open-host", ("enter",), "Open", "open the host's whole screen", "HOSTS", open_host, _no_hosts, keep=90,
            on=_HERE),
    Command("filter-hosts", ("backslash", "f4", "slash"), "Filter", "show only hosts that match all words: name, "
            "user, state, finding", "HOSTS", filter_hosts, keep=80, on=_HERE),
    Command("sort-hosts-previous", ("comma",), "Column left", "sort by the column to the left", "HOSTS",
            partial(sort_beside, step=-1), keep=40, on=_HERE),
    Command("sort-hosts-next", ("full_stop",), "Right", "sort by the column to the right", "HOSTS",
            partial(sort_beside, step=1), keep=40, on=_HERE, joins=True),
    Command("sort-hosts", ("F",), "Worst first", "sort by the worst finding, then by GPU time lost", "HOSTS",
            sort_by_finding, keep=50, on=_HERE),
    Command("reverse-hosts", ("I",), "Reverse", "reverse the order", "HOSTS", reverse, keep=20, on=_HERE),
    Command("reconnect", ("R",), "Reconnect", "connect to hosts without data now", "HOSTS", reconnect, _none_lost,
            title_now=_again, keep=60, on=_HERE),
    Command("show-all-hosts", ("escape",), "Back", "end the filter", "HOSTS", show_all, on=_HERE),
    Command("hosts", ("backspace",), "Hosts", "back to the overview of all hosts; so does Esc", "HOSTS", to_hosts,
            _one_host, keep=98),
)  # fmt: skip
