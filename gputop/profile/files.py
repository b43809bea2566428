"""Reads a profile: collapsed stacks, as flamegraph.pl and py-spy's raw format have them, or a speedscope file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from gputop.profile.stacks import MOST_DEPTH, Profile
from gputop.safe.files import Refused
from gputop.safe.text import clean

MOST_FRAMES = 200_000
_LONGEST = 300  # characters of the name of a frame
_MILLISECONDS = {"seconds": 1e3, "milliseconds": 1.0, "microseconds": 1e-3, "nanoseconds": 1e-6}


def parse(text: str) -> Profile:
    """A profile from the text of a file; Refused says in one line why it is none."""
    if text.lstrip("\ufeff \t\r\n")[:1] != "{":
        return _raw(text.split("\n"))  # a name may hold any other end of a line
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise Refused("it is cut or damaged: profile again, and let the profiler end by itself") from None
    return _speedscope(data)


def _raw(lines: Iterable[str]) -> Profile:
    profile, strange = Profile(), 0
    for line in lines:
        stack, _, count = line.rstrip("\r").rpartition(" ")
        if stack and count.isascii() and count.isdigit() and len(count) < 16:
            profile.add(tuple(clean(name, _LONGEST) for name in stack.split(";")[: MOST_DEPTH + 1]), int(count))
        else:
            strange += bool(line.strip())
    if strange >= len(profile.stacks):  # any text has lines that end in a number
        raise Refused("it is neither a torch trace, nor speedscope, nor collapsed stacks")
    if strange:
        profile.notes.append(f"{strange} lines are no stacks")
    return profile


def _speedscope(data: Any) -> Profile:
    try:
        frames = [_frame(each) for each in data["shared"]["frames"][:MOST_FRAMES]]
        profile, threads = Profile(), data["profiles"]
        for each in threads:
            first = (clean(str(each["name"]), _LONGEST),) if len(threads) > 1 else ()
            for stack, weight in _samples(each):
                names = tuple(frames[index] for index in stack[: MOST_DEPTH + 1] if index >= 0)
                if names:
                    profile.add(first + names, weight)
    except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError, RecursionError):
        raise Refused("it is no speedscope file: use py-spy record --format speedscope") from None
    if not profile.stacks:
        raise Refused("it has no samples: profile for longer")
    return profile


def _frame(entry: Any) -> str:
    where = entry.get("file")
    line = entry.get("line")
    name = clean(str(entry["name"]), _LONGEST)
    if not where or "(" in name:
        return name
    place = clean(str(where).rpartition("/")[2], _LONGEST // 2)
    return f"{name} ({place}:{line})" if type(line) is int else f"{name} ({place})"


def _samples(entry: Any) -> Iterator[tuple[list[int], float]]:
    """The stacks of one thread with their samples, or milliseconds where they weigh unlike much."""
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
