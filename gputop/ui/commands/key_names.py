"""What keys are called: by Textual, and by people."""

from __future__ import annotations

import re
import unicodedata

_NAMES = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "shift+tab": "S-Tab"}
# Textual's own names of characters; the others have their Unicode name
_CHARACTERS = {
    "slash": "/", "backslash": "\\", "at": "@", "minus": "-", "plus": "+", "underscore": "_", "less_than_sign": "<",
    "greater_than_sign": ">",
}  # fmt: skip
_WORDS = re.compile(
    r"f(?:[1-9]|1\d|2[0-4])|ctrl\+[a-z]|escape|enter|tab|shift\+tab|space|backspace|delete|insert|home|end"
    r"|pageup|pagedown|up|down|left|right"
)


def shown(key: str) -> str:
    """A key by its name among people: PgUp, Ctrl+C, S-Tab, F10, ?."""
    if key in _NAMES:
        return _NAMES[key]
    if key.startswith("ctrl+"):
        return f"Ctrl+{key[5:].upper()}"
    return key if len(key) == 1 else _character(key) or key.title()


def _character(key: str) -> str:
    if key in _CHARACTERS:
        return _CHARACTERS[key]
    try:
        found = unicodedata.lookup(key.replace("_", " "))
    except KeyError:
        return ""
    return found if found.isprintable() and not found.isspace() else ""


def read_key(text: str) -> str:
    """A key as a person writes it, and as help shows it, by Textual's name; ValueError when there is no such key."""
    if len(text) == 1 and text.isprintable() and not text.isspace():
        return text if text.isalnum() else _known(text)
    word = next((key for key, name in _NAMES.items() if text.lower() == name.lower()), text.lower())
    if _WORDS.fullmatch(word) or _character(word):
        return word
    raise ValueError(f"{text[:20]!a} is not a key")


def _known(character: str) -> str:
    for key, known in _CHARACTERS.items():
        if character == known:
            return key
    return unicodedata.name(character, character).lower().replace("-", "_").replace(" ", "_")
