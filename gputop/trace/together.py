"""Whether several traces are of the ranks of one job."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.trace.names import Mark
from gputop.trace.verdict import View


def apart(views: Sequence[View]) -> str | None:
    """Why they are not, in words that follow the names of the files; None where they may be.

    torch.profiler writes rank and world size into a trace; what an older version wrote has collectives, at least in
    the trace of one rank.
    """
    known = [view.trace.rank for view in views if view.trace.rank is not None]
    silent = [view for view in views if view.trace.rank is None and not _communicates(view)]
    if silent and (known or len(silent) == len(views)):
        return f"{silent[0].trace.name} tells of no rank and has no collectives"
    sizes = {view.trace.ranks for view in views if view.trace.ranks is not None}
    if len(sizes) > 1:
        return f"one is of {min(sizes)} ranks, one of {max(sizes)}"
    twice = [rank for rank in known if known.count(rank) > 1]
    return f"more than one is rank {twice[0]}" if twice else None


def _communicates(view: View) -> bool:
    """Whether the GPU, or the CPU for it, talks to other ranks."""
    return bool(len(view.found.comm) or len(view.host(Mark.COMM)))
