"""The report on a profile: activity of the main thread, then the user's code, functions, loaders."""

from __future__ import annotations

from collections.abc import Iterator

from gputop import num_workers
from gputop.phrases import percent
from gputop.profile.stacks import Function, Profile, diff
from gputop.profile.training_parts import loaders, main, phases, shares, worker
from gputop.report import Page, Point, ReportTable
from gputop.severity import by_lost_share

_ROWS = 15
_OWN_ROWS = 8
_SHARE = 0.10  # of the samples, from which a part is a separate item
_LEAST_SHOWN = 0.05  # of the samples; smaller parts are omitted
_IDLE = "waiting for the trainer to ask for a batch"


def page(profile: Profile, name: str, *, about: str = "") -> Page:
    """The report on one profile."""
    first, others = main(profile), loaders(profile)
    if any(worker(stack) is not None for stack in first.stacks):
        return _loader_page(profile, first, name, about)
    seen = {part.name: (part.text, share) for part, share in shares(first).items()}
    tables = [
        ReportTable(
            "Parts of the main thread", ("part", "share"), _percents(each for each in seen.values() if each[1])
        ),
        ReportTable("Your own code, innermost", ("line", "share"), _percents(_tops(first.own_code(), first.total))),
        ReportTable("Functions", ("name", "self", "total"), _functions(first.by_function())),
        ReportTable("Child processes: functions", ("name", "self", "total"), _functions(others.by_function())),
        ReportTable("Threads", ("name", "samples"), _threads(profile)),
    ]
    return Page(
        title=name,
        about=about or _about(profile, first),
        words=(*_problems(profile), *_words(profile, first, others)),
        points=tuple(_points({name: share for name, (_, share) in seen.items()}, others)),
        tables=tuple(table for table in tables if table.rows),
        notes=tuple(profile.notes),
    )


def _loader_page(profile: Profile, first: Profile, name: str, about: str) -> Page:
    """The report on a DataLoader worker, which has no steps and is no main process that loads data."""
    cut = Profile((stack[worker(stack) or 0 :], count) for stack, count in first.stacks.items())
    cut.files, cut.lines = first.files, first.lines
    tables = [
        ReportTable("Your own code, innermost", ("line", "share"), _percents(_tops(first.own_code(), first.total))),
        ReportTable("Functions", ("name", "self", "total"), _functions(cut.by_function())),
        ReportTable("Threads", ("name", "samples"), _threads(profile)),
    ]
    return Page(
        title=name,
        about=about or _about(profile, first),
        words=(*_problems(profile), "This process is a DataLoader worker.", *_loaders_text(cut, "its")),
        tables=tuple(table for table in tables if table.rows),
        notes=tuple(profile.notes),
    )


def _about(profile: Profile, first: Profile) -> str:
    of, shown = ("", "") if first is profile else (" of all threads", "; the main thread is shown")
    return f"{profile.total:.0f} samples{of}, {len(profile.stacks)} stacks{shown}"


def _words(profile: Profile, first: Profile, others: Profile) -> Iterator[str]:
    named = first is not profile
    top = first.by_function().top()
    yield _top("Main thread: top function" if named else "Top function:", top[0], first.total, named=named)
    if others.stacks:
        yield from _loaders_text(others)
    own = first.own_code().by_function().top()
    if own and own[0].name != top[0].name:
        title = "Main thread, your code: top function" if named else "Top function of your code:"
        yield _top(title, own[0], first.total, named=named)
    parts = [f"{phase} {percent(share)}" for phase, share in phases(first).items() if share >= _LEAST_SHOWN]
    if parts:
        yield f"Step phases: {', '.join(parts)}."


def _top(title: str, found: Function, total: float, *, named: bool) -> str:
    return f"{title} {found.name}, {percent(found.self_count / total)} of {'its ' if named else ''}samples."


def _loaders_text(others: Profile, its: str = "their") -> Iterator[str]:
    """Activity of the loaders, including waiting for work: shares of all their samples."""
    idle = sum(count for stack, count in others.stacks.items() if _waits(stack))
    busy = Profile((stack, count) for stack, count in others.stacks.items() if not _waits(stack))
    busy.files = others.files
    loads = any(worker(stack) is not None for stack in others.stacks)
    subject = "" if its == "its" else "Workers: " if loads else "Child processes: "
    waits = f"waiting for work {percent(idle / others.total)} of the time"
    if not busy.stacks:
        words = f"{subject}{waits}."
    else:
        own = busy.own_code().by_function().top() or busy.by_function().top()
        share = percent(own[0].self_count / others.total)
        words = f"{subject}top function {own[0].name}, {share} of {its} samples; {waits}."
    yield words[:1].upper() + words[1:]


