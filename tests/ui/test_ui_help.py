"""Help, the key bar, the look: made of the declarations, at every width and for every terminal."""

from __future__ import annotations

from dataclasses import fields
from threading import Event

import pytest
from textual.events import MouseScrollDown, MouseScrollUp

from gputop.columns import COLUMNS
from gputop.demo import SCENARIOS
from gputop.demo.source import Demo
from gputop.diagnose import Finding, Subject
from gputop.diagnose.rules import RULES
from gputop.model import Cgroup, Gpu, NvLink, Process
from gputop.ui import theme
from gputop.ui.commands.table import COMMANDS
from gputop.ui.dialogs.explained import of_finding
from gputop.ui.theme import ASCII, DARK, LIGHT, PLAIN, TERMINAL, UNICODE, Look
from gputop.ui.widgets.cursor_list import WHEEL
from gputop.ui.widgets.drawing import wrap
from gputop.ui.widgets.key_bar import bar, chosen
from gputop.ui.widgets.strip_pane import Lines
from tests.headless_screens import Stage, play
from tests.scripted_jobs import frame

UTF8 = "UTF-8"
FULL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


async def pages(stage: Stage) -> list[str]:
    """The text of each page of the help, all of it."""
    await stage.press("h")
    found = []
    for _ in range(7):
        text = stage.text
        for _ in range(60):
            await stage.press("pagedown")
            if stage.text == text:
                break
            text, before = stage.text, text
            found.append(before)
        found.append(text)
        await stage.press("tab")
    return found


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 30)])
def test_help_has_every_key_column_metric_and_rule(size: tuple[int, int]) -> None:
    async def scene(stage: Stage) -> None:
        text = " ".join(await pages(stage))
        for name in (name for key in COMMANDS for name in key.names):
            assert f" {name} " in text
        for column in COLUMNS:
            assert f" {column.title} " in text
        for owner in (Gpu, Process, Cgroup, NvLink):
            for name in (field.name for field in fields(owner) if "unit" in field.metadata):
                assert name in text
        for rule in RULES:
            assert f" {rule} " in text

    play(scene, frame(), size=size)


def test_help_opens_on_the_keys_and_scrolls() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("h")
        assert "help: keys" in stage.lines[0]
        await stage.press("shift+tab")
        assert "help: rules" in stage.lines[0]
        assert "more" in stage.lines[-1]
        await stage.press("shift+tab")
        assert "help: glossary" in stage.lines[0]
        await stage.press("shift+tab")
        await stage.press("end", "home", "down", "up")
        assert stage.lines[1].split() == ["gpus"]
        third = stage.lines[1 + WHEEL]
        await stage.pilot._post_mouse_events([MouseScrollDown], Lines, offset=(5, 1))
        assert stage.lines[1] == third
        await stage.pilot._post_mouse_events([MouseScrollUp], Lines, offset=(5, 1))
        assert stage.lines[1].split() == ["gpus"]

    play(scene, frame(), size=(80, 24))


def test_f1_explains_what_is_under_the_cursor() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("M", "f1")
        assert "help: under the cursor" in stage.lines[0]
        assert stage.lines[1].startswith("  RSS "), "the column it is sorted by comes first"
        assert "dataloader" not in stage.lines[1]
        await stage.press("tab")
        assert "help: keys" in stage.lines[0]
        await stage.press("escape", "shift+tab", "f1")
        assert "at least one kernel was resident" in stage.text
        for word in ("judging", "iowait"):  # the advice, then the host
            await stage.press("escape", "shift+tab", "f1")
            assert f"  {word} " in stage.text

    play(scene, frame(), size=(120, 60))


def test_f1_explains_the_open_tab_of_a_process() -> None:
    demo = Demo(SCENARIOS["showcase"], anchor_s=1_795_185_127)
    newest = next(iter(demo.frames(Event())))
    rank = next(one for one in newest.processes if one.pid == 41207)

    async def scene(stage: Stage) -> None:
        stage.feed.details[rank.identity] = lambda wish: demo.inspect(rank.identity, wish)
        await stage.press("enter", "f1")
        assert "help: under the cursor" in stage.lines[0]
        assert "  INVOL/s " in stage.text
        assert "  SOFT " not in stage.text
        await stage.press("escape", "7", "f1")
        assert "  SOFT " in stage.text
        assert "  INVOL/s " not in stage.text

    play(scene, newest, size=(140, 60))


def test_f1_explains_the_columns_of_the_experiments() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("E", "f1")
        assert "help: under the cursor" in stage.lines[0]
        assert "  ALLOWED CPUS " in stage.text

    play(scene, frame(), size=(140, 60))


