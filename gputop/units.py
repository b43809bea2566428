"""Numbers as short text and back: 66.1G, 1.9G/s; durations in a table, 6m 12s, and in a sentence, 6 min 12 s."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

UNKNOWN = "·"
_STEPS = ("", "K", "M", "G", "T", "P", "E")
_SPACE = re.compile(  # before a unit, between the units of a duration, and after a sign of comparison
    r"(?<=\d) (?=(?:%|µs|ms|s|min|h|d|°C|W|MHz|[kMGT]B(?:/s)?)(?![\w/]))"
    r"|(?:(?<=\d min)|(?<=\d h)|(?<=\d d)) (?=\d+ (?:s|min|h)\b)|(?<=[≤≥]) (?=\d)"
)
_JOINER = "\u2060"  # one character that no wrapping breaks at
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def size(value: float | None, zero: str = "0") -> str:
    """Bytes in at most five cells, binary steps: 512, 2.1G, 66.1G, 264G, 5.4T."""
    if value is None:
        return UNKNOWN
    step = 0
    while abs(value) >= 999.5 and step < len(_STEPS) - 1:
        value, step = value / 1024, step + 1
    if step == 0:
        return f"{value:.0f}" if value >= 0.5 else zero
    digits = 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f}{_STEPS[step]}"


def decimal(value: float) -> str:
    """Bytes in steps of a thousand, for a sentence: 820 kB, 4.2 MB, 1.5 GB."""
    for limit, unit in ((999.5e6, "GB"), (999.5e3, "MB"), (999.5, "kB")):
        if value >= limit:
            return f"{value / (limit / 0.9995):.3g} {unit}"
    return f"{value:.0f} bytes"


def rate(value: float | None) -> str:
    """Bytes/s for a column with /s in its title: 0, 58M, 1.9G; below 1 KiB/s counts as 0."""
    if value is None:
        return UNKNOWN
    if value < 1024:
        return "0"
    text = size(value)
    return text if "." not in text or value < 10 * 1024 or text[-1] in "GTPE" else f"{float(text[:-1]):.0f}{text[-1]}"


def count(value: float | None) -> str:
    """A plain number in at most four cells, decimal steps: 0, 412, 61k, 1.2M."""
    if value is None:
        return UNKNOWN
    for limit, divisor, suffix in ((9999.5, 1, ""), (999_500, 1e3, "k"), (999.5e6, 1e6, "M"), (float("inf"), 1e9, "G")):
        if abs(value) < limit:
            scaled = value / divisor
            return f"{scaled:.1f}{suffix}" if suffix and abs(scaled) < 9.95 else f"{scaled:.0f}{suffix}"
    return UNKNOWN


def percent(value: float | None) -> str:
    """A percentage without its sign: 0, 58, 1920."""
    return UNKNOWN if value is None else f"{value:.0f}"


def cpus(number: float) -> str:
    """A number of CPUs, with a decimal for a fractional quota: 8, 0.5."""
    return f"{number:.1f}".removesuffix(".0")


def clock(seconds: float | None) -> str:
    """Elapsed time for a column: 0:07, 12:31, 12:31:02, 2d04:11."""
    if seconds is None:
        return UNKNOWN
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d{hour:02}:{minute:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def took(seconds: float | None) -> str:
    """A duration in five cells: 380µs, 4.2ms, 45ms, 1.25s, 45.2s, 310s."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0.0009995:
        return f"{1e6 * seconds:.0f}µs"
    if seconds < 0.9995:
        return f"{1e3 * seconds:.{seconds < 0.00995:d}f}ms"
    return f"{seconds:.{(seconds < 9.995) + (seconds < 99.95)}f}s"


def took_text(seconds: float | None) -> str:
    """A duration in a sentence: 380 µs, 4.2 ms, 45 ms, 1.25 s, 45.2 s, 310 s."""
    return re.sub(r"(?<=\d)(?=\D+$)", " ", took(seconds))


def ago(seconds: float | None) -> str:
    """Elapsed time in few cells: 7s, 6m 12s, 2h 11m, 3d 4h."""
    return UNKNOWN if seconds is None else " ".join(f"{number}{unit}" for number, unit in _elapsed(seconds))


def ago_text(seconds: float | None) -> str:
    """Elapsed time in a sentence: 7 s, 6 min 12 s, 2 h 11 min, 3 d 4 h."""
    if seconds is None:
        return UNKNOWN
    return " ".join(f"{number} {'min' if unit == 'm' else unit}" for number, unit in _elapsed(seconds))


def _elapsed(seconds: float) -> Iterator[tuple[int, str]]:
    """Its largest unit, and the next smaller one unless that is zero."""
    whole = int(seconds)
    for unit, name, below, short in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= unit:
            yield whole // unit, name
            if rest := whole % unit // below:
                yield rest, short
            return
    yield whole, "s"


def roughly(seconds: float) -> str:
    """Elapsed time in a sentence, rounded so that it rarely changes: 40 s, 6 min, 2 h 10 min."""
    step = 10 if seconds < 60 else 60 if seconds < 3600 else 600
    return ago_text(seconds - seconds % step)


def unbroken(text: str) -> str:
    """The text with each number and its unit as one word, for wrapping; `spaced` undoes it."""
    return _SPACE.sub(_JOINER, text)


def spaced(text: str) -> str:
    """The text after wrapping, with the space between a number and its unit."""
    return text.replace(_JOINER, " ")


def duration(text: str) -> float:
    """Seconds from `90`, `60s`, `5m`, `8h`; ValueError says what is wrong."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)\s*", text)
    if not match:
        raise ValueError(f"{text!r} is not a duration: use a number with s, m or h, as in 60s")
    return float(match[1]) * _SECONDS[match[2]]


def ranges(numbers: tuple[int, ...]) -> str:
    """Integers as a list of ranges: (0, 1, 2, 5) is 0-2,5."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][-1:] = [parts[-1][-1], number] if len(parts[-1]) == 1 else [number]
        else:
            parts.append([number])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def parse_ranges(text: str) -> tuple[int, ...]:
    """The integers of a list of ranges: 0-2,5 is (0, 1, 2, 5); ValueError if invalid, or for a million and more."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        span = range(int(first), int(last or first) + 1)
        if len(span) + len(found) >= 1_000_000:
            raise ValueError(f"{text[:40]!r} is a list of too many numbers")
        found += span
    return tuple(found)


@lru_cache(maxsize=256)
def cpus_of(text: str | None) -> frozenset[int]:
    """The CPUs of a kernel CPU list, 0-7,64-71; empty if missing or invalid."""
    try:
        return frozenset(parse_ranges(text)) if text else frozenset()
    except ValueError:
        return frozenset()
