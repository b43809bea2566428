"""A recording on the screen: its bar, its keys, clicks on its track."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.diagnose import Finding, Subject
from gputop.monitor import Update
from gputop.record.recorder import Recorder
from gputop.record.recording import Recording
from gputop.source import RecordedEvent
from gputop.ui.commands.table import COMMANDS, command
from gputop.ui.commands.time_control import REPLAY_COMMANDS
from gputop.ui.replay.bar import replay_bar
from gputop.ui.replay.player import SPEEDS, Player
from gputop.ui.theme import ASCII, PLAIN, Look
from tests.headless_screens import Stage, play

pytestmark = pytest.mark.usefixtures("universal_time")

ANCHOR_S = 1_795_185_127.0
LENGTH = 130
Scene = Callable[[Stage], Awaitable[None]]


def found(severity: Any, headline: str) -> Finding:
    return Finding(rule=headline, severity=severity, subject=Subject(kind="gpu", gpus=("G",)), headline=headline)


EVENTS = {50: found("warn", "GPU 3 waits for data"), 100: found("crit", "GPU 6 is slowed by heat")}


def recorded(folder: Path, name: str) -> Path:
    """A demo with those events, recorded."""
    demo = Demo(SCENARIOS[name], pace=False, anchor_s=ANCHOR_S)
    path = folder / "run.jsonl.gz"
    recorder = Recorder(str(path), wait=True)
    for second in range(LENGTH):
        found = tuple(EVENTS[at] for at in EVENTS if at == second)
        recorder.take(Update(frame=demo.frame(demo.at_s + second), findings=found))
    assert recorder.close(30)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("recorded"), "healthy")


@pytest.fixture(scope="module")
def showcase(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is drawn in the manual: its frames take four times as long to read."""
    return recorded(tmp_path_factory.mktemp("showcase"), "showcase")


