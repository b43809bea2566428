"""How it looks: colours by meaning and the two glyph sets, chosen from the terminal and the settings.

Nothing else names a colour.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme

from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.output import plain, reader_encoding

Token = Literal[
    "text",  # values
    "bright",  # what to read first: names, headlines, the evidence's numbers
    "dim",  # labels, units, zeros, loaders, repeated owners
    "faint",  # tree lines and rules
    "track",  # the empty part of a bar
    "busy",  # GPU bars and sparklines, keys
    "memory",  # what is memory: VRAM, the optimizer
    "busy area",  # the inside of a large chart: a calm shade of busy
    "memory area",
    "good area",  # the bars and charts of what is in that state
    "warn area",
    "crit area",
    "good",  # healthy
    "warn",
    "crit",
    "command",  # what can be copied
    "owner",  # the owner of a job
]
Ground = Literal["background", "raised", "selected"]  # screen; header and key bar; the cursor's row


@frozen_dataclass(frozen=True, slots=True)
class Palette:
    """A colour for each token, as Rich understands colours; None leaves the terminal's own."""

    name: str
    text: str | None
    bright: str | None
    dim: str | None
    faint: str | None
    track: str | None
    busy: str | None
    memory: str | None
    busy_area: str | None
    memory_area: str | None
    good_area: str | None
    warn_area: str | None
    crit_area: str | None
    good: str | None
    warn: str | None
    crit: str | None
    command: str | None
    owner: str | None
    background: str | None
    raised: str | None
    selected: str | None


DARK = Palette(
    "gputop",
    text="#c9d1d9", bright="#f0f4f8", dim="#87919f", faint="#333c48", track="#1f2731",
    busy="#58a6d6", memory="#8f8fdc", busy_area="#3b6d8e", memory_area="#5d5d97",
    good_area="#3f7a52", warn_area="#8f7038", crit_area="#9a4d47",
    good="#6cc287", warn="#e3a948", crit="#ee6a5f", command="#8ebf73", owner="#56b6a8",
    background="#10141a", raised="#181e26", selected="#1d2a3a",
)  # fmt: skip
LIGHT = Palette(
    "gputop-light",
    text="#24292f", bright="#0b0e12", dim="#59636e", faint="#c4ccd4", track="#e3e8ed",
    busy="#1a69a4", memory="#5b52b5", busy_area="#8fb9d8", memory_area="#b3aee0",
    good_area="#93c9a3", warn_area="#d9b871", crit_area="#e39d96",
    good="#1a6b35", warn="#8a5a00", crit="#b3261e", command="#3d6b1f", owner="#11665a",
    background="#fbfcfd", raised="#eef1f4", selected="#dbe7f3",
)  # fmt: skip
TERMINAL = Palette(  # the user's own 16 colours decide
    "terminal",
    text=None, bright=None, dim="bright_black", faint="bright_black", track="bright_black",
    busy="blue", memory="magenta", busy_area="blue", memory_area="magenta",
    good_area="green", warn_area="yellow", crit_area="red",
    good="green", warn="yellow", crit="red", command="green", owner="cyan",
    background=None, raised=None, selected=None,
)  # fmt: skip
PLAIN = Palette("plain", *(None,) * 20)  # NO_COLOR: bold, dim and reverse carry the meaning

_BOLD: frozenset[str] = frozenset({"bright", "warn", "crit"})
_FADED: frozenset[str] = frozenset({"dim", "faint", "track"})


@frozen_dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters that are drawn; every one is one cell wide in every font."""

    bar: str  # a cell of a bar; below a full one, so that rows do not melt
    track: str  # the empty part of a bar
    line: str  # the way through a recording
    levels: str  # sparkline and chart steps, lowest first; below a full cell, so that rows do not melt
    full: str  # the inside of a chart
    rule: str
    column: str
    branch: str
    last: str
    stem: str
    open: str
    shut: str
    cursor: str
    knob: str  # where a recording stands
    record: str
    picked: str  # inside ( )
    tag: str
    crit: str
    warn: str
    info: str
    down: str
    up: str
    before: str  # there are more to the left
    after: str
    dot: str
    degree: str
    times: str
    more: str  # the end of a text that was cut
    unknown: str
    mask: str  # in place of each character of a secret


UNICODE = Glyphs(
    bar="▇", track="▇", line="━", levels="▁▂▃▄▅▆▇", full="█", rule="─", column="│",
    branch="├─", last="└─", stem="│ ", open="▾", shut="▸", cursor=">", knob="┃", picked="•", record="●", tag="●",
    crit="▲", warn="!", info="-", down="▼", up="▲", before="‹", after="›",
    dot="·", degree="°", times="×", more="…", unknown="·", mask="•",
)  # fmt: skip
ASCII = Glyphs(
    bar="#", track=".", line="#", levels="_.-^", full=":", rule="-", column="|", branch="+-", last="`-", stem="| ",
    open="v", shut=">", cursor=">", knob="|", picked="*", record="*", tag="*",
    crit="!!", warn="!", info="-", down="v", up="^", before="<", after=">",
    dot=".", degree=" ", times="x", more="~", unknown=".", mask="*",
)  # fmt: skip


@frozen_dataclass(frozen=True, slots=True)
class Look:
    """A palette and a glyph set: what every pane is drawn with."""

    palette: Palette = DARK
    glyphs: Glyphs = UNICODE
    faded: bool = False  # all of it is of the past: nothing stands out

    @property
    def track(self) -> str:
        """The empty part of a bar; without colour it must differ from the full part by its shape."""
        return self.glyphs.rule if self.palette is PLAIN and self.glyphs is UNICODE else self.glyphs.track

    def style(self, token: Token, *, on: Ground = "background", bold: bool = False, reverse: bool = False) -> Style:
        """The style of a token on a ground."""
        if self.faded:
            token, bold = token if token in _FADED else "dim", False
        return _style(self.palette, token, on, bold, reverse)

    def ink(
        self, text: str, token: Token = "text", *, on: Ground = "background", bold: bool = False, reverse: bool = False
    ) -> Segment:
        """A piece of a line."""
        return Segment(text, self.style(token, on=on, bold=bold, reverse=reverse))


@cache
def _style(palette: Palette, token: Token, on: Ground, bold: bool, reverse: bool) -> Style:
    colour, ground = getattr(palette, token.replace(" ", "_")), getattr(palette, on)
    without_ground = ground is None
    if without_ground and on == "selected":  # reversed: one colour, or it would be a chequerboard
        return Style(bold=bold or None, reverse=True)
    return Style(
        color=colour,
        bgcolor=ground,
        bold=bold or (colour is None and token in _BOLD) or None,
        dim=(palette is PLAIN and token in _FADED) or None,
        reverse=reverse or None,
    )


PALETTES: dict[str, Palette] = {"dark": DARK, "light": LIGHT, "terminal": TERMINAL}


def choose(theme: str, ascii: str, encoding: str | None, environ: Mapping[str, str]) -> Look:
    """The look for a terminal: no colour where NO_COLOR is set, the user's own 16 where it has no more.

    `theme` is auto, dark, light or terminal; `ascii` is auto, on or off.
    """
    colours = Console(force_terminal=True, _environ=environ).color_system
    automatic = DARK if colours in ("256", "truecolor") else TERMINAL
    palette = PLAIN if environ.get("NO_COLOR") else PALETTES.get(theme, automatic)
    return Look(palette, ASCII if plain(ascii, reader_encoding(encoding, environ)) else UNICODE)


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
