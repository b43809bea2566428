"""Which names say that their value is a secret: of an option, of a variable, and before `=` or `:` in any text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

Place = Literal["option", "variable", "text"]

_WORD = re.compile(r"[a-z]+")
_NOTHING: frozenset[str] = frozenset()
_TOKENS = """
    pad eos bos eot eod unk mask cls sep stop special start end image video audio placeholder initializer
    per max min num first last next
"""
_KEYS = """
    sort group primary foreign public cache state label image video audio text input output data dataset prompt
    response target source feature hash partition lookup row column json dict metric monitor eval reward loss
    score batch sample index order join unique shuffle seed config name field query value message messages
    content caption question answer id map time object num per head model param weight layer train val file
    past next last first mixed cross self sub missing unexpected
    hot mon don tur hoc joc lac whis
"""
_PASSES = "ask by com encom tres sur over under low high band all forward backward single multi num"
# how a name ends, also without anything between the words, and what before that makes it something else
_ENDINGS = {
    **dict.fromkeys(("password", "passwd", "passphrase", "passcode", "secret", "credential", "credentials"), _NOTHING),
    "token": frozenset(_TOKENS.split()),
    "key": frozenset(_KEYS.split()),
    "pass": frozenset(_PASSES.split()),
    "pwd": frozenset({"old"}),
    "pw": _NOTHING,
}
# nearly every key or token in a variable is some service's: few words make it something else
_NOBODYS = frozenset({"public", "foreign", "primary", "sort", "pad", "eos", "bos", "hot", "mon", "don", "tur"})
_OF_VARIABLES = {**_ENDINGS, **{ending: _ENDINGS[ending] & _NOBODYS for ending in ("key", "token")}}
# words of their own that end a name
_WORDS = frozenset(
    {
        "auth",
        "cred",
        "creds",
        "cookie",
        "webhook",
        "dsn",
        "jwt",
        "psk",
        "pat",
        "otp",
        "pin",
        "bearer",
        "sessionid",
        "connectionstring",
    }
)
_PAIRS = frozenset(
    {("session", "id"), ("connection", "string"), ("webhook", "url"), ("amz", "signature"), ("goog", "signature")}
)
# anywhere in the name of a variable, which is seldom a number to train with
_INSIDE = re.compile(r"pass(?:word|wd|phrase|code)|token(?!i[sz])|secret|credential|private|cookie|webhook")
# what says nothing alone: in a text they are words of code and of sentences
_ALONE: dict[Place, frozenset[str]] = {
    "option": _NOTHING,
    "variable": frozenset({"pwd"}),
    "text": frozenset({"key", "pass", "pw", "pwd", "pat", "otp", "pin"}),
}
_COUNTED = frozenset({"token", "key", "auth", "id"})  # words that also stand for what has numbers


SWITCH = re.compile(r"[01]|true|false|yes|no|on|off|none|null", re.IGNORECASE)
_NUMBER = re.compile(r"(?=.{1,7}\Z)-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)


def is_secret(name: str, value: str, place: Place) -> bool:
    """Whether the value that stands under a name is to be masked, by the name alone: no number, no yes or no."""
    said, value = _said(name, place), value.strip(",;)]}")
    if not said or SWITCH.fullmatch(value):
        return False
    if said == "pwd" and value.startswith("/"):  # what containers call the folder they work in
        return False
    return not (said in _COUNTED and _NUMBER.fullmatch(value))


@lru_cache(maxsize=4096)
def _said(name: str, place: Place) -> str:
    """The word of the name that says so; empty if none does."""
    words = _WORD.findall(name.lower())
    if len(words) == 1 and words[0] in _ALONE[place]:
        return ""
    pairs = list(zip(("", *words), words, strict=False))
    for before, word in pairs if place == "variable" else pairs[-1:]:
        if said := _ending(word, before, _OF_VARIABLES if place == "variable" else _ENDINGS):
            return said
    if place != "variable":
        return ""
    inside = _INSIDE.search(" ".join(word for word in words if not word.endswith(tuple(_ENDINGS))))
    return inside[0] if inside else ""


def _ending(word: str, before: str, endings: Mapping[str, frozenset[str]]) -> str:
    """What a word, with the one before it, says of a value."""
    if word in _WORDS:
        return word
    if (before, word) in _PAIRS:
        return word
    for ending, others in endings.items():
        if word.endswith(ending):
            return "" if (word[: -len(ending)] or before) in others else ending
    return ""
