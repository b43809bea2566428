"""All checks at once, each in a daemon thread, and the report as text and JSON."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Event, Thread

from gputop import __version__, labels
from gputop.doctor.check import GROUPS, STATUSES, Check, CheckLine, Status, checks
from gputop.doctor.machine import DoctorContext
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.text import clean, to_ascii

VERSION = 1  # of the JSON
PATIENCE_S = 6.0  # seconds for all checks together; the driver alone has half of that


@frozen_dataclass(frozen=True, slots=True)
class CheckResult:
    """A check and its lines. `failed`: the check itself is broken."""

    check: Check
    lines: tuple[CheckLine, ...]
    failed: bool = False


@frozen_dataclass(frozen=True, slots=True)
class DoctorReport:
    """Results of all checks, by group."""

    host: str
    pid: int | None
    in_container: bool
    results: tuple[CheckResult, ...]

    @property
    def failed(self) -> bool:
        """Whether a check is broken."""
        return any(result.failed for result in self.results)


class _RunningCheck:
    """One running check; its thread stores the result here."""

    def __init__(self, check: Check, machine: DoctorContext, patience_s: float) -> None:
        self._check, self._machine = check, machine
        self._patience_s = patience_s
        self._until_s = time.monotonic() + patience_s
        self._done = Event()
        self._result = CheckResult(check, ())
        Thread(target=self._run, name=f"doctor-{check.name}", daemon=True).start()

    def result(self) -> CheckResult:
        """The result, or a note that it timed out."""
        if self._done.wait(max(0.0, self._until_s - time.monotonic())):
            return self._result
        return CheckResult(self._check, (CheckLine("unknown", f"no response within {self._patience_s:g} s"),))

    def _run(self) -> None:
        try:
            lines = tuple(_cleaned(line) for line in self._check.answer(self._machine))
            self._result = CheckResult(self._check, lines)
        except PermissionError as error:
            pid = self._machine.pid
            why = self._machine.hidden("doctor", *(["--pid", str(pid)] if pid is not None else []))
            self._result = self._unknown(f"{why.text}: {error.filename or error.strerror}", why.unlock)
        except OSError as error:
            self._result = self._unknown(f"cannot be read: {error.filename}: {os.strerror(error.errno or 0)}")
        except Exception as error:  # a broken check costs only its own line
            self._result = replace(self._unknown(f"this check failed: {type(error).__name__}: {error}"), failed=True)
        self._done.set()

    def _unknown(self, what: str, unlock: str | None = None) -> CheckResult:
        return CheckResult(self._check, (_cleaned(CheckLine("unknown", what, unlock)),))


def run_checks(
    machine: DoctorContext, hostname: str, of: Sequence[Check] | None = None, patience_s: float = PATIENCE_S
) -> DoctorReport:
    """Run every check on this machine; takes at most `patience_s`, whatever hangs."""
    exams = [_RunningCheck(check, machine, patience_s) for check in (checks() if of is None else of)]
    results = tuple(exam.result() for exam in exams)
    return DoctorReport(clean(hostname, 64), machine.pid, machine.in_container, results)


def as_json(report: DoctorReport) -> dict[str, object]:
    """The report in the format of `gputop doctor --json`."""
    return {
        "version": VERSION,
        "gputop": __version__,
        "host": report.host,
        "pid": report.pid,
        "in_container": report.in_container,
        "lines": [
            {
                "check": result.check.name,
                "group": result.check.group,
                "question": result.check.question,
                "status": line.status,
                "what": line.what,
                "unlock": line.unlock,
                "value": dict(line.value),
            }
            for result in report.results
            for line in result.lines
        ],
    }


def _cleaned(line: CheckLine) -> CheckLine:
    unlock = line.unlock and clean(line.unlock, 400)
    return CheckLine(line.status, clean(line.what, 400), unlock, {key: _harmless(at) for key, at in line.value.items()})


def _harmless(value: object) -> object:
    if isinstance(value, str):
        return clean(value, 400)
    if isinstance(value, Mapping):
        return {clean(str(key), 80): _harmless(inner) for key, inner in value.items()}
    if isinstance(value, Iterable):
        return [_harmless(inner) for inner in value]
    return value


WIDTH = 80
_WORDS: dict[Status, str] = {"ok": "ok", "limited": "--", "missing": "!!", "unknown": "??", "advice": "  "}


def render(report: DoctorReport, *, ascii: bool = False) -> str:
    """The report as text without colour."""
    text = "\n".join(_all(report)) + "\n"
    return to_ascii(text) if ascii else text


def _all(report: DoctorReport) -> Iterator[str]:
    about = f", process {report.pid}" if report.pid is not None else ""
    yield f"gputop {__version__} on {report.host}{about}"
    for words in _summary(report):
        yield from textwrap.wrap(words, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    yield ""
    marks = (f"{_WORDS[status]} {meaning}" for status, meaning in STATUSES.items() if _WORDS[status].strip())
    yield "  ".join(marks) + "  $ command"
    width = max((len(result.check.name) for result in report.results), default=0)
    for group, title in GROUPS.items():
        if results := [result for result in report.results if result.check.group == group and result.lines]:
            yield ""
            yield title
            for result in results:
                yield from _result(result, width)


def _summary(report: DoctorReport) -> Iterator[str]:
    """What limits a training, what limits gputop's own view, and what is unknown: checks by name, the worst first."""
    for about, training in (("Training", True), ("What gputop shows", False)):
        results = [result for result in report.results if result.check.training is training]
        parts = []
        for status, word in (("missing", "problem"), ("limited", "limit")):
            if names := [each.check.name for each in results if _worst(each) == status]:
                parts.append(f"{labels.amount(len(names), word)} ({', '.join(names)})")
        yield f"{about}: {', '.join(parts) or 'no problem found'}"
    if names := [result.check.name for result in report.results if _worst(result) == "unknown"]:
        yield f"Unknown: {', '.join(names)}"


def _worst(result: CheckResult) -> Status:
    statuses = {line.status for line in result.lines}
    order: tuple[Status, ...] = ("missing", "limited", "unknown")
    return next((status for status in order if status in statuses), "ok")


def _result(result: CheckResult, width: int) -> Iterator[str]:
    name = result.check.name
    for line in result.lines:
        yield from _answer_line(line, name, width)
        name = ""


def _answer_line(line: CheckLine, name: str, width: int) -> Iterator[str]:
    first = f"  {_WORDS[line.status]}  {name:{width}}  "
    rest = " " * len(first)
    yield from textwrap.wrap(
        line.what, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    ) or [first.rstrip()]
    if line.unlock:
        # a long command is indented less: a wrapped one cannot be copied
        indent = rest if len(rest) + 2 + len(line.unlock) <= WIDTH else " " * 6
        yield f"{indent}$ {line.unlock}"
