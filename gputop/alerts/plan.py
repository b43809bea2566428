"""The tables [alerts.NAME] and [receivers.NAME] of the settings file: what is watched, and what gets the messages."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from typing import Any, NamedTuple, TypeVar

from gputop import units
from gputop.alerts.condition import Condition, Filter, FindingCondition, MetricCondition, Test
from gputop.alerts.metric_values import MetricName, metric_names
from gputop.alerts.receiver import TIMEOUT_S, Receiver
from gputop.alerts.tracker import AlertRule
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Unit
from gputop.suggest import nearest, unknown_entry

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_MOST_ALERTS, _MOST_RECEIVERS = 64, 32
_LONGEST_S = 7 * 86400.0
_LONGEST_TIMEOUT_S = 120.0
_TESTS: tuple[Test, ...] = ("above", "below", "is")
_OF_BOTH = ("for", "cooldown", "severity", "recovery", "note", "send", "user", "job")
_KEYS = {"finding": ("rules", *_OF_BOTH), "metric": ("metric", "of", *_TESTS, *_OF_BOTH)}
_RECEIVER_KEYS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("slack", "teams"), ("type", "url", "timeout")),
    **dict.fromkeys(("ntfy", "webhook"), ("type", "url", "token", "headers", "timeout")),
    "command": ("type", "command", "timeout"),
    "mail": ("type", "to", "from", "program", "timeout"),
    "terminal": ("type", "how"),
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(i?B?)|(%)|B)?")
_STEPS = {"K": 1, "M": 2, "G": 3, "T": 4}
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")  # RFC 9110, 5.6.2
_ADDRESS = re.compile(
    r"[A-Za-z0-9._%+-]{1,64}(?:@[A-Za-z0-9.-]{1,255})?"
)  # nothing that a header or sendmail interprets
_URL = re.compile(r"[!-~]{1,2048}")  # printable ASCII without blanks
_OWN_HEADERS = ("content-length", "content-type", "host", "transfer-encoding", "connection")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class AlertPlan:
    """The alerts and receivers of the settings."""

    rules: tuple[AlertRule, ...] = ()
    receivers: Mapping[str, Receiver] = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # a text for each entry that is not used

    @property
    def judges(self) -> bool:
        """Whether an alert is on findings: then the rules must run."""
        return any(isinstance(rule.condition, FindingCondition) for rule in self.rules)

    @property
    def extended(self) -> bool:
        """Whether an alert is on a metric that is read on demand only."""
        conditions = (rule.condition for rule in self.rules)
        return any(isinstance(one, MetricCondition) and one.metric.metric.tier == "extended" for one in conditions)


class Unusable(Exception):
    """A value that cannot be used; the text follows its name."""


def parse(alerts: object, receivers: object) -> tuple[AlertPlan, list[str]]:
    """The plan of both tables, None for a missing one, and a text for each entry that is not used.

    No text repeats an address, a token or a header.
    """
    problems: list[str] = []
    made = dict(_each("receivers", receivers, _MOST_RECEIVERS, _receiver, problems))
    known = made.keys() | (receivers.keys() if isinstance(receivers, dict) else set())

    def rule(name: str, table: Mapping[str, Any], unused: list[str]) -> AlertRule:
        return _alert(name, table, made, known, unused)

    rules = [rule for _, rule in _each("alerts", alerts, _MOST_ALERTS, rule, problems)]
    return AlertPlan(rules=tuple(rules), receivers=made, problems=tuple(problems)), problems


T = TypeVar("T")


def _each(
    group: str,
    tables: object,
    most: int,
    make: Callable[[str, Mapping[str, Any], list[str]], T],
    problems: list[str],
) -> Iterable[tuple[str, T]]:
    """Name and result of each usable table of a group."""
    if tables is None:
        return
    if not isinstance(tables, dict):
        problems.append(f"{group} must be tables: [{group}.NAME]")
        return
    if len(tables) > most:
        problems.append(f"only the first {most} {group} are used")
    for name, table in list(tables.items())[:most]:
        place = f"{group}.{name[:40]}"
        if not _NAME.fullmatch(name):
            problems.append(f"{group}.{name[:40]!a}: a name is letters, digits, - and _")
        elif not isinstance(table, dict):
            problems.append(f"{place} must be a table: [{place}]")
        else:
            unused: list[str] = []
            try:
                yield name, make(name, table, unused)
            except Unusable as why:
                unused = [f"{place} is not used: {why}"]
            problems += unused


def _alert(
    name: str, table: Mapping[str, Any], receivers: Mapping[str, Receiver], known: Collection[str], unused: list[str]
) -> AlertRule:
    place = f"alerts.{name}"
    kind = "metric" if "metric" in table else "finding"
    unused += [unknown_entry("setting", key, _KEYS[kind], f"{place}.") for key in table if key not in _KEYS[kind]]
    condition, send, for_s, cooldown_s, recovery, note = _all_of(
        lambda: (_metric_condition if kind == "metric" else _finding_condition)(table),
        lambda: _send(place, table, receivers, known, unused),
        lambda: _seconds(table, "for", 60.0 if kind == "metric" else 0.0),
        lambda: _seconds(table, "cooldown", 900.0),
        lambda: _flag(table, "recovery"),
        lambda: _text(table, "note", ""),
    )
    return AlertRule(
        name=name, condition=condition, for_s=for_s, cooldown_s=cooldown_s, recovery=recovery, note=note, send=send
    )


def _all_of(*reads: Callable[[], Any]) -> list[Any]:
    """What each of them returns; Unusable with all reasons, as one at a time would take as many attempts to correct."""
    values, reasons = [], []
    for read in reads:
        try:
            values.append(read())
        except Unusable as why:
            reasons.append(str(why))
    if reasons:
        raise Unusable("; ".join(reasons))
    return values


def _send(
    place: str, table: Mapping[str, Any], receivers: Mapping[str, Receiver], known: Collection[str], unused: list[str]
) -> tuple[str, ...]:
    """The receivers of an alert that can be used, at least one."""
    send = _words(table, "send")
    if not send:
        raise Unusable("send must name at least one receiver")
    usable = tuple(each for each in send if each in receivers)
    strange = [unknown_entry("receiver", each, known) for each in send if each not in known]
    if not usable:
        raise Unusable("; ".join(strange) if strange else f"its receiver {send[0]} is not used")
    unused += [f"{place}.send: {each}" for each in strange]
    return usable


def _finding_condition(table: Mapping[str, Any]) -> Condition:
    rules, severity, only = _all_of(lambda: _rules(table), lambda: _severity(table), lambda: _filter(table))
    return FindingCondition(rules=frozenset(rules), severity=severity, only=only)


def _rules(table: Mapping[str, Any]) -> tuple[str, ...]:
    rules = _words(table, "rules")
    if rules:
        from gputop.diagnose.rules import RULES  # late: usually they are loaded after the first frame

        if unknown := [unknown_entry("rule", each, RULES) for each in rules if each not in RULES]:
            raise Unusable("; ".join(unknown))
    return rules


def _metric_condition(table: Mapping[str, Any]) -> Condition:
    (metric, of, test, limit), severity, only = _all_of(
        lambda: _comparison(table), lambda: _severity(table), lambda: _filter(table)
    )
    return MetricCondition(metric=metric, test=test, limit=limit, of=of, severity=severity, only=only)


def _comparison(table: Mapping[str, Any]) -> tuple[MetricName, MetricName | None, Test, Any]:
    """A metric, the one that it is a percentage of, the test and its limit."""
    metric, of, test = _all_of(
        lambda: _metric(table, "metric"),
        lambda: _metric(table, "of") if "of" in table else None,
        lambda: _test(table),
    )
    if of and (of.kind != metric.kind or of.metric.unit is not metric.metric.unit or not _is_number(metric)):
        raise Unusable(f"of must be a metric of {metric.kind} in the same unit")
    return metric, of, test, _limit(table[test], test, metric, percent=of is not None)


def _test(table: Mapping[str, Any]) -> Test:
    tests = [test for test in _TESTS if test in table]
    if len(tests) != 1:
        raise Unusable("a metric needs one of above, below and is")
    return tests[0]


def _metric(table: Mapping[str, Any], key: str) -> MetricName:
    name = table[key]
    names = metric_names()
    if not isinstance(name, str):
        raise Unusable(f"{key} must be a metric such as gpu.temperature_celsius")
    if name not in names:
        bare = name.rpartition(".")[2]
        near = next((each for each in names if each.endswith(f".{bare}")), None) or nearest(name, names)
        hint = f" (did you mean {near}?)" if near else "; `gputop docs alerts` says how they are named"
        raise Unusable(f"unknown metric {name[:60]!a}{hint}")
    return names[name]


def _is_number(metric: MetricName) -> bool:
    return metric.metric.unit not in (Unit.FLAG, Unit.WORD)


class _Number(NamedTuple):
    value: float
    percent: bool


def _limit(given: object, test: Test, metric: MetricName, *, percent: bool) -> Any:
    unit = metric.metric.unit
    if not _is_number(metric):
        wanted: type = bool if unit is Unit.FLAG else str
        if test != "is" or not isinstance(given, wanted):
            raise Unusable(f"{metric.name} is {'true or false' if wanted is bool else 'a word'}: use is")
        return given
    number = _number(given)
    if number is None or (number.percent and not (percent or unit is Unit.PERCENT)):
        example = "90" if percent or unit is not Unit.BYTES else '20 or "20G"'
        raise Unusable(f"{test} must be a number in {'%' if percent else unit.value or 'units'}, such as {example}")
    return number.value


def _number(given: object) -> _Number | None:
    """A number, or one with a size or a percent sign; sizes in binary units, as on the screen."""
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return _Number(given, False) if math.isfinite(given) else None
    found = _SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    return _Number(float(found[1]) * 1024 ** _STEPS.get(found[2], 0), bool(found[4])) if found else None


def _filter(table: Mapping[str, Any]) -> Filter:
    user, job = _all_of(lambda: _text(table, "user", ""), lambda: _text(table, "job", ""))
    return Filter(user=user, job=job)


def _flag(table: Mapping[str, Any], key: str) -> bool:
    given = table.get(key, True)
    if not isinstance(given, bool):
        raise Unusable(f"{key} must be true or false")
    return given


def _severity(table: Mapping[str, Any]) -> Any:
    severity = table.get("severity", "warn")
    if severity not in ("warn", "crit"):
        raise Unusable("severity must be warn or crit")
    return severity


def _seconds(table: Mapping[str, Any], key: str, otherwise: float, most: float = _LONGEST_S, least: float = 0) -> float:
    given = table.get(key, otherwise)
    try:
        seconds = units.duration(given) if isinstance(given, str) else given
    except ValueError:
        seconds = None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not least <= seconds <= most:
        raise Unusable(f"{key} must be a duration up to {units.ago(most)}, such as 60s or 5m")
    return float(seconds)


def _text(table: Mapping[str, Any], key: str, otherwise: str | None, most: int = 200) -> str:
    given = table.get(key, otherwise)
    if not isinstance(given, str) or not given.isprintable() or len(given) > most or (otherwise is None and not given):
        raise Unusable(f"{key} must be one line of text")
    return given


def _words(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A word or a list of words."""
    given = table.get(key, [])
    words = [given] if isinstance(given, str) else given
    if not isinstance(words, list) or not all(isinstance(word, str) and word.isprintable() for word in words):
        raise Unusable(f"{key} must be a list of names")
    return tuple(dict.fromkeys(words))


