"""What a program may write to a terminal: the byte oracle, and the modes it leaves behind."""

from __future__ import annotations

import base64
import re
import unicodedata

# everything our driver and Textual's compositor emit, and nothing else
ALLOWED = re.compile(
    rb"\x1b\[(?:"
    rb"[\d;:]*m"  # colours and styles
    rb"|\d*;?\d*H"  # cursor
    rb"|\?(?:7|25|1000|1002|1003|1004|1006|1015|1016|1049|2004|2026|2048)[hl]"
    rb"|\?2026\$p"  # does the terminal know synchronised output?
    rb"|>\d+u|=\d+;2u|<u"  # keyboard protocol
    rb")"
    rb"|\r\n(?=\x1b\[\d+;\d+H)"  # between the lines of a full repaint
)
CLIPBOARD = re.compile(rb"\x1b\]52;c;([A-Za-z0-9+/]+={0,2})\x07")
_UNFINISHED = re.compile(rb"\x1b(?:\[[\d;?<>=$]*)?$")
_ENTER = b"\x1b[?1049h"
_LEAVE = b"\x1b[?1049l"
_CANCEL = b"\x18\x1b[?2026l"  # the guard's, before it resets a terminal that may be in the middle of a sequence

MODE = re.compile(rb"\x1b\[\?([\d;]+)([hl])|\x1b\[([<>])\d*u")
_ON_BY_DEFAULT = {7, 25}
KEYBOARD = 0  # the keyboard protocol has no number of its own


def oracle(data: bytes, clipboard: bool = False) -> list[str]:
    """What in these bytes no terminal should have got, each with its surroundings; empty is good.

    Other line ends and tabs may stand outside the full screen only.
    """
    if clipboard:
        data = CLIPBOARD.sub(lambda found: b"" if _harmless(found[1]) else found[0], data)
    # what was read so far may end in the middle of a sequence, or of a character
    data = _UNFINISHED.sub(b"", data.replace(_CANCEL, b""))
    found: list[str] = []
    for number, part in enumerate(data.split(_ENTER)):
        full_screen, _, after = part.rpartition(_LEAVE)
        if not full_screen and number:
            full_screen, after = after, b""
        found += _violations(full_screen, "")
        found += _violations(after, "\r\n\t")
    return found


def copied(data: bytes) -> list[str]:
    """What was given to the clipboard, one text after the other."""
    return [base64.b64decode(found[1], validate=True).decode() for found in CLIPBOARD.finditer(data)]


def _harmless(encoded: bytes) -> bool:
    """Nothing in it would be obeyed by a shell or a terminal it is pasted into, and no terminal finds it too long."""
    text = base64.b64decode(encoded, validate=True).decode()
    return text.isprintable() and 0 < len(text) <= 2000


def _violations(data: bytes, controls: str) -> list[str]:
    try:
        text = ALLOWED.sub(b"", data).decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return [f"not UTF-8: {error.object[max(0, error.start - 20) : error.start + 20]!r}"]
        text = error.object[: error.start].decode()
    return [
        f"U+{ord(ch):04X} in {text[max(0, at - 20) : at + 20]!r}"
        for at, ch in enumerate(text)
        if ch not in controls and unicodedata.category(ch) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    ]


def modes_left_on(data: bytes) -> set[int]:
    """The modes that differ from a terminal's own at the end of these bytes: 1049, 1000, −25 for a hidden cursor."""
    left: set[int] = set()
    for match in MODE.finditer(data):
        if match[3]:
            (left.add if match[3] == b">" else left.discard)(KEYBOARD)
            continue
        for mode in map(int, match[1].split(b";")):
            on = match[2] == b"h"
            if mode in _ON_BY_DEFAULT:
                mode, on = -mode, not on
            (left.add if on else left.discard)(mode)
    return left


def modes_ever_on(data: bytes) -> set[int]:
    """Every private mode that was switched on at some time."""
    return {int(mode) for match in MODE.finditer(data) if match[2] == b"h" for mode in match[1].split(b";")}
