"""Which characters who reads a stream understands."""

from __future__ import annotations

import sys
from collections.abc import Mapping


def plain(ascii: str, encoding: str | None) -> bool:
    """Whether a stream of this encoding gets ASCII only; `ascii` is the setting: auto, on or off."""
    return ascii == "on" or (ascii != "off" and not _is_utf8(encoding or ""))


def understood(encoding: str | None, environ: Mapping[str, str]) -> str:
    """The encoding of who reads a standard stream that Python writes in this one.

    In the C locale, and in one that is not installed, Python writes UTF-8 whoever reads (PEP 538, PEP 540). A locale
    that is named and does not say UTF-8 is believed; none named, as in most containers, says nothing.
    """
    unasked = sys.flags.utf8_mode and not (environ.get("PYTHONUTF8") or environ.get("PYTHONIOENCODING"))
    named = environ.get("LC_ALL") or environ.get("LANG") or "UTF-8"  # LC_CTYPE: Python has put its own there
    return "ascii" if unasked and not _is_utf8(named) else encoding or "ascii"


def _is_utf8(name: str) -> bool:
    """Whether an encoding, or the one that a locale names, is UTF-8."""
    return name.lower().replace("-", "").partition("@")[0].endswith("utf8")