def _receiver(name: str, table: Mapping[str, Any], unused: list[str]) -> Receiver:
    kind = table.get("type")
    if not isinstance(kind, str) or kind not in _RECEIVER_KEYS:
        near = nearest(kind, _RECEIVER_KEYS) if isinstance(kind, str) else None
        hint = f" (did you mean {near}?)" if near else ""
        raise Unusable(f"type must be one of {', '.join(_RECEIVER_KEYS)}{hint}")
    unused += [
        unknown_entry("setting", key, _RECEIVER_KEYS[kind], f"receivers.{name}.")
        for key in table
        if key not in _RECEIVER_KEYS[kind]
    ]
    if kind == "terminal":
        return _terminal(name, table)
    make = {"command": _command, "mail": _mail}.get(kind)
    return make(name, table) if make else _webhook(name, kind, table)


def _timeout(table: Mapping[str, Any]) -> float:
    return _seconds(table, "timeout", TIMEOUT_S, _LONGEST_TIMEOUT_S, 0.1)


def _terminal(name: str, table: Mapping[str, Any]) -> Receiver:
    from gputop.alerts.terminal import WAYS, TerminalReceiver

    how = table.get("how", "bell")
    if how not in WAYS:
        raise Unusable(f"how must be {', '.join(WAYS[:-1])} or {WAYS[-1]}")
    return TerminalReceiver(name=name, how=how)


