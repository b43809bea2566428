"""Spans written as two events, begin and end: B and E of a thread, b and e of an id.

Ends are matched to begins by time: the file may have them in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

MOST = 300_000  # events kept
PHASES = frozenset("BEbe")
_BEGINS = frozenset("Bb")

ASYNC = " async"  # per thread: its spans that may overlap

Half = tuple[float, int, dict[str, Any]]  # time, position in the file, event


class Pairs:
    """Events of such spans, collected until all are there."""

    def __init__(self) -> None:
        self.count = 0  # complete spans
        self.dropped = 0  # events beyond the limit
        self.single: list[dict[str, Any]] = []  # unmatched events
        self._kept: dict[tuple[Any, ...], list[Half]] = {}
        self._events = 0

    def __len__(self) -> int:
        return self._events

    def add(self, event: dict[str, Any]) -> None:
        """Add a begin or end event; ValueError or TypeError if it has no usable time."""
        time = float(event["ts"])
        if not abs(time) < 1e18:
            raise ValueError("a time out of range")
        self._events += 1
        if self._events > MOST:
            self.dropped += 1
            return
        pid, tid = event.get("pid"), event.get("tid")
        if event["ph"] in "BE":
            key: tuple[Any, ...] = ("thread", pid, tid)
        else:
            key = ("id", pid, event.get("cat"), repr(event.get("id", event.get("id2", event.get("name")))))
        self._kept.setdefault(key, []).append((time, self._events, event))

    def spans(self) -> Iterator[dict[str, Any]]:
        """All spans as complete events; leaves the rest in `single`. Call once."""
        for key, halves in self._kept.items():
            halves.sort(key=lambda half: half[:2])
            opened: list[Half] = []
            for _, together in groupby(halves, key=lambda half: half[0]):
                for begin, end in self._closed(opened, list(together)):
                    self.count += 1
                    yield _complete(begin, end, apart=key[0] == "id" and key[2] != "user_annotation")
            self.single += [event for _, _, event in opened]
        self._kept.clear()

    def _closed(self, opened: list[Half], together: list[Half]) -> Iterator[tuple[Half, Half]]:
        """Match events of equal time: named ends of earlier spans first."""
        if all(isinstance(event.get("name"), str) for _, _, event in together):
            before = {event.get("name") for _, _, event in opened}
            together.sort(key=lambda half: 1 if half[2]["ph"] in _BEGINS else 0 if half[2]["name"] in before else 2)
        for half in together:
            if half[2]["ph"] in _BEGINS:
                opened.append(half)
                continue
            place = _place(opened, half[2])
            if place is None:
                self.single.append(half[2])
            else:
                yield opened.pop(place), half


def _place(opened: list[Half], end: dict[str, Any]) -> int | None:
    """Index of the open span that an end belongs to: the innermost of its name, or without a name the innermost."""
    if not opened:
        return None
    if end.get("name") is None:
        return len(opened) - 1
    names = (place for place in reversed(range(len(opened))) if opened[place][2].get("name") == end["name"])
    return next(names, None)


def _complete(begin: Half, end: Half, *, apart: bool) -> dict[str, Any]:
    """Both as one complete event; operators of an id may overlap others of their thread and get a separate one."""
    event = begin[2]
    args, more = event.get("args"), end[2].get("args")
    known = {**(args if isinstance(args, dict) else {}), **(more if isinstance(more, dict) else {})}
    made = {**event, "ph": "X", "ts": begin[0], "dur": end[0] - begin[0], "args": known}
    if apart:
        made["args"] = {"stream": event.get("tid"), **known}
        made["tid"] = f"{event.get('tid')}{ASYNC}"
    return made
