"""What SGR sequences do to the look of the next character, and the shortest sequence from one look to another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

UNKNOWN = "\0"  # the pen after a sequence that we do not understand
_ANY = "any"  # ink of a blank

_OFF = {"22": "12", "23": "3", "24": "4", "25": "5", "27": "7", "28": "8", "29": "9"}
_OFF_BY = {on: off for off, ended in _OFF.items() for on in ended}
_SEEN_ON_BLANKS = frozenset("479")  # underline, reverse, strike
_INKS = frozenset(map(str, (*range(30, 38), *range(90, 98))))
_GROUNDS = frozenset(map(str, (*range(40, 48), *range(100, 108))))


class Look(NamedTuple):
    """Ground, attributes and ink as parameters of SGR; empty is the terminal's own."""

    ground: str = ""
    attributes: str = ""
    ink: str = ""


class Pens:
    """Looks by pen. A pen is one character, so that the looks of a line are a string as long as its text."""

    def __init__(self) -> None:
        self._looks: list[Look] = []
        self._pens: dict[Look, str] = {}
        self._turned: dict[tuple[str, str], str] = {}
        self._blanks = {UNKNOWN: UNKNOWN}
        self._joined: dict[tuple[str, str], str] = {}
        self._steps: dict[tuple[str, str], tuple[str, str]] = {}
        self._pen(Look(UNKNOWN))

    def look(self, pen: str) -> Look:
        """What a pen looks like. In this order neighbours have most in common."""
        return self._looks[ord(pen)]

    def turn(self, pen: str, sequence: str) -> str:
        """The pen after one or more SGR sequences; UNKNOWN where that cannot be told."""
        known = self._turned.get((pen, sequence))
        if known is None:
            look = None if pen == UNKNOWN else self.look(pen)
            for parameters in sequence[2:-1].split("m\x1b["):
                look = _turned(look, parameters.split(";"))
            known = self._turned[pen, sequence] = UNKNOWN if look is None else self._pen(look)
        return known

    def blank(self, pen: str) -> str:
        """The pen for a blank that looks as in this one: of most looks only the ground is seen."""
        known = self._blanks.get(pen)
        if known is None:
            look = self.look(pen)
            seen = look.ink == _ANY or _SEEN_ON_BLANKS.intersection(look.attributes)
            known = self._blanks[pen] = pen if seen else self._pen(Look(look.ground, ink=_ANY))
        return known

    def join(self, pen: str, other: str) -> str:
        """One pen that does for both; empty if there is none."""
        known = self._joined.get((pen, other))
        if known is None:
            known = pen if pen == other or self.blank(pen) == other else other if self.blank(other) == pen else ""
            self._joined[pen, other] = known
        return known

    def step(self, pen: str, wanted: str) -> tuple[str, str]:
        """The shortest sequence from one pen to another, and the pen then; the other is known."""
        known = self._steps.get((pen, wanted))
        if known is None:
            known = self._steps[pen, wanted] = ("", pen) if self.join(pen, wanted) == pen else self._step(pen, wanted)
        return known

    def _step(self, pen: str, wanted: str) -> tuple[str, str]:
        old, new = self.look(pen), self.look(wanted)
        if new.ink == _ANY:
            kept = pen != UNKNOWN and not _SEEN_ON_BLANKS.intersection(old.attributes)
            new = old._replace(ground=new.ground) if kept else Look(new.ground)
        fresh = ";".join(["0", *_codes(Look(), new)]) if new != Look() else ""
        changed = fresh if pen == UNKNOWN else ";".join(_codes(old, new))
        return f"\x1b[{min(changed, fresh, key=len)}m", self._pen(new)

    def _pen(self, look: Look) -> str:
        pen = self._pens.get(look)
        if pen is None:
            pen = self._pens[look] = chr(len(self._looks))
            self._looks.append(look)
        return pen


def _turned(look: Look | None, parameters: list[str]) -> Look | None:
    rest = iter(parameters)
    for code in rest:
        if code in ("", "0"):
            look = Look()
        elif look is None:
            continue
        elif code in _OFF_BY:
            look = look._replace(attributes="".join(sorted({*look.attributes, code})))
        elif code in _OFF:
            look = look._replace(attributes="".join(on for on in look.attributes if on not in _OFF[code]))
        elif code in _INKS or code == "39":
            look = look._replace(ink="" if code == "39" else code)
        elif code in _GROUNDS or code == "49":
            look = look._replace(ground="" if code == "49" else code)
        elif colour := _colour(code, rest):
            look = look._replace(ink=colour) if code == "38" else look._replace(ground=colour)
        else:
            return None
    return look


def _colour(code: str, rest: Iterator[str]) -> str:
    if code not in ("38", "48"):
        return ""
    kind = next(rest, "")
    numbers = [next(rest, "") for _ in range({"5": 1, "2": 3}.get(kind, 0))]
    return ";".join((code, kind, *numbers)) if numbers and all(numbers) else ""


def _codes(old: Look, new: Look) -> list[str]:
    codes = list(dict.fromkeys(_OFF_BY[on] for on in old.attributes if on not in new.attributes))
    codes += [on for on in new.attributes if on not in old.attributes or _OFF_BY[on] in codes]
    if old.ink != new.ink:
        codes.append(new.ink or "39")
    if old.ground != new.ground:
        codes.append(new.ground or "49")
    return codes
