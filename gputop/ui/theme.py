"""From the terminal and the settings to a look; from a look to what Textual draws around it."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from textual.theme import BUILTIN_THEMES, Theme

from gputop.safe.output import plain, understood
from gputop.ui.look import ASCII, DARK, LIGHT, PLAIN, TERMINAL, UNICODE, Look, Palette

PALETTES: dict[str, Palette] = {"dark": DARK, "light": LIGHT, "terminal": TERMINAL}


def choose(theme: str, ascii: str, encoding: str | None, environ: Mapping[str, str]) -> Look:
    """The look for a terminal: no colour where NO_COLOR is set, the user's own 16 where it has no more.

    `theme` is auto, dark, light or terminal; `ascii` is auto, on or off.
    """
    colours = Console(force_terminal=True, _environ=environ).color_system
    automatic = DARK if colours in ("256", "truecolor") else TERMINAL
    palette = PLAIN if environ.get("NO_COLOR") else PALETTES.get(theme, automatic)
    return Look(palette, ASCII if plain(ascii, understood(encoding, environ)) else UNICODE)


def is_native(look: Look) -> bool:
    """Whether the terminal's own colours are used, so that Textual must not turn them into others."""
    return look.palette.background is None


def textual_theme(look: Look) -> Theme:
    """The ground that Textual draws before any pane does."""
    palette = look.palette
    if is_native(look):
        return BUILTIN_THEMES["ansi-dark"]
    return Theme(
        palette.name, primary=palette.busy or "", foreground=palette.text, background=palette.background,
        surface=palette.raised, dark=palette is not LIGHT,
    )  # fmt: skip