def test_f1_in_advice_explains_the_state_of_the_finding() -> None:
    subject = Subject(kind="job", name="llama")
    hang = Finding(rule="collective-wait", severity="crit", subject=subject, headline="hang", state="hang")
    first, *_ = list(of_finding(hang))
    assert first[0] == "hang"
    assert "No rank of its job makes progress" in first[1]


def test_what_is_searched_for_is_typed_and_narrows_every_page() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("h", "slash", *"q", "backspace", *"sort BY")
        assert "help: keys" in stage.lines[0], "q is a letter while one types"
        assert "choose the column" not in stage.text
        assert "by a letter, as in nvitop" in stage.text
        assert " search sort BY " in stage.lines[-1]
        await stage.press(*["backspace"] * 7, *"temperature slow", "tab", "tab", "tab", "tab")
        assert "help: metrics" in stage.lines[0]
        assert "slowdown_celsius" in stage.text
        assert "busy_percent" not in stage.text
        await stage.press("tab", "shift+tab", "shift+tab")
        assert "nothing found on this page" in stage.lines[1]
        await stage.press("escape")
        assert "USER" in stage.text, "the search has ended, the help is open"
        await stage.press("q")

    play(scene, frame(), size=(100, 40))


def test_a_key_that_does_nothing_now_says_why() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("h")
        lines = " ".join(stage.text.split())
        assert "UNAVAILABLE NOW" in lines
        assert "x no finding" in lines
        assert "D not a live machine" in lines
        assert "| < > [ ] { } 0 not a recording" in lines

    play(scene, frame(), size=(120, 60))


def test_words_are_wrapped_and_never_cut() -> None:
    text = "a collective that hangs, or " + "x" * 50
    assert " ".join(wrap(text, 12)) == text
    assert max(len(line) for line in wrap(text, 12)[:-1]) <= 12


def test_the_key_bar_keeps_the_important_keys() -> None:
    assert [key.id for key in chosen(COMMANDS, 18)] == ["help", "quit"]
    assert chosen(COMMANDS, 0) == []
    widths = [len(chosen(COMMANDS, width)) for width in range(120)]
    assert widths == sorted(widths)
    for width in range(12, 120):
        strip, spots = bar(COMMANDS, width, Look())
        assert strip.cell_length == width
        for start, end, key in spots:
            assert strip.text[start:end] == f"{key.names[0]} {key.title}"


def test_a_click_on_a_key_presses_it() -> None:
    async def scene(stage: Stage) -> None:
        await stage.pilot.click("#keys", offset=(stage.lines[-1].index("Freeze"), 0))
        assert " frozen " in stage.lines[0]
        await stage.pilot.click("#keys", offset=(stage.lines[-1].index("Help"), 0))
        assert "help: under the cursor" in stage.lines[0]

    play(scene, frame())


@pytest.mark.parametrize(
    ("setting", "environ", "palette"),
    [
        ("auto", FULL, DARK),
        ("auto", {"TERM": "xterm-256color"}, DARK),
        ("auto", {"TERM": "tmux-256color"}, DARK),
        ("auto", {"TERM": "xterm-kitty"}, DARK),
        ("auto", {"TERM": "xterm"}, TERMINAL),
        ("auto", {"TERM": "linux"}, TERMINAL),
        ("auto", {}, TERMINAL),
        ("light", FULL, LIGHT),
        ("dark", {"TERM": "xterm"}, DARK),
        ("terminal", FULL, TERMINAL),
        ("light", {**FULL, "NO_COLOR": "1"}, PLAIN),
        ("auto", {**FULL, "NO_COLOR": ""}, DARK),
    ],
)
def test_t11_colours_are_chosen_by_terminal_and_setting(setting: str, environ: dict, palette: object) -> None:
    assert theme.choose(setting, "auto", UTF8, environ).palette is palette


@pytest.mark.parametrize(
    ("setting", "encoding", "glyphs"),
    [
        ("auto", "utf-8", UNICODE),
        ("auto", "UTF8", UNICODE),
        ("auto", "iso8859-1", ASCII),
        ("auto", "ascii", ASCII),
        ("auto", None, ASCII),
        ("on", "utf-8", ASCII),
        ("off", "ascii", UNICODE),
    ],
)
def test_t12_glyphs_are_chosen_by_encoding_and_setting(setting: str, encoding: str | None, glyphs: object) -> None:
    assert theme.choose("auto", setting, encoding, FULL).glyphs is glyphs


@pytest.mark.parametrize("palette", [DARK, LIGHT, TERMINAL, PLAIN], ids=lambda palette: palette.name)
def test_every_palette_runs(palette: object) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("down", "f6", "escape", "tab", "f1")
        assert stage.app.current_theme.ansi == (palette in (TERMINAL, PLAIN))

    play(scene, frame(), look=Look(palette, UNICODE))  # type: ignore[arg-type]
