"""Keys as a terminal sends them: held down or typed ahead, and of keyboards that write other letters."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.events import Key
from textual.message import Message

STALE_S = 0.1  # a key that has waited so long is shown together with the next of its kind
# keys that move; what acts is done once for each press, in order
MOVING = frozenset({"up", "down", "pageup", "pagedown", "home", "end", "j", "k", "tab", "shift+tab"})


class HeldKey(Key):
    """A key as the terminal sends it; `times` it was pressed without anything in between."""

    __slots__ = ["_clock", "at_s", "times"]

    def __init__(self, key: str, character: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(key, character)
        self.times = 1
        self.at_s = clock()
        self._clock = clock

    def can_replace(self, message: Message) -> bool:
        """Whether the message that waits behind this one stands for both: it then counts this one too."""
        if not isinstance(message, HeldKey) or message.key != self.key or self.key not in MOVING:
            return False
        if self._clock() - self.at_s < STALE_S:
            return False
        message.times += self.times
        message.at_s = self.at_s
        return True


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
