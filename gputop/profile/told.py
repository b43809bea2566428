"""A profile told as a page: where the main thread is, in words, then its functions; and what changed between two."""

from __future__ import annotations

import re

from gputop.page import Page, Point, Table
from gputop.profile.stacks import Profile, diff

_ROWS = 15
_PARTS = (  # what a training loop spends its time on, by a frame that is on the stack
    ("waiting for the DataLoader", re.compile(r"^(?:__next__|_next_data|_get_data|_try_get_data) \(.*dataloader\.py")),
    ("backward", re.compile(r"^(?:_engine_run_backward|backward) \(")),
    ("optimizer", re.compile(r"^\w*step\w* \((?:.*optim\w*|adam\w*|sgd|adagrad|rmsprop|lbfgs|muon)\.py")),
    ("collectives", re.compile(r"^\w+ \((?:.*/)?distributed_c10d\.py")),
    ("saving a checkpoint", re.compile(r"^\w*save\w* \(serialization\.py")),
    ("compiling", re.compile(r"^\w+ \((?:convert_frame|compile_fx|async_compile)\.py")),
)
_WARN, _CRIT = 0.10, 0.20  # TraceML's limits for waiting on input


def page(profile: Profile, name: str) -> Page:
    """What one profile says."""
    main = _main(profile)
    parts = [(text, _share(main, pattern)) for text, pattern in _PARTS]
    data = parts[0][1]
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
    top = main.top()
    words = f"Most samples are in {top[0].name}: {top[0].self_count / main.total:.0%}."
    rows = tuple(
        (e.name, _percent(e.self_count / main.total), _percent(e.total_count / main.total)) for e in top[:_ROWS]
    )
    known = Table("Known parts", ("part", "share"), tuple((text, _percent(share)) for text, share in parts if share))
    return Page(
        title=name,
        about=f"{profile.total:.0f} samples, {len(profile.stacks)} stacks"
        + ("" if main is profile else "; the main thread is shown"),
        words=(words,),
        points=points,
        tables=tuple(table for table in (known, Table("Functions", ("name", "own", "total"), rows)) if table.rows),
        notes=tuple(profile.notes),
    )


def compared(before: Profile, after: Profile, names: tuple[str, str]) -> Page:
    """What changed from one profile to another, in shares of their samples."""
    rows = diff(_main(before), _main(after))[:_ROWS]
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
    main = _main(profile)
    return {
        "kind": "profile",
        "file": name,
        "samples": profile.total,
        "parts": {text: _share(main, pattern) for text, pattern in _PARTS},
        "functions": [
            {"name": each.name, "self": each.self_count, "total": each.total_count} for each in main.top()[:100]
        ],
        "notes": list(profile.notes),
    }


def _main(profile: Profile) -> Profile:
    """The main thread, where threads are told apart; else all of it."""
    found = Profile(
        (stack[1:], count) for stack, count in profile.stacks.items() if "MainThread" in stack[0] and stack[1:]
    )
    return found if found.stacks else profile


def _share(profile: Profile, pattern: re.Pattern[str]) -> float:
    hit = sum(count for stack, count in profile.stacks.items() if any(map(pattern.search, stack)))
    return hit / profile.total


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
