"""Commands for fleets: a scrape endpoint or a file for Prometheus, its rules, and a Grafana dashboard."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING

from gputop.alerts import attach
from gputop.cli.options import USAGE, CliCommand, Failure, OneLineParser, common_flags, file
from gputop.cli.sources import close_alerts, follow, open_source
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.monitor import Update
    from gputop.prometheus.collector import UpdateCollector
    from gputop.prometheus.exposition import CachedExposition
    from gputop.prometheus.server import Endpoint
    from gputop.prometheus.textfile import MetricsFile

LISTEN = "127.0.0.1:9400"
INTERVAL_S = 2.0  # as often as rules are evaluated
MOST_PROCESSES, MOST_SERIES = 10, 2000
_TOKEN_LIMIT = 4096
_INSTALL = 'install it with `pip install "gputop-tui[prometheus]"`, in a checkout with `.venv/bin/pip install {}`'


class PrometheusSink:
    """The consumer of updates: the collector, and the file if there is one."""

    def __init__(self, collector: UpdateCollector, written: MetricsFile | None) -> None:
        self._collector, self._file = collector, written

    @property
    def problem(self) -> str | None:
        """Why the file cannot be written now."""
        return self._file.problem if self._file else None

    @property
    def missed(self) -> int:
        """Number of times that the file could not be written."""
        return self._file.missed if self._file else 0

    def take(self, update: Update) -> None:
        """Pass an update on; never waits."""
        self._collector.take(update)
        if self._file:
            self._file.wake()


def export(args: argparse.Namespace, settings: Settings) -> int:
    """Run what is named after `export`."""
    run = {"prometheus": _prometheus, "grafana": _grafana, "rules": _rules}[args.target]
    return run(args, settings)


def _prometheus(args: argparse.Namespace, settings: Settings) -> int:
    """Serve or write metrics until a signal arrives."""
    from dataclasses import replace

    try:
        from gputop.prometheus.collector import UpdateCollector
        from gputop.prometheus.exposition import CachedExposition
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("prometheus_client"):
            raise
        raise Failure(f"prometheus_client is missing: {_INSTALL.format('prometheus-client')}") from None
    from gputop.collectives import watch
    from gputop.monitor import Monitor
    from gputop.prometheus.samples import ExportLimits
    from gputop.source import Interest

    if settings.readonly and args.textfile:
        raise Failure("--readonly writes no file: omit --textfile, or omit --readonly", USAGE)
    if "interval" not in settings.origin.given:
        settings = replace(settings, interval_s=INTERVAL_S)
    source = open_source(getattr(args, "source", "live"), settings)
    source.interest = Interest(extended=True)
    limits = ExportLimits(series=args.max_series, processes=args.processes, with_users=args.with_users)
    collector = UpdateCollector(lambda: source.interval_s, limits)
    exposition = CachedExposition(collector)
    written = _file(args.textfile, exposition) if args.textfile else None
    if args.listen or not written:
        _serve(args, exposition)
    monitor = Monitor(source, settings.thresholds)
    watch.follow(monitor)
    alerts = attach(monitor, settings.alerts, settings_path=settings.origin.path, readonly=settings.readonly)
    code = follow(monitor, PrometheusSink(collector, written), None, alerts=alerts)
    close_alerts(alerts)
    if written:
        written.end()
    return code


def _file(folder: str, exposition: CachedExposition) -> MetricsFile:
    from gputop.prometheus.textfile import MetricsFile
    from gputop.safe.files import Refused

    try:
        written = MetricsFile(folder, exposition.plain)
    except Refused as refused:
        raise Failure(f"{refused}; name an existing folder that you may write to") from None
    written.start()
    sys.stderr.write(f"gputop: writing {clean(written.path)}\n")
    return written


def _serve(args: argparse.Namespace, exposition: CachedExposition) -> None:
    from gputop.prometheus.server import PATH, ScrapeServer, Unavailable

    endpoint = _endpoint(args)
    try:
        server = ScrapeServer(endpoint, exposition)
    except Unavailable as unavailable:
        raise Failure(str(unavailable)) from None
    if not endpoint.is_local:
        _warn(endpoint)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a scraper that hangs up must not end us, as it ends a pipeline
    server.start()
    scheme = "https" if endpoint.tls else "http"
    sys.stderr.write(f"gputop: serving {scheme}://{clean(endpoint.shown(server.server_port))}{PATH}\n")


def _warn(endpoint: Endpoint) -> None:
    """Say what an address that others reach lets them read."""
    parts = (("TLS (--tls-cert, --tls-key)", endpoint.tls), ("a token (--token-file)", endpoint.token))
    lacks = " and ".join(what for what, there in parts if not there)
    protected = f", without {lacks}" if lacks else ""
    where = clean(endpoint.shown(endpoint.port))
    sys.stderr.write(
        f"gputop: warning: {where} can be reached from other machines{protected}: names of jobs and GPUs can be read\n"
    )


def _endpoint(args: argparse.Namespace) -> Endpoint:
    from gputop.prometheus.server import Endpoint, Unavailable, parse_endpoint, tls_context

    try:
        host, port = parse_endpoint(args.listen or LISTEN)
    except ValueError as error:
        raise Failure(f"--listen: {clean(str(error))}", USAGE) from None
    if bool(args.tls_cert) != bool(args.tls_key) or (args.tls_client_ca and not args.tls_cert):
        raise Failure("TLS needs --tls-cert and --tls-key together; --tls-client-ca is an addition to them", USAGE)
    try:
        tls = tls_context(args.tls_cert, args.tls_key, args.tls_client_ca) if args.tls_cert else None
    except Unavailable as unavailable:
        raise Failure(str(unavailable)) from None
    if args.tls_key:
        _warn_of_readers(args.tls_key, "TLS key")
    names = frozenset(name.lower() for name in args.allow_host)
    return Endpoint(
        host=host, port=port, names=names, token=token_in(args.token_file) if args.token_file else None, tls=tls
    )


def token_in(path: str, kind: str = "token") -> str:
    """The token or password in a file of ours; Failure if it is unreadable or empty."""
    from gputop.safe.files import Refused, read_settings

    try:
        data = read_settings(path, _TOKEN_LIMIT)
    except Refused as refused:
        raise Failure(str(refused)) from None
    token = (data or b"").decode("ascii", "replace").strip()
    if not token.isprintable() or not token.isascii() or not token:
        raise Failure(f"{clean(path)} has no {kind}: write one line of ASCII characters into it")
    _warn_of_readers(path, kind)
    return token


def _warn_of_readers(path: str, kind: str) -> None:
    """Say that others can read a secret.

    It is used all the same: secrets of Kubernetes are mounted so, root's and in a pod of their own.
    """
    from gputop.safe.files import read_by_others

    if read_by_others(path):
        sys.stderr.write(f"gputop: warning: other users can read the {kind} in {clean(path)}: run chmod 600 on it\n")


def _grafana(args: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """Print the dashboard."""
    from gputop.cli.options import OK
    from gputop.prometheus.dashboard import dashboard

    print(dashboard())
    return OK


def _rules(args: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """Print the recording and alert rules."""
    from gputop.cli.options import OK
    from gputop.prometheus.rules import rule_file

    print(rule_file(), end="")
    return OK


_TARGETS = {
    "prometheus": "serve metrics for Prometheus, or write them to a file",
    "grafana": "print a Grafana dashboard as JSON",
    "rules": "print recording and alert rules for Prometheus as YAML",
}


def _arguments(parser: argparse.ArgumentParser) -> None:
    if isinstance(parser, OneLineParser):
        parser.task_groups = {"targets": tuple(_TARGETS)}
    targets = parser.add_subparsers(dest="target", metavar="TARGET", required=True, parser_class=OneLineParser)
    for name, text in _TARGETS.items():
        flags = common_flags(f"{INTERVAL_S:g}")
        inner = targets.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", parents=[flags])
        if name == "prometheus":
            _prometheus_arguments(inner)


def _prometheus_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help=f"address of the scrape endpoint ({LISTEN}; none with --textfile alone)",
    )
    file(parser, "--textfile", metavar="DIR", help="write gputop.prom there, for node_exporter's textfile collector")
    parser.add_argument(
        "--processes",
        type=_count,
        metavar="N",
        default=MOST_PROCESSES,
        help=f"number of processes to export, by GPU memory ({MOST_PROCESSES})",
    )
    parser.add_argument(
        "--max-series", type=_count, metavar="N", default=MOST_SERIES, help=f"limit of all series ({MOST_SERIES})"
    )
    parser.add_argument("--with-users", action="store_true", help="add user names to jobs and processes")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="further name that scrapers may use for this machine; may be repeated",
    )
    file(parser, "--tls-cert", metavar="FILE", help="certificate for HTTPS, in PEM format")
    file(parser, "--tls-key", metavar="FILE", help="its private key")
    file(parser, "--tls-client-ca", metavar="FILE", help="accept only clients with a certificate of this authority")
    file(parser, "--token-file", metavar="FILE", help="accept only requests with the bearer token in this file")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number: use 0, 1, 2 ...")
    return int(text)


COMMANDS = (
    CliCommand(
        name="export",
        help="export metrics, rules and a dashboard for a fleet",
        examples=(
            "gputop export prometheus --listen 127.0.0.1:9400",
            "gputop export rules > gputop.rules.yml",
        ),
        run=export,
        arguments=_arguments,
        interval=f"{INTERVAL_S:g}",
    ),
)