class Film(Recording):
    """A recording as `play` takes a source; it is held when it begins."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.speed = 0.0

    def give(self, _: None) -> None:
        """It has frames of its own."""


def watch(path: Path, scene: Scene, **options: Any) -> None:
    """Let a test act on a recording that stands at its first frame, once all of it is known."""

    async def begun(stage: Stage) -> None:
        film = stage.app.session.source
        assert isinstance(film, Film)
        await stage.until(lambda: film.complete and stage.app.main.shown is not None, "the first frame")
        stage.app.main.redraw()
        await scene(stage)

    play(begun, feed=Film(path), **options)


async def at(stage: Stage, second: int, *press: str) -> None:
    """Press keys; then the screen shows this second of the recording, and its bar says so."""
    await stage.press(*press)
    first = stage.app.session.source.span[0]
    shown = time.strftime("%H:%M:%S", time.gmtime(first + second))
    await stage.until(lambda: stage.lines[0].endswith(shown), f"{shown}, second {second}")
    stage.app.main.redraw()
    await stage.pilot.pause()
    assert f" {second // 60}:{second % 60:02} " in stage.lines[-2]


@pytest.mark.parametrize(
    ("size", "look", "name"),
    [((80, 24), Look(), "80x24"), ((120, 40), Look(), "120x40"), ((200, 60), Look(), "200x60"),
     ((80, 24), Look(PLAIN, ASCII), "80x24-ascii"), ((40, 12), Look(), "40x12")],
)  # fmt: skip
def test_a_recording_on_the_screen(
    showcase: Path, size: tuple[int, int], look: Look, name: str, golden: Callable[[str, str], None]
) -> None:
    async def scene(stage: Stage) -> None:
        await at(stage, 60, "right_curly_bracket")
        golden(f"replay-{name}.txt", stage.text)

    watch(showcase, scene, size=size, look=look)


def test_every_key_of_a_recording_says_so() -> None:
    assert all(command.help.startswith("replay: ") for command in REPLAY_COMMANDS)


def test_keys_go_anywhere(path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await at(stage, 1, "right_square_bracket")
        await at(stage, 61, "right_curly_bracket")
        await at(stage, 60, "left_square_bracket")
        await at(stage, 62, "right_square_bracket", "right_square_bracket")
        await at(stage, 2, "left_curly_bracket")
        await at(stage, 0, "left_curly_bracket")
        await at(stage, 129, "0")

    watch(path, scene)


def test_the_end_is_said_and_one_can_go_back_from_it(path: Path) -> None:
    async def scene(stage: Stage) -> None:
        assert "the end" not in stage.text
        await at(stage, 129, "0")
        assert "the end" in stage.lines[-2]
        for pressed in ("right_square_bracket", "right_curly_bracket"):
            await stage.press(pressed)
            assert stage.lines[-1].startswith(" end of the recording")
        await stage.press("0")
        await stage.until(lambda: not stage.app.session.source.going, "it has come there again")
        await at(stage, 128, "left_square_bracket")
        assert "paused" in stage.lines[-2]

    watch(path, scene)


def test_it_plays_to_its_end_and_stays_there(path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("0", "left_curly_bracket", *["greater_than_sign"] * 9, "vertical_line")
        assert stage.app.session.source.speed == SPEEDS[-1]
        await stage.until(lambda: "the end" in stage.lines[-2], "the end")
        last = time.strftime("%H:%M:%S", time.gmtime(stage.app.session.source.span[1]))
        await stage.until(lambda: stage.lines[0].endswith(last), "its last frame")
        assert "ended" not in stage.lines[0]
        assert "slow link" not in stage.lines[0]

    watch(path, scene)


def test_pause_and_speed(path: Path) -> None:
    async def scene(stage: Stage) -> None:
        source = stage.app.session.source
        assert "paused 1×" in stage.lines[-2]
        for pressed, speed, said in (
            ("vertical_line", 1, "▸ 1×"), ("greater_than_sign", 2, "▸ 2×"), ("vertical_line", 0, "paused 2×"),
            ("greater_than_sign", 0, "paused 4×"), ("less_than_sign", 0, "paused 2×"), ("vertical_line", 2, "▸ 2×"),
            ("less_than_sign", 1, "▸ 1×"), ("less_than_sign", 0.5, "▸ 0.5×"), ("less_than_sign", 0.25, "▸ 0.25×"),
            ("less_than_sign", 0.25, "▸ 0.25×"),
        ):  # fmt: skip
            await stage.press(pressed)
            assert (source.speed, said in stage.lines[-2]) == (speed, True), (pressed, stage.lines[-2])

    watch(path, scene)


def test_the_picture_of_a_moment_is_the_same_from_wherever_one_comes(path: Path) -> None:
    pictures = []

    async def straight(stage: Stage) -> None:
        await at(stage, 60, "right_curly_bracket")
        pictures.append(stage.text)

    async def back(stage: Stage) -> None:
        await at(stage, 120, "right_curly_bracket", "right_curly_bracket")
        assert stage.text != pictures[0]
        await at(stage, 60, "left_curly_bracket")
        pictures.append(stage.text)

    watch(path, straight)
    watch(path, back)
    assert pictures[0] == pictures[1]


def test_a_click_on_the_track_goes_there_and_a_mark_says_what_it_is(path: Path) -> None:
    async def click(stage: Stage, cell: int) -> None:
        await stage.pilot.click("#replay", offset=(cell, 0))
        await stage.pilot.pause()

    async def scene(stage: Stage) -> None:
        bar = stage.lines[-2]
        await click(stage, bar.index("▲"))
        assert stage.lines[-1].startswith(" GPU 6 is slowed by heat")
        await at(stage, 100)
        await click(stage, stage.lines[-2].index("!"))
        assert stage.lines[-1].startswith(" GPU 3 waits for data")
        await at(stage, 50)
        await click(stage, bar.index("┃"))
        await at(stage, 0)
        await click(stage, bar.rindex("─"))
        await at(stage, 129)
        await click(stage, bar.index("["))
        await at(stage, 128)
        await click(stage, bar.index("paused"))
        assert stage.app.session.source.speed == 1

    watch(path, scene)


def test_frozen_it_stays_until_somebody_goes_elsewhere(path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await at(stage, 60, "right_curly_bracket")
        await stage.press("Z", *["greater_than_sign"] * 9, "vertical_line")
        await stage.until(lambda: "the end" in stage.lines[-2], "the end")
        assert " frozen " in stage.lines[0]
        assert stage.app.main.shown is not stage.app.session.latest.newest
        await stage.press("vertical_line")
        await at(stage, 69, "left_curly_bracket")
        assert " frozen " not in stage.lines[0]

    watch(path, scene)


def test_a_recording_has_looks_of_its_own(path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await stage.press("d")
        assert stage.lines[-1].startswith(" not now: a recording has fixed samples")

    watch(path, scene)


class Still:
    """A recording of any length that stands somewhere."""

    def __init__(self, position_s: float = 0.0, length_s: float = 0.0, marks: tuple[RecordedEvent, ...] = ()) -> None:
        self.speed, self.position_s, self.length_s, self.marks = 1.0, position_s, length_s, marks
        self.complete, self.going, self.seeking, self.span = True, False, False, (ANCHOR_S, ANCHOR_S + length_s)

    def seek(self, position_s: float) -> None:
        self.position_s = position_s


def test_what_has_no_key_cannot_be_clicked() -> None:
    without = [replace(one, keys=()) if one.id == "pause" else one for one in COMMANDS]
    drawn = replay_bar(Player(Still(1.0, 2.0, ())), "run.jsonl", without, 120, Look())
    assert all(command.keys for _, _, command in drawn.spots)
    assert len(drawn.spots) == len(REPLAY_COMMANDS) - 1


@pytest.mark.parametrize("length_s", [0.0, 59.0, 86399.0, 9 * 86400.0])
def test_the_bar_fits_any_width(length_s: float) -> None:
    marks = tuple(RecordedEvent(at_s=at, text="", severity="crit") for at in (-1.0, 0.0, length_s, 2 * length_s))
    player = Player(Still(length_s / 3, length_s, marks))
    for width in range(1, 260):
        drawn = replay_bar(player, "名前" * 30, COMMANDS, width, Look())
        assert drawn.line.strip(width).cell_length == width
        if width >= 24:
            assert drawn.line.cells <= width
            assert len(drawn.track) >= width // 4
        assert "┃" in drawn.line.strip(max(width, drawn.line.cells)).text


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize(
    ("word", "known"),
    [("▸", {}), ("paused", {"speed": 0.0}), ("the end", {"position_s": 86399.0}), ("seeking", {"going": True})],
)
def test_what_it_does_how_fast_and_where_it_stands_are_never_cut(
    speed: float, word: str, known: dict[str, Any]
) -> None:
    still = Still(4000.0, 86399.0)
    for name, value in known.items():
        setattr(still, name, value)
    player = Player(still)
    player.speed = speed
    where = "23:59:59" if word == "the end" else "1:06:40"
    for width in range(40, 200):
        text = replay_bar(player, "a-recording-of-the-night.jsonl.gz", COMMANDS, width, Look()).line.strip(width).text
        assert f" {word} {speed:g}× " in text, width
        assert f" {where} " in text, width
    assert " of 23:59:59 " in replay_bar(player, "run.jsonl", COMMANDS, 80, Look()).line.strip(80).text


def test_keys_that_are_others_stand_in_the_bar_as_they_are() -> None:
    keys = [command("second-back")]
    text = replay_bar(Player(Still(1, 5)), "run", keys, 120, Look()).line.strip(120).text
    assert text.rstrip().endswith("[")


def test_a_span_of_days_names_both() -> None:
    text = replay_bar(Player(Still(1, 3 * 86400)), "run", COMMANDS, 200, Look()).line.strip(200).text
    assert "2026-11-20 14:32 to 11-23 14:32" in text
    assert "0:01 of 3d00:00" in text
