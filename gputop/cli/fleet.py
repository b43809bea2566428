"""The overview of many hosts from an existing Prometheus, on the screen or printed once."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from gputop.cli.export import token_in
from gputop.cli.options import (
    FAILED,
    OK,
    USAGE,
    CliCommand,
    Failure,
    ascii_only,
    file,
    json_flag,
)
from gputop.cli.screen import prepare_screen

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.fleet.address import PrometheusAddress
    from gputop.fleet.matchers import Matcher
    from gputop.fleet.poller import Fleet

INTERVAL_S, _LEAST_INTERVAL_S = 10.0, 1.0


def fleet(args: argparse.Namespace, settings: Settings) -> int:
    """The overview on the screen, or with --once or --json printed."""
    if getattr(args, "source", None):
        raise Failure("--source and --prometheus exclude each other: Prometheus is a source", USAGE)
    made = _fleet(args)
    if args.print_once or args.as_json:
        return _print(made, args, settings)
    return _show(made, args, settings)


def _fleet(args: argparse.Namespace) -> Fleet:
    from gputop.fleet.poller import Fleet
    from gputop.fleet.promql import PrometheusClient

    interval_s = max(_LEAST_INTERVAL_S, getattr(args, "interval", INTERVAL_S))
    client, printed = PrometheusClient(_address(args)), args.print_once or args.as_json
    return Fleet(
        client, _matchers(args.match), interval_s=interval_s, ssh_name=args.ssh_name, trends=not printed
    )  # fmt: skip


def _address(args: argparse.Namespace) -> PrometheusAddress:
    from dataclasses import replace

    from gputop.fleet.address import parse

    try:
        address = parse(args.prometheus)
    except ValueError as error:
        raise Failure(f"--prometheus: {error}", USAGE) from None
    if args.token_file and (args.password_file or address.user or address.password):
        raise Failure("a token and a user exclude each other: omit --token-file, or the user", USAGE)
    if args.password_file and not address.user:
        raise Failure("--password-file needs a user: write http://USER@HOST:9090", USAGE)
    if args.token_file:
        return replace(address, token=token_in(args.token_file))
    if args.password_file:
        return replace(address, password=token_in(args.password_file, "password"))
    return address


def _matchers(given: list[str]) -> tuple[Matcher, ...]:
    from gputop.fleet.matchers import parse

    try:
        return tuple(matcher for text in given for matcher in parse(text))
    except ValueError as error:
        raise Failure(f"--match: {error}", USAGE) from None


def _print(made: Fleet, args: argparse.Namespace, settings: Settings) -> int:
    """Print one line per host and exit: 1 if no host has values."""
    from gputop.fleet.promql import Unanswered
    from gputop.hosts.text import as_json, as_text

    try:
        (*_, view) = made.poll()
    except Unanswered as error:
        raise Failure(f"Prometheus at {made.client.address.place}: {error}") from None
    rows = made.rows()
    if not rows and not args.as_json:
        raise Failure(f"{made.notice()}; `gputop docs fleet` says what is needed")
    for remark in (*made.remarks, made.notice()):
        if remark:
            sys.stderr.write(f"gputop: {remark}\n")
    if args.as_json:
        sys.stdout.write(as_json(rows, view.wall_s))
    else:
        sys.stdout.write(as_text(rows, ascii=ascii_only(settings)))
    return OK if any(row.state in ("live", "stale") for row in rows) else FAILED


def _show(made: Fleet, args: argparse.Namespace, settings: Settings) -> int:
    from dataclasses import replace
    from math import inf

    from gputop.config import BY_KEY
    from gputop.hosts.agentless import agentless_host
    from gputop.hosts.source import RemoteHost, recorder
    from gputop.monitor import Monitor
    from gputop.ui.latest_update import LatestUpdate

    prepare_screen()
    if "interval" in args:  # it is that of the polls: an opened host is sampled as always
        settings = replace(settings, interval_s=BY_KEY["interval"].default)
    monitor, latest = Monitor(made, settings.thresholds, unjudged=inf), LatestUpdate()
    monitor.start(latest.put, latest.close)
    # late: the first answer arrives while the screen is loaded
    from gputop.ui.hosts.fleet import show

    def reach(name: str) -> RemoteHost:
        if args.without_gputop:
            return agentless_host(name, settings.interval_s)
        return RemoteHost(name, recorder(name, settings.interval_s), interval_s=settings.interval_s)

    show(made, monitor, latest, reach, settings)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prometheus", required=True, metavar="URL", help="address of the Prometheus")
    parser.add_argument(
        "--match", action="append", default=[], metavar="MATCHERS",
        help="only hosts whose labels match, as in 'cluster=\"a\"'; may be repeated",
    )  # fmt: skip
    parser.add_argument("--once", dest="print_once", action="store_true", help="print one line per host and exit")
    json_flag(parser)
    file(parser, "--token-file", metavar="FILE", help="send the bearer token in this file")
    file(parser, "--password-file", metavar="FILE", help="password of the user in the address")
    parser.add_argument(
        "--ssh-name", choices=("instance", "hostname"), default="instance",
        help="what a host is called and opened by: the label instance without its port, or its host name (instance)",
    )  # fmt: skip
    parser.add_argument(
        "--agentless", dest="without_gputop", action="store_true",
        help="Enter opens a host without gputop: read nvidia-smi and /proc only",
    )  # fmt: skip


COMMANDS = (
    CliCommand(
        name="fleet",
        help="monitor many hosts from an existing Prometheus",
        examples=(
            "gputop fleet --prometheus http://prometheus:9090",
            "gputop fleet --prometheus http://prometheus:9090 --once",
        ),
        run=fleet,
        arguments=_arguments,
        interval=f"{INTERVAL_S:g}",
        screen=lambda args: not (args.print_once or args.as_json),
    ),
)
