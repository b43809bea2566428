"""The message of an alert: its title and lines in the words of the screen, and its JSON object."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from gputop import __version__, finding_text, units
from gputop.diagnose import Finding, Severity
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame
from gputop.safe.text import clean, redact

VERSION = 1  # of the JSON object
_LONGEST, _TITLE = 400, 200  # characters of a line, and of the title
_MOST = 8  # lines of evidence

Status = Literal["firing", "resolved", "test"]
Ended = Literal["", "cleared", "exited", "unmeasured"]
_ENDED: dict[Ended, str] = {"exited": "its processes exited", "unmeasured": "no longer measured"}


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What an alert is about: kind, display name, and what identifies it."""

    kind: str  # host, gpu, process, job, disk, mount, network
    name: str  # with user, PID and GPUs
    gpus: tuple[str, ...] = ()  # by index
    pids: tuple[int, ...] = ()
    job: str | None = None
    user: str | None = None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class AlertMessage:
    """One message to the receivers of an alert. All texts are clean and without secrets."""

    alert: str  # its name in the settings
    id: str  # the same for an alert and its recovery
    status: Status
    severity: Severity
    host: str
    about: About
    headline: str
    evidence: tuple[str, ...] = ()
    step: str = ""
    command: str | None = None
    note: str = ""
    rule: str | None = None
    metric: str | None = None
    value: float | None = None
    limit: float | None = None
    unit: str = ""
    began_wall_s: float
    sent_wall_s: float
    lasted_s: float = 0.0
    ended: Ended = ""
    times: int = 1  # how often it began since the last message about it
    missed: int = 0  # earlier messages that this receiver did not get
    source: str = ""  # "a demo", "a recording"; empty: this machine

    @property
    def title(self) -> str:
        """One line: severity or end, host, subject, headline."""
        place = self.host if self.about.name == self.host else f"{self.host}: {self.about.name}"
        return clean(f"{self._source}{self._word} {place}: {self.headline}", _TITLE)

    @property
    def _source(self) -> str:
        return f"[{self.source.removeprefix('a ')}] " if self.source else ""

    @property
    def _word(self) -> str:
        if self.status == "test":
            return "TEST"
        if self.status == "firing":
            return self.severity.upper()
        why = f" ({_ENDED[self.ended]})" if self.ended in _ENDED else ""
        return f"{'ENDED' if why else 'RESOLVED'} after {units.ago_text(self.lasted_s)}{why},"

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines below the title: evidence, first step, note, times."""
        found = [*self.evidence]
        if self.step and self.status != "resolved":
            found.append(f"Next: {self.step}")
        if self.command and self.status != "resolved":
            found.append(f"  {self.command}")
        if self.note:
            found.append(self.note)
        lasted = f" ({units.ago_text(self.lasted_s)})" if self.lasted_s >= 1 else ""
        found.append(f"{'sent' if self.status == 'test' else 'since'} {local_time(self.began_wall_s)}{lasted}")
        if self.times > 1:
            found.append(f"began {self.times} times since the last message about it")
        if self.missed:
            found.append(f"{self.missed} earlier messages to this receiver were not delivered")
        found.append(f"alert {self.alert} · gputop {__version__}")
        return tuple(found)

    @property
    def text(self) -> str:
        """Title and lines."""
        return "\n".join((self.title, *self.lines))


def from_finding(finding: Finding, frame: Frame) -> dict[str, Any]:
    """The fields of a message about a finding."""
    about = finding.subject
    first = next(iter(finding.evidence), None)
    step = next(iter(finding.steps), None)
    aside = f" ({finding_text.warnings(step)})" if step and finding_text.warnings(step) else ""
    gpus = frame.by_uuid
    return {
        "severity": finding.severity,
        "about": About(
            kind=about.kind,
            name=_line(finding_text.qualified_name(about, frame)),
            gpus=tuple(gpus[uuid].index if uuid in gpus else clean(uuid, 48) for uuid in about.gpus),
            pids=tuple(identity.pid for identity in about.processes),
            job=next((_line(job.name) for job in frame.jobs if job.key == about.job), None),
            user=clean(about.user, 64) if about.user else None,
        ),
        "headline": _line(finding_text.headline(finding)),
        "evidence": tuple(
            _line("".join(part.text for part in finding_text.referenced(item))) for item in finding.evidence[:_MOST]
        ),
        "step": _line(f"{step.text}{aside}") if step else "",
        "command": _line(step.command) if step and step.command else None,
        "rule": finding.rule,
        "value": first.value if first else None,
        "limit": first.limit if first else None,
        "unit": first.unit if first else "",
    }


def past(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a message with its evidence marked as what was measured while the condition held."""
    return {**fields, "evidence": tuple(f"was: {line}" for line in fields["evidence"])}


def test_message(receiver: str, host: str) -> AlertMessage:
    """A message that only shows whether a receiver gets messages."""
    now_s = time.time()
    return AlertMessage(
        alert="test",
        id="test",
        status="test",
        severity="info",
        host=host,
        about=About(kind="host", name=host),
        headline=f"test message to receiver {receiver}",
        evidence=("sent by gputop alerts --test: nothing is wrong",),
        began_wall_s=now_s,
        sent_wall_s=now_s,
    )


def as_json(message: AlertMessage) -> dict[str, Any]:
    """The JSON object: `gputop docs alerts` describes each key."""
    about = message.about
    return {
        "version": VERSION,
        "gputop": __version__,
        "id": message.id,
        "status": message.status,
        "alert": message.alert,
        "severity": message.severity,
        "host": message.host,
        "subject": {
            "kind": about.kind,
            "name": about.name,
            "gpus": list(about.gpus),
            "pids": list(about.pids),
            "job": about.job,
            "user": about.user,
        },
        "title": message.title,
        "headline": message.headline,
        "evidence": list(message.evidence),
        "step": message.step or None,
        "command": message.command,
        "note": message.note or None,
        "rule": message.rule,
        "metric": message.metric,
        "value": message.value,
        "limit": message.limit,
        "unit": message.unit,
        "since": utc_time(message.began_wall_s),
        "sent": utc_time(message.sent_wall_s),
        "lasted_s": round(message.lasted_s, 1),
        "ended": message.ended or None,
        "times": message.times,
        "missed": message.missed,
        "source": message.source or "live",
    }


def local_time(wall_s: float) -> str:
    """Local time with its zone; `?` for a time that no calendar has."""
    return _time("%Y-%m-%d %H:%M:%S %Z", wall_s, utc=False) or "?"


def utc_time(wall_s: float) -> str | None:
    """ISO 8601 in UTC; None for a time that no calendar has."""
    return _time("%Y-%m-%dT%H:%M:%SZ", wall_s, utc=True)


def _time(form: str, wall_s: float, *, utc: bool) -> str | None:
    try:
        return time.strftime(form, time.gmtime(wall_s) if utc else time.localtime(wall_s))
    except (OverflowError, ValueError, OSError):  # of a fabricated recording
        return None


def _line(text: str) -> str:
    return redact(clean(text, _LONGEST))
