"""Messages on a misspelt name: the nearest known one. A module of one idea that every layer may use."""

from __future__ import annotations

from collections.abc import Iterable

_NEAR = 0.6  # similarity from which one word may be a misspelling of another
_LONGEST = 40


def nearest(given: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    from difflib import get_close_matches  # late, as only a mistake needs it

    return next(iter(get_close_matches(given.lower(), list(known), 1, _NEAR)), None)


def unknown(kind: str, given: str, known: Iterable[str], otherwise: str = "") -> str:
    """unknown rule 'thermel': did you mean thermal? Without a near name: `otherwise`, such as where all are listed."""
    near = nearest(given, known)
    hint = f"did you mean {near}?" if near else otherwise
    return f"unknown {kind} {given[:_LONGEST]!a}" + (f": {hint}" if hint else "")


def unknown_entry(kind: str, given: str, known: Iterable[str], table: str = "") -> str:
    """The same as part of a list: unknown setting 'intervall' (did you mean interval?). `table` precedes the names."""
    near = nearest(given, known)
    return f"unknown {kind} {table + given[:_LONGEST]!a}" + (f" (did you mean {table}{near}?)" if near else "")
