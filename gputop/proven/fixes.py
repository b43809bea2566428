"""A fix: the finding that asked for it, how fast the job was then, the value that was advised, and what came of it."""

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
from gputop.proven.runs import Run
from gputop.safe.text import clean

VERSION = 1
_LONGEST, _MOST_WORDS = 4096, 200
_ADVISED = re.compile(
    r"\b(num_workers|OMP_NUM_THREADS|prefetch_factor|pin_memory|persistent_workers|in_order)=([A-Za-z]{1,8}|\d{1,6})\b"
)
_SETS_THREADS = re.compile(r"\bset_num_threads\((\d{1,6})\)")
_SAME_BATCH = 0.1  # by which what a step takes may seem to differ
_MOST_LOST = 0.9  # beyond it no gain is predicted, as nothing is said of it with the finding


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a later run was like, in which the cause was gone."""

    at_s: float  # wall clock, as all times here
    process: Identity
    run: Run
    after: Measured
    settings: Mapping[str, float | str]
    differs: str = ""  # why it cannot be compared


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A finding that was believed, kept until the same script runs without its cause."""

    run: Run
    process: Identity  # that it was found of
    at_s: float
    rule: str
    causes: tuple[str, ...] = ()
    headline: str = ""
    settings: Mapping[str, float | str]
    advised: Mapping[str, str]
    before: Measured
    most: float | None = None  # the largest speedup that was predicted; the least is 1
    outcome: Outcome | None = None

    @property
    def name(self) -> str:
        """Of its file: one for each finding of each run."""
        told = repr((self.run.program, self.run.arguments, self.rule, *self.process)).encode()
        return f"{crc32(told):08x}{crc32(told[::-1]):08x}.json"

    @property
    def gain(self) -> Gain | None:
        """What was measured; None without an outcome that can be compared."""
        if self.outcome is None or self.outcome.differs:
            return None
        return gain(self.before, self.outcome.after)

    @property
    def settled(self) -> bool:
        """Whether there is an outcome: one that cannot be compared leaves the question open."""
        return self.outcome is not None and not self.outcome.differs

    def replaces(self, other: Fix) -> bool:
        """Whether the other is the same finding of an earlier run, of which nothing came."""
        same = self.run.program == other.run.program and self.run.arguments == other.run.arguments
        return same and self.rule == other.rule and self.process != other.process and not other.settled


def advised(finding: Finding) -> dict[str, str]:
    """The values that its steps name, the first of each: num_workers 5."""
    found: dict[str, str] = {}
    for step in finding.steps:
        for name, value in _ADVISED.findall(step.command or ""):
            found.setdefault(name, value)
        for value in _SETS_THREADS.findall(step.command or ""):
            found.setdefault("OMP_NUM_THREADS", value)
    return found


def predicted(finding: Finding, settings: Mapping[str, float | str]) -> float | None:
    """The largest speedup: all that is lost, and with workers no more than there are more of them."""
    lost = finding.lost_share
    if lost is None or not 0.01 <= lost <= _MOST_LOST:
        return None
    wanted, have = advised(finding).get("num_workers", ""), settings.get("num_workers")
    most = max(int(wanted) / max(1.0, have), 1.0) if wanted.isdecimal() and isinstance(have, float) else math.inf
    # from none to one worker: the training process computes while it loads
    most = max(2.0, most) if have == 0 else most
    return min(1 / (1 - lost), most)


def other_batch(before: Measured, after: Measured) -> str:
    """That a step takes other samples than before, wherever that was changed; empty where it does not, or unknown."""
    old, new = before.batch, after.batch
    if not old or not new or abs(new / old - 1) <= _SAME_BATCH:
        return ""
    return f"batch {old:.0f} → {new:.0f}"


def encoded(fix: Fix) -> dict[str, Any]:
    """As it stands in a file."""
    return {"version": VERSION, **asdict(fix)}


def decoded(said: Any) -> Fix:
    """What a file says; ValueError, KeyError or TypeError where that is no fix. Every text is cleaned."""
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


def _outcome(said: Any) -> Outcome:
    return Outcome(
        at_s=_number(said["at_s"]),
        process=_process(said["process"]),
        run=_run(said["run"]),
        after=_measured(said["after"]),
        settings=_settings(said["settings"]),
        differs=_text(said["differs"]),
    )


def _run(said: Any) -> Run:
    ranks = said["ranks"]
    if type(ranks) is not int or not 0 < ranks < 1 << 20:
        raise ValueError("no number of ranks")
    return Run(
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
