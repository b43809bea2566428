"""Colours can be read: contrast of everything that is text, on every ground it stands on."""

from __future__ import annotations

import pytest

from gputop.ui.theme import DARK, LIGHT, Palette

READ = ("text", "bright", "dim", "busy", "memory", "warn", "crit", "command", "owner")


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2.1 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """1 for equal colours, 21 for black on white (WCAG 2.1)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=lambda palette: palette.name)
@pytest.mark.parametrize("ground", ["background", "raised", "selected"])
def test_text_is_read_on_every_ground(palette: Palette, ground: str) -> None:
    assert round(contrast("#000000", "#ffffff"), 1) == 21
    found = {token: contrast(getattr(palette, token), getattr(palette, ground)) for token in READ}
    assert {token: round(value, 2) for token, value in found.items() if value < 4.5} == {}
