"""What a recording becomes: a profile without secrets, its files in a private folder, and the page that tells it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gputop import units, words
from gputop.actions.naming import described
from gputop.actions.spy.cost import Cost
from gputop.actions.spy.sources import lines
from gputop.declare import record
from gputop.model import Process
from gputop.page import Page
from gputop.profile import Profile, flame, kept, parse, told
from gputop.profile.kept import Kept
from gputop.safe.files import Refused
from gputop.safe.text import redact

MOST_ERRORS = 0.2  # of the samples; more make a profile doubtful
_COMMAND = re.compile(r"process \d+:")


@record(frozen=True, slots=True)
class About:
    """What was recorded, and how."""

    process: Process
    at_s: float  # wall clock
    seconds: float
    rate: int  # samples a second
    how: str  # what was chosen beyond the usual; empty
    threads: int
    processes: int

    @property
    def text(self) -> str:
        """`10 s at 100 Hz, 12 threads in 5 processes`."""
        where = f" in {words.amount(self.processes, 'process')}" if self.processes > 1 else ""
        what = f"{units.ago(self.seconds)} at {self.rate} Hz, {words.amount(self.threads, 'thread')}{where}"
        return f"{what}, {self.how}" if self.how else what


@record(frozen=True, slots=True)
class Recorded:
    """A recording that is kept."""

    kept: Kept
    profile: Profile
    page: Page


def keep(about: About, raw: bytes, *, samples: int, errors: int, cost: Cost, notes: Sequence[str]) -> Recorded:
    """Write everything down; Refused says why it cannot be."""
    text = without_secrets(raw)
    profile = parse(text)
    process = about.process
    profile.pid, profile.lines = process.pid, lines(profile, process.pid, process.uid)
    profile.notes += notes
    who = described(process)
    measured = f"{samples} samples, {words.amount(errors, 'error')}, {cost.text}"
    page = told.page(profile, f"{process.pid} {who['short'][:60]}", about=f"{about.text}; {measured}")
    meta = {
        "version": 1,
        "kind": "py-spy",
        **who,
        "at_s": about.at_s,
        "seconds": about.seconds,
        "rate": about.rate,
        "how": about.text,
        "threads": about.threads,
        "processes": about.processes,
        "samples": samples,
        "errors": errors,
        "cost": asdict(cost),
        "lines": profile.lines,
        "notes": list(notes),
        "says": [*page.words, *(point.text for point in page.points)],
    }
    files = {
        kept.SPEEDSCOPE: text.encode(),
        kept.COLLAPSED: profile.collapsed().encode(),
        kept.FLAME: flame(profile, f"{process.pid} {who['short'][:80]}: {about.text}").encode(),
    }
    return Recorded(kept.keep(meta, files), profile, page)


def without_secrets(raw: bytes) -> str:
    """A speedscope file of py-spy, where the command lines that it names processes by may hold a password."""
    try:
        data: Any = json.loads(raw)
        for frame in data["shared"]["frames"]:
            if _COMMAND.match(frame["name"]):
                frame["name"] = redact(frame["name"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Refused("py-spy wrote no profile: try again, for longer") from None
    return json.dumps(data, separators=(",", ":"))
