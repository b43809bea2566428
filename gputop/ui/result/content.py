"""From what an action ended in, or from what is kept of it, to the tabs that show it. Heavy: made in a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Identity
from gputop.profile.store import StoredProfile, alike, history
from gputop.report import Page
from gputop.safe.files import Refused
from gputop.ui.result.about import About, files_in
from gputop.ui.result.verdicts import Says
from gputop.ui.widgets.tabs import Tab

_OLDER = 50
Made = TypeVar("Made")


@frozen_dataclass(frozen=True, kw_only=True)
class Content:
    """A result, ready to be drawn. `compare` makes the page of what changed since an older one, in a thread."""

    about: About
    says: Says
    tabs: Sequence[Tab]
    page: Page | None = None
    compare: Callable[[StoredProfile], Page] | None = None
    ranks: Sequence[str] = ()  # labels, where there are several to turn to
    rank: int = 0
    again: bool = False  # it is quickly taken again


def kept_about(kept: StoredProfile, what: str) -> About:
    """The head of what is kept."""
    meta = kept.meta
    at_s, job, rank, ticks = meta.get("at_s"), meta.get("job"), meta.get("rank"), kept.started_ticks
    process = () if kept.pid is None or ticks is None else (Identity(kept.pid, ticks),)
    return About(
        what=what,
        pid=kept.pid,
        at_s=float(at_s) if isinstance(at_s, (int, float)) and 0 <= at_s < 1e11 else None,
        processes=process,
        job=job if isinstance(job, str) else None,
        rank=rank if type(rank) is int else None,
        kept=kept,
        files=files_in(kept.path),
        older=tuple(older(kept)),
    )


def older(kept: StoredProfile) -> list[StoredProfile]:
    """What else was taken of the same process or the same command line, of the same kind, the newest first."""
    command = kept.meta.get("command")
    try:
        same = alike(command) if isinstance(command, str) and command else []
        same += [] if kept.pid is None else history(kept.pid, kept.started_ticks)
    except Refused:
        return []
    traced = "traces" in kept.meta
    found = {each.name: each for each in same if each.name != kept.name and ("traces" in each.meta) == traced}
    return sorted(found.values(), key=lambda each: each.name, reverse=True)[:_OLDER]


def one_of(found: Sequence[Made], wanted: int | None, rank: Callable[[Made], int | None]) -> Made:
    """The one of the same rank, or the first."""
    return next((each for each in found if rank(each) == wanted), found[0])
