"""What programs write into a trace that is not JSON, put right: paths of Windows, bare nan and inf, raw names."""

from __future__ import annotations

import json
import re
from typing import Any

from gputop.trace.names import UNQUOTED

PATHS, NUMBERS, CONTROLS, QUOTES = "paths of Windows", "nan, inf", "tabs and line ends in names", "quotes in names"
COMMAS = "commas"  # between events, or entries of the head: missing, or more than one
_BARE = re.compile(
    r"(?<=[:,\[\s])(?!-?(?-i:NaN|Infinity)\b)([-+]?)(nan|inf(?:inity)?)(?:\([a-z0-9]*\))?(?=\s*[,\]}])", re.IGNORECASE
)
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CONTROL = re.compile(r"[\x01-\x1f]")
_KEY = re.compile(r'"\s*:')  # in a name: the end of that is missing, and it goes on in the next event
_AFTER = re.compile(r"\s*(?:[,\]]|$)")  # what follows an event
_MOST_QUOTES = 100  # in one event
_MOST_CHARS = 1 << 16  # of such an event

Found = dict[str, int]  # how many of each kind
lenient = json.JSONDecoder(strict=False).raw_decode


def mended(part: str) -> tuple[str, Found]:
    """The text with bare words and wrong escapes put right, and how many.

    Old files of Kineto have N/A without quotes, which is known and not counted.
    """
    part = UNQUOTED.sub("null", part)
    paths = 0
    if "\\" in part:
        part, paths = _escaped(part)
    part, bare = _BARE.subn(_json_number, part)
    return part, {PATHS: paths, NUMBERS: bare}


def controls(part: str) -> Found:
    """How many strings of a text hold characters that JSON wants escaped; the text is JSON but for that."""
    return {CONTROLS: sum(1 for text in _STRING.finditer(part) if _CONTROL.search(text[0]))}


def event(text: str, at: int) -> tuple[Any, int, Found] | None:
    """The event that begins here, though raw tabs, line ends or quotes are in its strings; where it ends, what it had.

    None where that does not put it right, or only by taking a part of the next event for a name.
    """
    part = text[at : at + _MOST_CHARS]
    places: list[int] = []  # where a quote is escaped now, in the text with the others escaped
    while len(places) <= _MOST_QUOTES:
        try:
            value, end = lenient(part)
            wrong = [] if _AFTER.match(part, end) else [_quote_before(part, end)]
        except json.JSONDecodeError as error:
            value, end, wrong = None, 0, _quotes(part, error)
        except (RecursionError, ValueError):  # too deep, or a number too long to be read
            return None
        if wrong and wrong[0] >= 0:
            for place in reversed(wrong):
                part = f"{part[:place]}\\{part[place:]}"
                places = [known + (known > place) for known in places] + [place]
            continue
        if wrong or not end:
            return None
        whole, raw = part[:end], controls(part[:end])
        strings = [found for found in _STRING.finditer(whole) if any(found.start() < p < found.end() for p in places)]
        if "\0" in whole or any(_KEY.search(found[0]) or "\n" in found[0] for found in strings):
            return None
        return value, at + end - len(places), {**raw, QUOTES: len(strings)}
    return None


def _quotes(part: str, error: json.JSONDecodeError) -> list[int]:
    """The quotes that ended a string too early, or began one within another, by what the decoder stumbled over."""
    close = _quote_before(part, error.pos)
    if close < 0 or part[close + 1 : error.pos].strip(" \t\r\n,"):
        return []
    if error.msg.startswith(("Expecting ',' delimiter", "Expecting property name")):
        return [close]
    if error.msg.startswith("Expecting ':' delimiter"):  # what it took for a key belongs to the value before
        begin = _quote_before(part, close)
        before = _quote_before(part, begin)
        if before >= 0 and not part[before + 1 : begin].strip(" \t\r\n,"):
            return [before, begin]
    return []


def _quote_before(part: str, at: int) -> int:
    """The last quote before a place that no backslash escapes; -1 where there is none."""
    while (at := part.rfind('"', 0, max(at, 0))) >= 0:
        if (at - len(part[:at].rstrip("\\"))) % 2 == 0:
            return at
    return -1


def _escaped(part: str) -> tuple[str, int]:
    """Backslashes that escape nothing stand for themselves: a path of Windows."""
    wrong = 0

    def better(found: re.Match[str]) -> str:
        nonlocal wrong
        if len(found[0]) > 1:
            return found[0]
        wrong += 1
        return "\\\\"

    return _ESCAPE.sub(better, part), wrong


def _json_number(found: re.Match[str]) -> str:
    minus = "-" if found[1] == "-" else ""
    return "NaN" if found[2].lower() == "nan" else f"{minus}Infinity"
