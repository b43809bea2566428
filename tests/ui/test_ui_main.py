"""The main screen as a person sees it: pictures in text at every size, and what stays when something is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gputop.model import Frame, Note
from gputop.ui.theme import ASCII, DARK, PLAIN, UNICODE, Look
from gputop.ui.widgets.strip_pane import Lines
from tests.headless_screens import Stage, play, strips
from tests.hostile import STRINGS
from tests.scripted_jobs import JUPYTER, LLAMA, SD3, frame, minute, process, training

pytestmark = pytest.mark.usefixtures("universal_time")

NO_COLOUR = Look(PLAIN, ASCII)


def server(gpus: int) -> Frame:
    """A full server, or a small one."""
    if gpus == 1:
        return frame(training("llama-7b", 41000, ranks=1, loaders=8), gpus=1)
    return frame(LLAMA, SD3, JUPYTER, gpus=gpus)


@pytest.mark.parametrize(
    ("size", "gpus", "look", "name"),
    [
        ((40, 12), 8, Look(), "40x12-8gpu"),
        ((80, 24), 1, Look(), "80x24-1gpu"),
        ((60, 20), 8, Look(), "60x20-8gpu"),
        ((80, 24), 8, Look(), "80x24-8gpu"),
        ((80, 24), 16, Look(), "80x24-16gpu"),
        ((80, 24), 8, NO_COLOUR, "80x24-8gpu-ascii"),
        ((120, 40), 1, Look(), "120x40-1gpu"),
        ((120, 40), 8, Look(), "120x40-8gpu"),
        ((200, 60), 8, Look(), "200x60-8gpu"),
        ((300, 80), 8, Look(), "300x80-8gpu"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_main_screen(
    size: tuple[int, int], gpus: int, look: Look, name: str, golden: Callable[[str, str], None]
) -> None:
    async def scene(stage: Stage) -> None:
        golden(f"main-{name}.txt", stage.text)

    shown = server(gpus)
    play(scene, shown, size=size, past=minute(shown), look=look)


def test_no_colour_is_no_colour() -> None:
    async def scene(stage: Stage) -> None:
        for segment in (segment for strip in strips(stage.app) for segment in strip):
            style = segment.style
            assert style is None or all(colour is None or colour.is_default for colour in (style.color, style.bgcolor))
            assert segment.text.isascii()

    play(scene, server(8), look=NO_COLOUR)


def test_n01_without_a_driver_the_rest_is_shown_and_the_demo_offered() -> None:
    note = Note(subject="driver", key="no-library", text="No NVIDIA GPU found.", help=("just looking   `gputop demo`",))

    async def scene(stage: Stage) -> None:
        assert "No NVIDIA GPU found." in stage.text
        assert "just looking   gputop demo" in stage.text
        assert "41100" in stage.pids

    play(scene, frame(LLAMA, gpus=0, notes=(note,)))


def idle() -> Frame:
    """The server with its GPUs at rest."""
    return replace(frame(), gpus=tuple(replace(gpu, busy_percent=0.0) for gpu in frame().gpus))


def test_an_idle_server_says_so() -> None:
    async def scene(stage: Stage) -> None:
        assert "No process on any GPU. 4 GPUs idle" in stage.text
        await stage.show(frame(LLAMA))
        assert "No process on any GPU" not in stage.text
        await stage.show(idle())
        assert "No process on any GPU." in stage.text

    play(scene, idle())


def test_busy_gpus_without_a_process_are_not_called_idle() -> None:
    async def scene(stage: Stage) -> None:
        assert "4 GPUs are busy, but the driver lists no process: GPU 0, 1, 2, 3." in stage.text

    play(scene, frame())


def test_a_note_takes_one_line() -> None:
    note = Note(subject="processes", key="hidden-io", text="I/O of 41 processes of other users is hidden.")

    async def scene(stage: Stage) -> None:
        assert sum("I/O of 41 processes" in line for line in stage.lines) == 1
        await stage.show(frame(LLAMA))
        assert "I/O of 41" not in stage.text

    play(scene, frame(LLAMA, notes=(note,)))


def test_what_a_note_advises_is_in_the_help() -> None:
    outside = Note(
        subject="processes", key="foreign-pids", text="3 of 3 GPU processes are outside this container.",
        help=("To see them: run gputop on the host",),
    )  # fmt: skip
    hidden = Note(subject="processes", key="hidden-pids", text="2 belong to others.", help=("sudo gputop shows them",))

    async def scene(stage: Stage) -> None:
        assert any("outside this container" in line and line.endswith("F1: 2 notes") for line in stage.lines)
        await stage.press("f1", "shift+tab")
        assert "help: notes" in stage.lines[0]
        for said in (outside.text, *outside.help, hidden.text, *hidden.help):
            assert said in stage.text
        await stage.press("tab")
        assert "help: under the cursor" in stage.lines[0]

    play(scene, frame(LLAMA, notes=(outside, hidden)))


def test_an_idle_job_says_what_it_holds() -> None:
    shown = frame(JUPYTER, gpus=8)

    async def scene(stage: Stage) -> None:
        assert "notebook · 1 process · holds 2.1G, idle 1m" in stage.text

    play(scene, shown, size=(159, 40), past=minute(shown))


@pytest.mark.parametrize("width", [80, 120])
def test_and_says_it_where_there_is_little_room(width: int) -> None:
    shown = frame(JUPYTER, gpus=8)

    async def scene(stage: Stage) -> None:
        assert "holds 2.1G, idle 1m" in stage.text

    play(scene, shown, size=(width, 40), past=minute(shown))


@pytest.mark.parametrize(
    ("pane", "still"), [("gpus", "41100"), ("host", "41100"), ("processes", "power cap"), ("header", "41100")]
)
def test_t14_a_pane_that_cannot_be_drawn_leaves_the_others(pane: str, still: str) -> None:
    good = frame(LLAMA, gpus=8)
    broken = {
        "gpus": replace(good, gpus=(replace(good.gpus[0], condition="lost", condition_s="long"), *good.gpus[1:])),
        "host": replace(good, host=replace(good.host, mounts=(replace(good.host.mounts[0], file_system=3),))),
        "processes": replace(good, processes=(replace(good.processes[0], age_s="old"),)),
        "header": replace(good, hostname=None),
    }[pane]

    async def scene(stage: Stage) -> None:
        failures: list[str] = []
        stage.app.report = lambda error, where: failures.append(where) or f"{where} failed"  # type: ignore[method-assign]
        await stage.show(broken)
        assert failures == [f"the {pane} pane"]
        assert f"the {pane} pane failed" in stage.text
        assert still in stage.text
        await stage.show(good)
        assert "pane failed" not in stage.text
        assert "41100" in stage.pids

    play(scene, good, size=(200, 60))


def test_before_the_first_frame_it_says_that_it_looks() -> None:
    async def scene(stage: Stage) -> None:
        assert stage.lines[0].split() == ["gputop", "starting"]
        await stage.press("down", "plus", "P", "f5", "g", "f1", "escape", "Z", "Z")
        await stage.show(frame(LLAMA))
        assert "41100" in stage.pids

    play(scene)


def test_collection_that_fails_or_ends_is_said_in_the_header() -> None:
    async def ends(stage: Stage) -> None:
        stage.feed.give(None)
        await stage.until(lambda: "ended" in stage.lines[0], "the end")
        assert "41100" in stage.pids

    async def fails(stage: Stage) -> None:
        stage.app.report = lambda error, where: f"{where}: {error}"  # type: ignore[method-assign]
        stage.feed.give(RuntimeError("no more"))
        await stage.until(lambda: "collection: no more" in stage.lines[0], "the failure")

    play(ends, frame(LLAMA))
    play(fails, frame(LLAMA), size=(200, 40))


def test_a_slow_screen_sees_the_newest_frame_only() -> None:
    async def scene(stage: Stage) -> None:
        drawn: list[Frame] = []
        show = stage.app.main.show
        stage.app.main.show = lambda update: (drawn.append(update.frame), show(update))  # type: ignore[method-assign]
        frames = [frame(LLAMA, mono_s=1000.0 + number) for number in range(50)]
        for each in frames:
            stage.feed.give(each)
        await stage.until(lambda: stage.newest is frames[-1], "collection")
        await stage.until(lambda: bool(drawn) and drawn[-1] is frames[-1], "the last frame")
        assert len(drawn) < len(frames)

    play(scene, frame(LLAMA))


def test_t09_any_size_is_drawn() -> None:
    async def scene(stage: Stage) -> None:
        for size in [(1, 1), (2, 5), (10, 20), (20, 3), (79, 24), (80, 23), (80, 24), (120, 8), (500, 200), (160, 24)]:
            await stage.pilot.resize_terminal(*size)
            assert stage.app.screen.size == size
            assert all(len(line) <= size[0] for line in stage.lines)
        for key in ("f1", "f2", "ctrl+p", "S", "Y"):
            await stage.press(key)
            for size in [(1, 1), (10, 4), (40, 12), (200, 60)]:
                await stage.pilot.resize_terminal(*size)
                await stage.press("down", "tab")
                assert all(len(line) <= size[0] for line in stage.lines)
            await stage.press("escape")

    play(scene, server(8))


def test_the_cursor_keeps_its_process_over_a_resize() -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("end", "up")
        before = stage.selected
        await stage.pilot.resize_terminal(80, 24)
        assert stage.selected == before
        assert before in stage.pids

    play(scene, server(8))


def test_hostile_strings_are_drawn_as_text_on_every_screen() -> None:
    async def scene(stage: Stage) -> None:
        for key in ("f5", "f6", "escape", "d", "escape", "f1", "tab", "tab", "escape", "g", "g", "asterisk"):
            await stage.press(key)
        assert "[/foo]" in stage.text or "[red]" in stage.text

    texts = [text[:40] for text in STRINGS if text.isprintable() and text.strip()]
    loose = tuple(
        process(1000 + number, name=text, user=text, command=(text, text), cpu_percent=200.0 - number)
        for number, text in enumerate(texts)
    )
    job, members = training("[@click=app.quit]x[/]", 41000, ranks=1, loaders=1, user="[/foo]")
    note = Note(subject="processes", key="hidden", text="[red] [/foo] [@click=app.quit]x[/]")
    shown = frame((job, members), loose=loose, notes=(note,), hostname="[/foo]")
    play(scene, replace(shown, gpus=tuple(replace(gpu, name="[red][/") for gpu in shown.gpus)))


def test_the_settings_are_how_it_opens() -> None:
    async def scene(stage: Stage) -> None:
        assert " flat · PID▼ · not following · " in stage.text
        assert "7" in stage.pids

    play(
        scene, frame(LLAMA, loose=(process(7),)), size=(120, 130), tree=False, sort="pid", reverse=True, follow=False,
        every_process=True,
    )  # fmt: skip


def test_every_glyph_is_one_cell_wide() -> None:
    from rich.cells import cell_len

    for glyphs in (UNICODE, ASCII):
        for name in glyphs.__slots__:
            text = getattr(glyphs, name)
            assert cell_len(text) == len(text)
    assert Look(DARK).glyphs is UNICODE


def test_an_update_that_arrives_while_the_program_ends_is_no_error() -> None:
    """Textual takes the panes away first, and goes on with what was sent before."""

    async def scene(stage: Stage) -> None:
        await stage.app.main.query(Lines).remove()
        stage.app.main.show(stage.app.main.shown)

    play(scene, frame())