def _waits(stack: tuple[str, ...]) -> bool:
    """Whether a loader waits for an index, as in torch's `_worker_loop`: `index_queue.get(timeout)`."""
    loop = worker(stack)
    return loop is not None and "get (queues.py" in "".join(stack[loop + 1 : loop + 2])


def _points(seen: dict[str, float], others: Profile) -> Iterator[Point]:
    waits, loads = seen["waits-for-data"], seen["loads-in-main"]
    if waits >= _SHARE:
        profiled = "Speed up what the workers spend most time in: see their functions below."
        elsewhere = "Profile one of the workers next: their work is not in this process."
        yield Point(
            severity=by_lost_share(waits),
            text=f"dataloader-bound, {percent(waits)} of samples wait for the DataLoader",
            steps=(
                num_workers.MORE,
                profiled if others.stacks else elsewhere,
                "Set pin_memory=True and "
                f"prefetch_factor={num_workers.PREFETCH}; gputop diagnose separates storage from CPU.",
            ),
        )
    if loads >= _SHARE:
        yield Point(
            severity=by_lost_share(loads, "warn"),
            text=f"dataloader-bound, {percent(loads)} of samples load data in the main process",
            steps=(num_workers.IN_WORKERS,),
        )
    for name, text, step in (
        ("logs", "logging and drawing", "Log every 50 steps, and draw every few epochs."),
        ("sync", "reading results back or printing them", "Read the loss every 50 steps: each read waits for the GPU."),
        ("saves", "saving checkpoints", "Save less often, or in a background thread."),
        (
            "data-parallel",
            "nn.DataParallel copying the model and batches",
            "Use DistributedDataParallel with torchrun; batch size and num_workers are per rank.",
        ),
    ):
        if seen[name] >= _SHARE:
            yield Point(
                severity=by_lost_share(seen[name], "warn"),
                text=f"{text}, {percent(seen[name])} of samples",
                steps=(step,),
            )


def _tops(profile: Profile, total: float) -> Iterator[tuple[str, float]]:
    for each in profile.top()[:_OWN_ROWS]:
        if each.self_count:
            code = profile.lines.get(each.name)
            yield f"{each.name}: {code}" if code else each.name, each.self_count / total


def _functions(profile: Profile) -> tuple[tuple[str, str, str], ...]:
    total = profile.total
    return tuple(
        (e.name, percent(e.self_count / total, 1), percent(e.total_count / total, 1)) for e in profile.top()[:_ROWS]
    )


def _percents(rows: Iterator[tuple[str, float]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, percent(share, 1)) for name, share in rows)


def _threads(profile: Profile) -> tuple[tuple[str, str], ...]:
    if len(profile.threads) < 2:
        return ()
    counts: dict[str, float] = {}
    for stack, count in profile.stacks.items():
        counts[stack[0]] = counts.get(stack[0], 0.0) + count
    rows = sorted(((name, count) for name, count in counts.items() if name in profile.threads), key=lambda row: -row[1])
    return tuple((name, f"{count:.0f}") for name, count in rows[:_ROWS])


def compared(before: Profile, after: Profile, names: tuple[str, str]) -> Page:
    """The differences between two profiles, as shares of their samples."""
    rows = diff(main(before), main(after))[:_ROWS]
    words = "No function changed its share."
    if rows:
        name, old, new = rows[0]
        words = f"Largest change: {name}, from {percent(old)} to {percent(new)} of samples."
    cells = tuple((name, percent(old, 1), percent(new, 1), f"{100 * (new - old):+.1f}") for name, old, new in rows)
    return Page(
        title=f"{names[0]} → {names[1]}",
        words=(words,),
        tables=(ReportTable("Functions that changed", ("name", "before", "after", "points"), cells),),
        notes=(*before.problems, *after.problems, *before.notes, *after.notes),
    )


def as_json(profile: Profile, name: str) -> dict[str, object]:
    """One profile as numbers: sample counts by function, shares of known parts and phases."""
    first = main(profile)
    top = first.by_function().top()[:100]
    return {
        "kind": "profile",
        "file": name,
        "samples": profile.total,
        "parts": {part.text: share for part, share in shares(first).items()},
        "phases": phases(first),
        "functions": [{"name": each.name, "self": each.self_count, "total": each.total_count} for each in top],
        "problems": list(profile.problems),
        "notes": list(profile.notes),
    }


def _problems(profile: Profile) -> Iterator[str]:
    for problem in profile.problems:
        yield f"{problem[:1].upper()}{problem[1:]}."
