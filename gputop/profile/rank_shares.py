"""Profiles of all ranks of a job, side by side: the phases of each, and for which one the others wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputop.page import Page, Table
from gputop.profile.parts import PHASES, main, phases
from gputop.profile.stacks import Profile
from gputop.units import UNKNOWN

_APART = 0.20  # of the samples: collectives take this much less in the rank that the others wait for
_WAITS = 0.10  # of the samples, from which waiting in collectives is worth a sentence
_TITLES = {"comms": "collectives"}

Ranked = tuple[str, int, Profile]  # label, pid, what was recorded


def page(ranks: Sequence[Ranked]) -> Page:
    """What they say together."""
    found = [phases(main(profile)) for _, _, profile in ranks]
    rows = []
    for (label, pid, profile), shares in zip(ranks, found, strict=True):
        own = main(profile).own().by_function().top()
        cells = (_cell(shares, phase) for phase in PHASES)
        rows.append((label, str(pid), *cells, own[0].name if own else ""))
    head = ("", "pid", *(_TITLES.get(phase, phase) for phase in PHASES), "own code")
    labels = [label for label, _, _ in ranks]
    return Page(
        title=f"{len(ranks)} ranks, profiled at once",
        words=(_said(labels, found),),
        tables=(Table("Ranks", head, tuple(rows)),),
    )


def _cell(shares: Mapping[str, float], phase: str) -> str:
    """The share of a phase; unknown of collectives where none was seen, but backward may hide one."""
    if phase == "comms" and phase not in shares and shares.get("backward", 0.0) >= _WAITS:
        return UNKNOWN
    return f"{100 * shares.get(phase, 0.0):.1f}%"


def _said(labels: Sequence[str], found: Sequence[Mapping[str, float]]) -> str:
    """The ranks that wait in collectives, and the one that does not; DDP waits for other ranks inside of backward."""
    waits = [shares.get("comms", 0.0) for shares in found]
    least, most = min(waits), max(waits)
    if most >= _WAITS:
        late = _late(labels, waits)
        if not late:
            return f"All ranks spend {least:.0%} to {most:.0%} of the time in collectives: none of them stands out."
        return f"{late} of the time in collectives, the others up to {most:.0%}: they wait for what it does."
    backward = [shares.get("backward", 0.0) for shares in found]
    if late := _late(labels, backward):
        return (
            f"{late} of the time in backward, the others up to {max(backward):.0%}:"
            " there they may wait for it in an all-reduce, which --native shows."
        )
    if max(backward) >= _WAITS:
        return f"collectives {UNKNOWN}: the ranks may wait inside backward: --native shows it."
    return f"No rank is seen to wait in collectives for {_WAITS:.0%} of the time."


def _late(labels: Sequence[str], shares: Sequence[float]) -> str:
    """`rank 1 spends 3%`: those whose share is far below that of others; empty where none is."""
    least = min(shares)
    late = [label for label, share in zip(labels, shares, strict=True) if share <= least + _APART / 2]
    if max(shares) - least < _APART or len(late) == len(labels):
        return ""
    return f"{', '.join(late[:4])} {'spends' if len(late) == 1 else 'spend'} {least:.0%}"
