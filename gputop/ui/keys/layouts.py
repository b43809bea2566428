"""Keys of keyboards that write other letters: which key of a Latin keyboard stands in the same place."""

from __future__ import annotations

# the letters of each layout, key by key, and those of a Latin keyboard in the same places
_PLACES = (
    ("йцукенгшщзхъфывапролджэячсмитьбюё", "qwertyuiop[]asdfghjkl;'zxcvbnm,.`"),  # Russian
    ("іїєґў", "s]'\\o"),  # Ukrainian, Belarusian, where they differ
    ("ςερτυθιοπασδφγηξκλζχψωβνμ", "wertyuiopasdfghjklzxcvbnm"),  # Greek
    ("קראטוןםפשדגכעיחלךףזסבהנמצתץ", "ertyuiopasdfghjkl;zxcvbnm,."),  # Hebrew
    ("ضصثقفغعهخحجدشسيبلاتنمكطئءؤرىةوزظ", "qwertyuiop[]asdfghjkl;'zxcvnm,./"),  # Arabic, without the key of two letters
    ("ㅂㅈㄷㄱㅅㅛㅕㅑㅐㅔㅁㄴㅇㄹㅎㅗㅓㅏㅣㅋㅌㅊㅍㅠㅜㅡ", "qwertyuiopasdfghjklzxcvbnm"),  # Korean
)
_LATIN = {other: latin for others, latins in _PLACES for other, latin in zip(others, latins, strict=True)}
_LATIN |= {
    other.upper(): latin.upper()
    for other, latin in _LATIN.items()
    if other.upper() != other and len(other.upper()) == 1
}


def latin(letter: str, base: str = "") -> str:
    """The key in the place of a letter; the letter itself where it is a Latin one, or its place is not known.

    `base` is the character of its place where the terminal reports it (kitty's keyboard protocol: base layout key);
    else the layouts that are known here are asked.
    """
    if len(letter) != 1 or letter.isascii():
        return letter
    place = base or _LATIN.get(letter, "")
    if not place or not place.isascii() or not place.isprintable():
        return letter
    return place.upper() if base and letter.isupper() else place
