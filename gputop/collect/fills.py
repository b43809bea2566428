"""Where each metric comes from: every one is filled by exactly one reader, or gputop does not start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def check(wanted: Iterable[str], filled: Iterable[str]) -> None:
    """TypeError unless the two hold the same names, each once."""
    declared, times = set(wanted), Counter(filled)
    if problems := [
        *(f"{name} is filled by nobody" for name in sorted(declared - times.keys())),
        *(f"{name} is not declared in the model" for name in sorted(times.keys() - declared)),
        *(f"{name} is filled {count} times" for name, count in sorted(times.items()) if count > 1),
    ]:
        raise TypeError("; ".join(problems))