def _webhook(name: str, kind: str, table: Mapping[str, Any]) -> Receiver:
    from gputop.alerts.webhook import Webhook

    url, token, headers, timeout_s = _all_of(
        lambda: _url(table.get("url"), kind),
        lambda: _token(table),
        lambda: _headers(table.get("headers", {})),
        lambda: _timeout(table),
    )
    return Webhook(name=name, shape=kind, url=url, token=token, headers=headers, timeout_s=timeout_s)


def _url(url: object, kind: str) -> str:
    from urllib.parse import urlsplit

    if not isinstance(url, str) or not _is_address(url):
        raise Unusable("url must be an address that begins with https:// or http://")
    if "@" in urlsplit(url).netloc:
        raise Unusable("url must not contain a user or password: use token or headers")
    if kind == "ntfy" and not urlsplit(url).path.strip("/"):
        raise Unusable("url must end in the topic: https://ntfy.sh/TOPIC")
    return url


def _token(table: Mapping[str, Any]) -> str:
    token = _text(table, "token", "", 4096)
    if not token.isascii() or " " in token:
        raise Unusable("token must be one word")
    return token


def _is_address(url: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return bool(_URL.fullmatch(url)) and parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0


def _headers(given: object) -> Mapping[str, str]:
    if not isinstance(given, dict) or len(given) > 16:
        raise Unusable("headers must be a table of names and texts")
    for name, value in given.items():
        if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise Unusable(f"headers: {name[:64]!a} cannot be set")
        if not isinstance(value, str) or not value.isascii() or not value.isprintable() or len(value) > 4096:
            raise Unusable(f"headers.{name} must be one line of ASCII text")
    return given


def _command(name: str, table: Mapping[str, Any]) -> Receiver:
    from gputop.alerts.command import Command

    argv, timeout_s = _all_of(lambda: _argv(table.get("command")), lambda: _timeout(table))
    return Command(name=name, argv=argv, timeout_s=timeout_s)


def _argv(argv: object) -> tuple[str, ...]:
    from gputop.alerts.command import PLACEHOLDERS

    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) and "\0" not in word for word in argv):
        raise Unusable('command must be a list of program and arguments: ["/usr/local/bin/page", "{title}"]')
    if not argv[0].startswith("/"):
        raise Unusable("the program of command must be an absolute path")
    for word in argv:
        if re.fullmatch(r"\{\w*\}", word) and word not in PLACEHOLDERS:
            raise Unusable(f"command: {word} is none of {', '.join(PLACEHOLDERS)}")
    return tuple(argv)


def _mail(name: str, table: Mapping[str, Any]) -> Receiver:
    from gputop.alerts.mail import Mail

    (to, sender), program, timeout_s = _all_of(
        lambda: _addresses(table), lambda: _mailer(table), lambda: _timeout(table)
    )
    return Mail(name=name, to=to, sender=sender, program=program, timeout_s=timeout_s)


def _addresses(table: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    to, sender = _words(table, "to"), _text(table, "from", "")
    if not to or not all(_ADDRESS.fullmatch(each) for each in (*to, *filter(None, (sender,)))):
        raise Unusable("to and from must be mail addresses, such as ops@example.com")
    return to, sender


def _mailer(table: Mapping[str, Any]) -> str:
    program = _text(table, "program", "", 4096)
    if program and not program.startswith("/"):
        raise Unusable("program must be an absolute path")
    return program
