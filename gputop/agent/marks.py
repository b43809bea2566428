"""Moments and numbers that the program itself notes, for whoever asks the agent."""

from __future__ import annotations

import time

_MOST = 10_000

marks: list[tuple[float, str, float]] = []  # Unix seconds, name, value


def mark(name: str, value: float = 1.0) -> None:
    """Note a moment or a number of the training; the last 10,000 are kept. What is no number is left out."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # the job is worth more than a note
        return
    if len(marks) >= _MOST:
        del marks[: _MOST // 10]
    marks.append((time.time(), str(name)[:80], number))
