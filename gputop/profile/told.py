"""A profile told as a page: where the main thread is, in words, then its functions; and what changed between two."""

from __future__ import annotations

from gputop.page import Page, Point, Table
from gputop.profile.parts import main, shares
from gputop.profile.stacks import Profile, diff

_ROWS = 15
_WARN, _CRIT = 0.10, 0.20  # TraceML's limits for waiting on input


def page(profile: Profile, name: str) -> Page:
    """What one profile says."""
    seen = main(profile)
    parts = {part.name: (part.text, share) for part, share in shares(seen).items()}
    data = parts["waits-for-data"][1]
    points: tuple[Point, ...] = ()
    if data >= _WARN:
        points = (
            Point(
                severity="crit" if data >= _CRIT else "warn",
                text=f"{data:.0%} of the samples wait for the DataLoader: the step is starved by its input.",
                steps=(
                    "More workers, pin_memory, prefetch_factor=4; gputop diagnose tells storage from CPU.",
                    "What the workers do is not in this process: profile one of them next.",
                ),
            ),
        )
    top = seen.top()
    words = f"Most samples are in {top[0].name}: {top[0].self_count / seen.total:.0%}."
    rows = tuple(
        (e.name, _percent(e.self_count / seen.total), _percent(e.total_count / seen.total)) for e in top[:_ROWS]
    )
    in_parts = tuple((text, _percent(share)) for text, share in parts.values() if share)
    known = Table("Known parts", ("part", "share"), in_parts)
    return Page(
        title=name,
        about=f"{profile.total:.0f} samples, {len(profile.stacks)} stacks"
        + ("" if seen is profile else "; the main thread is shown"),
        words=(words,),
        points=points,
        tables=tuple(table for table in (known, Table("Functions", ("name", "own", "total"), rows)) if table.rows),
        notes=tuple(profile.notes),
    )


def compared(before: Profile, after: Profile, names: tuple[str, str]) -> Page:
    """What changed from one profile to another, in shares of their samples."""
    rows = diff(main(before), main(after))[:_ROWS]
    words = "The same functions take the same shares."
    if rows:
        name, old, new = rows[0]
        words = f"The largest change is {name}: from {old:.0%} to {new:.0%} of the samples."
    cells = tuple((name, _percent(old), _percent(new), f"{100 * (new - old):+.1f}") for name, old, new in rows)
    return Page(
        title=f"{names[0]} → {names[1]}",
        words=(words,),
        tables=(Table("Functions that changed", ("name", "before", "after", "points"), cells),),
        notes=(*before.notes, *after.notes),
    )


def as_json(profile: Profile, name: str) -> dict[str, object]:
    """One profile as numbers: counts of samples by function and by known part."""
    seen = main(profile)
    return {
        "kind": "profile",
        "file": name,
        "samples": profile.total,
        "parts": {part.text: share for part, share in shares(seen).items()},
        "functions": [
            {"name": each.name, "self": each.self_count, "total": each.total_count} for each in seen.top()[:100]
        ],
        "notes": list(profile.notes),
    }


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
