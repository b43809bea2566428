"""A fix: the finding behind it, the job's speed before, the advised value, and the outcome."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from zlib import crc32

from gputop.diagnose import Finding
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Identity
from gputop.proven.measured import METRICS, Gain, Measured, Spread, gain
from gputop.proven.runs import JobRun
from gputop.safe.text import clean

VERSION = 1
_LONGEST, _MOST_WORDS = 4096, 200
_ADVISED = re.compile(
    r"\b(num_workers|OMP_NUM_THREADS|prefetch_factor|pin_memory|persistent_workers|in_order)=([A-Za-z]{1,8}|\d{1,6})\b"
)
_SETS_THREADS = re.compile(r"\bset_num_threads\((\d{1,6})\)")
_SAME_BATCH = 0.1  # noise in the measured samples per step
_MOST_LOST = 0.9  # no gain beyond this is predicted, as the finding claims none


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class FixOutcome:
    """A later run in which the cause was gone."""

    at_s: float  # wall clock, as all times here
    process: Identity
    run: JobRun
    after: Measured
    settings: Mapping[str, float | str]
    differs: str = ""  # why it is not comparable


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A confirmed finding, stored until the same script runs without its cause."""

    run: JobRun
    process: Identity  # on which it was found
    at_s: float
    rule: str
    causes: tuple[str, ...] = ()
    headline: str = ""
    settings: Mapping[str, float | str]
    advised: Mapping[str, str]
    before: Measured
    most: float | None = None  # largest predicted speedup; the least is 1
    outcome: FixOutcome | None = None

    @property
    def name(self) -> str:
        """Its file name: one per finding and run."""
        key = repr((self.run.program, self.run.arguments, self.rule, *self.process)).encode()
        return f"{crc32(key):08x}{crc32(key[::-1]):08x}.json"

    @property
    def gain(self) -> Gain | None:
        """The measured gain; None without a comparable outcome."""
        if self.outcome is None or self.outcome.differs:
            return None
        return gain(self.before, self.outcome.after)

    @property
    def settled(self) -> bool:
        """Whether there is an outcome: one that is not comparable leaves the question open."""
        return self.outcome is not None and not self.outcome.differs

    def replaces(self, other: Fix) -> bool:
        """Whether the other is the same finding of an earlier run without an outcome."""
        same = self.run.program == other.run.program and self.run.arguments == other.run.arguments
        return same and self.rule == other.rule and self.process != other.process and not other.settled


def advised_values(finding: Finding) -> dict[str, str]:
    """The values its steps advise, the first of each: num_workers 5."""
    found: dict[str, str] = {}
    for step in finding.steps:
        for name, value in _ADVISED.findall(step.command or ""):
            found.setdefault(name, value)
        for value in _SETS_THREADS.findall(step.command or ""):
            found.setdefault("OMP_NUM_THREADS", value)
    return found


def predicted_speedup(finding: Finding, settings: Mapping[str, float | str]) -> float | None:
    """The largest speedup: all that is lost, limited by the factor by which workers increase."""
    lost = finding.lost_share
    if lost is None or not 0.01 <= lost <= _MOST_LOST:
        return None
    wanted, have = advised_values(finding).get("num_workers", ""), settings.get("num_workers")
    most = max(int(wanted) / max(1.0, have), 1.0) if wanted.isdecimal() and isinstance(have, float) else math.inf
    # from none to one worker: the training process computes while that loads
    most = max(2.0, most) if have == 0 else most
    return min(1 / (1 - lost), most)


def other_batch(before: Measured, after: Measured) -> str:
    """Whether a step processes a different number of samples than before, as text; empty if not, or if unknown."""
    old, new = before.batch, after.batch
    if not old or not new or abs(new / old - 1) <= _SAME_BATCH:
        return ""
    return f"batch {old:.0f} → {new:.0f}"


def encode(fix: Fix) -> dict[str, Any]:
    """As stored in a file."""
    return {"version": VERSION, **asdict(fix)}


def decode(said: Any) -> Fix:
    """The fix in a file; ValueError, KeyError or TypeError if invalid. Every text is sanitized."""
    if said["version"] != VERSION:
        raise ValueError("another version")
    outcome = said["outcome"]
    return Fix(
        run=_run(said["run"]),
        process=_process(said["process"]),
        at_s=_number(said["at_s"]),
        rule=_text(said["rule"]),
        causes=tuple(map(_text, said["causes"][:_MOST_WORDS])),
        headline=_text(said["headline"]),
        settings=_settings(said["settings"]),
        advised={_text(name): _text(value) for name, value in said["advised"].items()},
        before=_measured(said["before"]),
        most=None if said["most"] is None else _number(said["most"]),
        outcome=None if outcome is None else _outcome(outcome),
    )


def _outcome(said: Any) -> FixOutcome:
    return FixOutcome(
        at_s=_number(said["at_s"]),
        process=_process(said["process"]),
        run=_run(said["run"]),
        after=_measured(said["after"]),
        settings=_settings(said["settings"]),
        differs=_text(said["differs"]),
    )


def _run(said: Any) -> JobRun:
    ranks = said["ranks"]
    if type(ranks) is not int or not 0 < ranks < 1 << 20:
        raise ValueError("no number of ranks")
    return JobRun(
        script=_text(said["script"]),
        arguments=tuple(map(_text, said["arguments"][:_MOST_WORDS])),
        host=_text(said["host"]),
        user=_text(said["user"]),
        ranks=ranks,
        gpus=_text(said["gpus"]),
    )


def _measured(said: Any) -> Measured:
    return Measured(seconds=_number(said["seconds"]), **{name: _spread(said[name]) for name in METRICS})


def _spread(said: Any) -> Spread | None:
    return None if said is None else Spread(*(_number(said[part]) for part in ("median", "low", "high")))


def _settings(said: Any) -> dict[str, float | str]:
    return {_text(name): _text(value) if isinstance(value, str) else _number(value) for name, value in said.items()}


def _process(said: Any) -> Identity:
    pid, started = said
    if type(pid) is not int or type(started) is not int:
        raise ValueError("no process")
    return Identity(pid, started)


def _text(said: Any) -> str:
    if not isinstance(said, str):
        raise TypeError("no text")
    return clean(said, _LONGEST)


def _number(said: Any) -> float:
    if isinstance(said, bool) or not isinstance(said, (int, float)) or not math.isfinite(said) or said < 0:
        raise ValueError("no number")
    return float(said)
