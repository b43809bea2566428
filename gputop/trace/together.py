"""Whether several traces are of the ranks of one job."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.trace.verdict import View


def apart(views: Sequence[View]) -> str | None:
    """Why they are not, in words that follow the names of the files; None where they may be.

    torch.profiler writes rank and world size into a trace; one of an older version, which does not, has collectives.
    """
    sizes = {view.trace.ranks for view in views} - {None}
    known = [view.trace.rank for view in views if view.trace.rank is not None]
    twice = [rank for rank in known if known.count(rank) > 1]
    silent = [view.trace.name for view in views if view.trace.rank is None and not len(view.comm)]
    if silent:
        return f"{silent[0]} tells of no rank and has no collectives"
    if len(sizes) > 1:
        return f"one is of {min(filter(None, sizes))} ranks, one of {max(filter(None, sizes))}"
    return f"more than one is rank {twice[0]}" if twice else None
