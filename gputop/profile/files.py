"""Parse profiles: collapsed stacks as of flamegraph.pl and py-spy's raw format, or speedscope files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gputop.profile.code import LONGEST, frame
from gputop.profile.stacks import MOST_DEPTH, Profile, SampledThread
from gputop.safe.files import Refused
from gputop.safe.text import clean

MOST_FRAMES = 200_000
# py-spy's thread names in speedscope; its frames outside all others; our thread names
_PY_SPY = re.compile(r'(?:Process (\d+) )?Thread (\S+)(?: "(.*)")?', re.DOTALL)
_PROCESS, _THREAD = re.compile(r"process (\d+):"), re.compile(r"thread \((\S+)\)(?:: ?(.*))?", re.DOTALL)
SERVICE = re.compile(r"\bmultiprocessing\.(resource_tracker|forkserver) import")  # in a command line
_OURS = re.compile(r"(.*) \((\d+)(?: of (\d+))?\)", re.DOTALL)
_JSON = re.compile(r'[\ufeff\s]*(?:\{\s*(?:"[^"\n]*(?:"\s*:|\Z)|\}\s*\Z|\Z)|\[\s*(?:\{|\]\s*\Z|\Z))')
_CELL = re.compile(
    r"[-\d.:/ TZ]*\d[-\d.:/ TZ]*(?: ?(?:%|MiB|W|MHz|C))?|\[?N/A\]?|"
)  # CSV cells: a number, a time, or empty
_MILLISECONDS = {"seconds": 1e3, "milliseconds": 1.0, "microseconds": 1e-3, "nanoseconds": 1e-6}


def is_json(text: str) -> bool:
    """Whether a file with this beginning is JSON: a thread or function name may start with a bracket, too."""
    return _JSON.match(text) is not None


def parse(text: str) -> Profile:
    """A profile from the text of a file; Refused says in one line why it is not one."""
    if not is_json(text):
        return _raw(text.split("\n"))  # a name may contain any other line separator
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise Refused("truncated or damaged: profile again, and let the profiler finish") from None
    return _speedscope(data)


def _raw(lines: Iterable[str]) -> Profile:
    profile, strange, cells = Profile(), 0, 0
    for line in lines:
        cells += _is_cells(line[:LONGEST])
        stack, _, count = line.rstrip("\r").rpartition(" ")
        if stack and count.isascii() and count.isdigit() and len(count) < 16:
            names = tuple(clean(name, LONGEST) for name in stack.split(";")[: MOST_DEPTH + 1])
            profile.add(_with_thread(names, profile), int(count))
        else:
            strange += bool(line.strip())
    if 2 * cells > len(profile.stacks) + strange:
        raise Refused("looks like a CSV without a header: nvidia-smi --query-gpu=... --format=csv writes one")
    if strange >= len(profile.stacks):  # any text may have lines ending in a number
        raise Refused(
            "it is neither a torch trace, a profile of py-spy, a table of torch.profiler, nvidia-smi -q or its CSV, "
            "a memory snapshot, nor a log with a known error"
        )
    if strange:
        profile.problems.append(f"{strange} line{'s' * (strange != 1)} left out: not a stack with a count")
    return profile


def _is_cells(line: str) -> bool:
    """Whether a line is CSV cells, half of them numbers or times; a C++ frame may contain commas, too."""
    if ";" in line or line.count(",") < 2:
        return False
    cells = [cell.strip() for cell in line.split(",")]
    return 2 * sum(_CELL.fullmatch(cell) is not None for cell in cells) >= len(cells)


def _speedscope(data: Any) -> Profile:
    try:
        profile, threads = Profile(), data["profiles"]
        of_several = len({found[1] for each in threads if (found := _PY_SPY.fullmatch(str(each["name"])))}) > 1
        served = set[str]()
        frames = [_frame(each, profile.files) for each in data["shared"]["frames"][:MOST_FRAMES]]
        for each in threads:
            first: tuple[str, ...] = ()
            found = _PY_SPY.fullmatch(str(each["name"]))
            if found is not None:
                first = (_named(profile, found[1], found[2], found[3] or ""),)
            elif len(threads) > 1:
                first = (_named(profile, None, "", str(each["name"])),)
            for stack, weight in _samples(each):
                places = tuple(frames[index] for index in stack[: MOST_DEPTH + 3] if index >= 0)
                if of_several and _is_helper(places):
                    served.update(first)
                    continue
                names = tuple(place for place in places if not (found and _is_root(place)))
                if names:
                    profile.add(first + names, weight)
    except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError, RecursionError):
        raise Refused("not a speedscope file: use py-spy record --format speedscope") from None
    if not profile.stacks:
        raise Refused("no samples: profile for longer")
    for name in served - {stack[0] for stack in profile.stacks}:
        del profile.threads[name]
    return profile


def _named(profile: Profile, pid: str | None, tid: str, name: str) -> str:
    """The thread name in front of its stacks, as in `Profile.threads`."""
    thread = SampledThread(int(pid) if pid else None, clean(tid, 32), clean(name, LONGEST))
    of = f" of {thread.pid}" if thread.pid is not None and thread.tid != pid else ""
    text = f"{thread.name} ({thread.tid}{of})" if thread.tid else thread.name
    profile.threads[text] = thread
    return text


def _with_thread(names: tuple[str, ...], profile: Profile) -> tuple[str, ...]:
    """A collapsed stack with its thread's name in front, if it starts with one of ours or of py-spy's."""
    process = _PROCESS.match(names[0])
    rest = names[1:] if process else names
    if rest and (thread := _THREAD.fullmatch(rest[0])):
        return (_named(profile, process[1] if process else None, thread[1], thread[2] or ""), *rest[1:])
    if ours := _OURS.fullmatch(names[0]):
        pid = ours[3] or (ours[2] if "MainThread" in ours[1] else None)
        return (_named(profile, pid, ours[2], ours[1]), *names[1:])
    if names[0] == "MainThread":
        return (_named(profile, None, "", names[0]), *names[1:])
    return names


def _is_root(name: str) -> bool:
    return _PROCESS.match(name) is not None or _THREAD.fullmatch(name) is not None


def _is_helper(places: Sequence[str]) -> bool:
    """Whether a stack belongs to a helper process of multiprocessing, which only waits.

    Processes forked by a fork server have its command line, but a longer stack.
    """
    if not places or not _PROCESS.match(places[0]) or not (service := SERVICE.search(places[0])):
        return False
    return service[1] != "forkserver" or not any(place.startswith("_serve_one (forkserver.py") for place in places)


def _frame(entry: Any, files: dict[str, str]) -> str:
    file, line = entry.get("file"), entry.get("line")
    name = clean(str(entry["name"]), LONGEST)
    if not file:
        return name
    text = frame(name, str(file), line if type(line) is int else None)
    files.setdefault(text, clean(str(file), 4 * LONGEST))
    return text


def _samples(entry: Any) -> Iterator[tuple[list[int], float]]:
    """The stacks of one thread with their samples, or milliseconds if weights differ much."""
    scale = _MILLISECONDS.get(entry.get("unit"), 1.0)
    if entry["type"] == "sampled":
        weights = entry.get("weights") or [1] * len(entry["samples"])
        if min(weights) == max(weights):  # py-spy gives each the time between two samples
            weights, scale = [1] * len(weights), 1.0
        yield from ((stack, scale * weight) for stack, weight in zip(entry["samples"], weights, strict=True))
        return
    opened: list[int] = []
    before = 0.0
    for event in entry["events"]:
        if opened and event["at"] > before:
            yield list(opened[: MOST_DEPTH + 1]), scale * (event["at"] - before)
        before = event["at"]
        if event["type"] == "O":
            opened.append(event["frame"])
        elif opened:
            opened.pop()
