"""A Process with some fields changed, for a fifth of what dataclasses.replace costs: every member of a job is."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any

from gputop.model import Process

_NAMES = tuple(field.name for field in fields(Process))
_values = attrgetter(*_NAMES)
_put = {name: getattr(Process, name).__set__ for name in _NAMES}  # of the slots: __init__ would check nothing more
_puts = tuple(_put.values())


def changed(process: Process, **changes: Any) -> Process:
    """A copy with these fields; TypeError for one that there is not."""
    copy = object.__new__(Process)
    for put, value in zip(_puts, _values(process), strict=True):
        put(copy, value)
    for name, value in changes.items():
        if name not in _put:
            raise TypeError(f"a process has no {name}")
        _put[name](copy, value)
    return copy
