"""Every threshold moved by the same factor, as a site's file would: is a verdict one of these very numbers?"""

from __future__ import annotations

from gputop.thresholds import Thresholds, merged, shipped

_READS = ("rtt_s", "queue_s", "await_least_s")  # times of one request: values are held against them
_NO_RULES = ("classes", "experiments")


def moved(factor: float) -> Thresholds:
    """The shipped tables with all that a value is held against times `factor`; a limit for leaving goes along.

    Windows, ages and delays stay. A share or a percentage above one half is moved up by as much of what is left to the
    whole: else no value could reach it.
    """
    site = {
        table: {name: _moved(name, number, factor) for name, number in numbers.items() if _is_limit(name)}
        for table, numbers in shipped().items()
        if table not in _NO_RULES
    }
    tables, unused = merged(site)
    assert not unused
    return tables


def _is_limit(name: str) -> bool:
    is_time = name.endswith("_s") and not name.endswith("_per_s") and name not in _READS
    return not is_time and not name.endswith("_exit")


def _moved(name: str, number: float, factor: float) -> float:
    whole = 100.0 if name.endswith("_percent") else 1.0 if abs(number) <= 1 else None
    if whole is None or factor <= 1 or number <= whole / 2:
        return number * factor
    return whole - (whole - number) * (2 - factor)
