"""Several hosts by way of ssh: the overview on the screen, or printed once."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from gputop.cli.options import FAILED, OK, USAGE, Failure, ascii_only

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.hosts.watch import Hosts

_PATIENCE_S = 20.0  # for the first values of the slowest host
_LOOK_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that name hosts."""
    group = parser.add_argument_group("several hosts")
    group.add_argument(
        "--host", action="append", default=[], metavar="NAME",
        help="monitor this host by ssh; repeat it, or use a range node[01-16] or a group of the settings",
    )  # fmt: skip
    group.add_argument("--hosts-from", choices=("slurm",), help="monitor the nodes of your running Slurm jobs")
    group.add_argument(
        "--agentless", action="store_true",
        help="for hosts without gputop: read nvidia-smi and /proc only, with fewer findings",
    )  # fmt: skip


def asked(args: argparse.Namespace) -> bool:
    """Whether the command line names hosts; Failure if it only says how to read them."""
    named = bool(args.host or args.hosts_from)
    if args.agentless and not named:
        raise Failure("--agentless needs hosts: add --host NAME or --hosts-from slurm", USAGE)
    return named


def show(args: argparse.Namespace, settings: Settings, prepare: Callable[[], None]) -> int:
    """The overview on the screen; `prepare` refuses what is no terminal."""
    names = _names(args, settings)
    prepare()
    from gputop.ui.hosts.app import show as show_hosts

    show_hosts(_hosts(names, settings, agentless=args.agentless), _label(args, names), settings)


def print_once(args: argparse.Namespace, settings: Settings) -> int:
    """Print one line per host and exit: 1 if no host answered."""
    from gputop.hosts.text import as_json, as_text

    hosts = _hosts(_names(args, settings), settings, agentless=args.agentless)
    hosts.start()
    _wait(hosts, settings.interval_s)
    rows = hosts.rows()
    hosts.close()
    if args.json:
        sys.stdout.write(as_json(rows, time.time()))
    else:
        sys.stdout.write(as_text(rows, ascii=ascii_only(settings)))
    return OK if any(row.state in ("live", "stale") for row in rows) else FAILED


def _wait(hosts: Hosts, interval_s: float) -> None:
    """Wait until every host has values or has failed; a rate needs two samples."""
    until_s = time.monotonic() + _PATIENCE_S + 2 * interval_s
    while time.monotonic() < until_s and not all(watch.settled for watch in hosts.watches):
        time.sleep(_LOOK_S)


def _names(args: argparse.Namespace, settings: Settings) -> list[str]:
    from gputop.hosts import names

    if getattr(args, "source", None):
        raise Failure("--source and --host exclude each other: a host is a source", USAGE)
    try:
        given = [*args.host, *(names.of_slurm() if args.hosts_from else ())]
        return names.chosen(given, dict(settings.hosts))
    except names.NoHosts as error:
        raise Failure(str(error), USAGE) from None


def _hosts(names: Sequence[str], settings: Settings, *, agentless: bool) -> Hosts:
    from gputop.hosts.agentless import agentless_host
    from gputop.hosts.source import RemoteHost, recorder
    from gputop.hosts.watch import Hosts, HostWatch

    interval_s, turn = settings.interval_s, Lock()
    if agentless:
        sources = [agentless_host(name, interval_s, turn) for name in names]
    else:
        sources = [RemoteHost(name, recorder(name, interval_s), interval_s=interval_s, turn=turn) for name in names]
    return Hosts([HostWatch(source, settings.thresholds) for source in sources])


def _label(args: argparse.Namespace, names: Sequence[str]) -> str:
    count = f"{len(names)} hosts" if len(names) > 1 else "1 host"
    return f"{count} from Slurm" if args.hosts_from and not args.host else count
