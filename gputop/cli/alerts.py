"""gputop alerts: what is configured, a test message to a receiver, and watching without a screen."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from typing import TYPE_CHECKING, Any

from gputop.cli.options import (
    FAILED,
    OK,
    USAGE,
    CliCommand,
    Failure,
    ascii_only,
    json_flag,
    positive_duration,
)
from gputop.cli.sources import close_alerts, follow, open_source
from gputop.labels import amount
from gputop.safe.text import clean, to_ascii
from gputop.suggest import unknown

if TYPE_CHECKING:
    from gputop.alerts.plan import AlertPlan
    from gputop.alerts.receiver import Receiver
    from gputop.alerts.sink import AlertSink
    from gputop.config import Settings
    from gputop.monitor import Update
    from gputop.report import Page

VERSION = 1  # of the JSON list
_LAST_S = 30.0  # for messages that are on their way at the end
_MORE_S = 5.0  # beyond the timeout of a receiver, until a test has failed
_SEE = "`gputop docs alerts` shows how"


def alerts(args: argparse.Namespace, settings: Settings) -> int:
    """List the alerts of the settings; or send a test message; or watch and send them."""
    if args.seconds is not None and not args.run:
        raise Failure("--for is the time of --run: add --run, or omit --for", USAGE)
    if args.as_json and (args.run or args.test):
        raise Failure("--json lists the alerts: omit --run and --test", USAGE)
    plan = _plan(settings)
    if args.test is not None:
        return _test(args.test, plan, settings)
    if args.run:
        return _run(args, plan, settings)
    if args.as_json:
        print(json.dumps(_as_json(plan, settings)))
    elif not plan.rules and not plan.receivers and not plan.problems:
        if settings.origin.unused:  # such as a misspelt [alertz.NAME]
            raise Failure(f"no alerts are configured, and settings are ignored; {_SEE}")
        print(f"No alerts are configured. {_SEE[0].upper()}{_SEE[1:]}.")
    else:
        from gputop.report import text

        print(text(_page(plan, settings), ascii=ascii_only(settings)), end="")
    return FAILED if plan.problems or settings.origin.unused else OK


def _plan(settings: Settings) -> AlertPlan:
    """The alerts of the settings. A file that cannot be read may have some: to say that there are none is wrong."""
    from gputop.alerts.plan import AlertPlan

    if settings.origin.trouble:
        raise Failure(f"alerts unknown: {clean(settings.origin.path or 'the settings file')} could not be used")
    return settings.alerts if isinstance(settings.alerts, AlertPlan) else AlertPlan()


def _test(name: str, plan: AlertPlan, settings: Settings) -> int:
    """Send a test message, and wait for the result."""
    from gputop.alerts.delivery import Delivery
    from gputop.alerts.message import test_message
    from gputop.alerts.terminal import NO_TERMINAL, TerminalReceiver

    if name not in plan.receivers:
        if why := next((one for one in plan.problems if one.startswith(f"receivers.{name} is not used: ")), ""):
            raise Failure(why, USAGE)
        listed = "`gputop alerts` lists them" if plan.receivers else f"none is configured; {_SEE}"
        raise Failure(unknown("receiver", name, plan.receivers, listed), USAGE)
    receiver = plan.receivers[name]
    if why := _off(receiver, settings):
        raise Failure(f"{name} is off: {why}", USAGE)
    if isinstance(receiver, TerminalReceiver) and not sys.stderr.isatty():
        raise Failure(f"{name} ({receiver.place}) was not reached: {NO_TERMINAL}")
    delivery = Delivery(receiver)
    delivery.put(test_message(name, clean(os.uname().nodename)))
    done = delivery.close(getattr(receiver, "timeout_s", 0.0) + _MORE_S)
    if not done or delivery.missed:
        raise Failure(f"{name} ({receiver.place}) was not reached: {delivery.problem or 'no answer'}")
    if isinstance(receiver, TerminalReceiver):
        sys.stderr.write("".join(receiver.sequences()))
    print(f"Test message sent to {name} ({receiver.place}).")
    return OK


def _off(receiver: Receiver, settings: Settings) -> str:
    """Why a receiver gets no messages; empty if it does."""
    from gputop.alerts import withheld

    return withheld(settings.origin.path, readonly=settings.readonly) if receiver.acts else ""


def _run(args: argparse.Namespace, plan: AlertPlan, settings: Settings) -> int:
    """Watch until the time is over, the source ends or a signal arrives; print each message."""
    from gputop.alerts import attach
    from gputop.collectives import watch
    from gputop.monitor import Monitor

    spec = getattr(args, "source", "live")
    if not plan.rules:
        place = settings.origin.path or "the settings file"
        if plan.problems:
            raise Failure("no alert can be used: `gputop alerts` lists all errors", USAGE)
        raise Failure(f"no alerts are configured: add [alerts.NAME] to {place}; {_SEE}", USAGE)
    live = spec == "live"
    source = open_source(spec, settings, pace=False)
    monitor = Monitor(source, settings.thresholds, unjudged=0 if plan.judges else math.inf)
    sink = attach(monitor, plan, settings_path=settings.origin.path, readonly=settings.readonly, rehearse=not live)
    assert sink, "there are alerts, and they are due"
    watch.follow(monitor)
    if live and sys.stderr.isatty():
        sys.stderr.write(f"gputop: watching {amount(len(plan.rules), 'alert')}; Ctrl+C ends it\n")
    code = follow(monitor, AlertLog(sink, ascii=ascii_only(settings)), args.seconds, alerts=sink)
    if missed := close_alerts(sink, _LAST_S):
        raise Failure(f"{amount(missed, 'message')} not delivered", FAILED)
    return code


class AlertLog:
    """Prints the messages of the alerts of a monitor, one line each."""

    problem: str | None = None
    missed = 0

    def __init__(self, sink: AlertSink, *, ascii: bool) -> None:
        self._sink, self._ascii, self._waited = sink, ascii, False

    def take(self, update: Update) -> None:  # noqa: ARG002 the sink has seen it
        """Print what was sent because of this update."""
        from gputop.alerts.message import local_time

        if self._sink.waits and not self._waited:
            sys.stderr.write("gputop: another gputop sends these alerts; this one takes over when that ends\n")
        self._waited = self._sink.waits
        while self._sink.sent:
            message = self._sink.sent.popleft()
            line = f"{local_time(message.sent_wall_s)}  {message.title}"
            print(to_ascii(line) if self._ascii else line, flush=True)


def _described(plan: AlertPlan) -> list[tuple[str, str]]:
    from gputop import units

    rows = []
    for rule in plan.rules:
        held = f" for {units.ago_text(rule.for_s)}" if rule.for_s else ""
        calm = f"; cool-down {units.ago_text(rule.cooldown_s)}" if rule.cooldown_s else ""
        silent = "" if rule.recovery else "; no recovery message"
        rows.append((rule.name, f"{rule.condition.words}{held}; to {', '.join(rule.send)}{calm}{silent}"))
    return rows


def _page(plan: AlertPlan, settings: Settings) -> Page:
    from gputop.report import Page, Point, ReportTable
    from gputop.safe.files import homely

    off = {name: _off(one, settings) for name, one in plan.receivers.items()}
    receivers = tuple(
        (name, f"{one.place}{f' (off: {off[name]})' if off[name] else ''}") for name, one in plan.receivers.items()
    )
    tables = [
        ReportTable("Alerts", ("alert", "condition"), tuple(_described(plan)), spoken=True),
        ReportTable("Receivers", ("receiver", "address"), receivers, spoken=True),
    ]
    return Page(
        title="Alerts",
        about=homely(clean(settings.origin.path or "")),
        heading="Errors",
        points=tuple(Point(severity="warn", text=clean(one)) for one in plan.problems),
        tables=tuple(table for table in tables if table.rows),
        notes=_notes(plan, settings),
    )


def _notes(plan: AlertPlan, settings: Settings) -> tuple[str, ...]:
    """Whether others can read addresses that are secrets."""
    from gputop.alerts.webhook import Webhook
    from gputop.safe.files import read_by_others

    path = settings.origin.path
    if path is None or not any(isinstance(one, Webhook) for one in plan.receivers.values()) or not read_by_others(path):
        return ()
    return ("other users can read this file, and addresses of webhooks are secrets: run chmod 600 on it",)


def _as_json(plan: AlertPlan, settings: Settings) -> dict[str, Any]:
    return {
        "version": VERSION,
        "alerts": [
            {
                "name": rule.name,
                "condition": rule.condition.words,
                "for_s": rule.for_s,
                "cooldown_s": rule.cooldown_s,
                "recovery": rule.recovery,
                "send": list(rule.send),
            }
            for rule in plan.rules
        ],
        "receivers": [
            {"name": name, "address": one.place, "off": _off(one, settings) or None}
            for name, one in plan.receivers.items()
        ],
        "errors": [clean(one) for one in plan.problems],
    }


def _arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--run", action="store_true", help="watch without a screen, send alerts and print them")
    which.add_argument("--test", metavar="RECEIVER", help="send a test message to this receiver")
    parser.add_argument(
        "--for", dest="seconds", type=positive_duration, metavar="T", help="duration of --run (until Ctrl+C)"
    )
    json_flag(parser)


COMMANDS = (
    CliCommand(
        name="alerts",
        help="list, test or run the alerts of the settings",
        examples=(
            "gputop alerts",
            "gputop alerts --run --source demo:thermal    # on a simulated server",
        ),
        run=alerts,
        arguments=_arguments,
    ),
)
