"""Keys of keyboards that write other letters: which key of a Latin keyboard stands in the same place."""

from __future__ import annotations

from textual.events import Key
from textual.keys import _character_to_key

# the letters of each layout, key by key, and those of a Latin keyboard in the same places
_PLACES = (
    ("йцукенгшщзхъфывапролджэячсмитьбюё", "qwertyuiop[]asdfghjkl;'zxcvbnm,.`"),  # Russian
    ("іїєґў", "s]'\\o"),  # Ukrainian, Belarusian, where they differ
    ("ςερτυθιοπασδφγηξκλζχψωβνμ", "wertyuiopasdfghjklzxcvbnm"),  # Greek
    ("קראטוןםפשדגכעיחלךףזסבהנמצתץ", "ertyuiopasdfghjkl;zxcvbnm,."),  # Hebrew
    (
        "ضصثقفغعهخحجدشسيبلاتنمكطئءؤرىةوزظ",
        "qwertyuiop[]asdfghjkl;'zxcvnm,./",
    ),  # Arabic, without its one key of two letters
    ("ㅂㅈㄷㄱㅅㅛㅕㅑㅐㅔㅁㄴㅇㄹㅎㅗㅓㅏㅣㅋㅌㅊㅍㅠㅜㅡ", "qwertyuiopasdfghjklzxcvbnm"),  # Korean
)
_LATIN = {other: latin for others, latins in _PLACES for other, latin in zip(others, latins, strict=True)}
_LATIN |= {
    other.upper(): latin.upper()
    for other, latin in _LATIN.items()
    if other.upper() != other and len(other.upper()) == 1
}


def latin(key: Key, base: str = "") -> Key:
    """The key by its place, with the character that was typed; as it is where that is a Latin one.

    `base` is the character of its place where the terminal reports it (kitty's keyboard protocol: base layout key);
    else the layouts that are known here are asked.
    """
    *modifiers, name = key.key.split("+") if key.key != "+" else [key.key]
    if len(name) != 1 or name.isascii():
        return key
    place = base or _LATIN.get(name, "")
    if not place or not place.isascii() or not place.isprintable():
        return key
    if base and name.isupper():
        place = place.upper()
    return Key("+".join([*modifiers, _character_to_key(place)]), key.character)
