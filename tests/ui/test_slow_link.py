"""Whether the line is slow: only what the terminal did not take in time says so."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.ui.latest_update import SlowLink
from tests.headless_screens import Stage, play
from tests.scripted_jobs import LLAMA, frame
from tests.terminal_endings import Program

ARGV = (sys.executable, "-m", "gputop")


def told(*events: float | str) -> float | None:
    """What a line is called after these: a time at which something was drawn, a name of what was not."""
    link = SlowLink()
    for event in events:
        if event == "clear":
            link.clear()
        elif isinstance(event, str):
            link.skip(event)
        else:
            link.draw(event)
    return link.slow_s


@pytest.mark.parametrize(
    ("events", "slow_s"),
    [
        ((), None),
        ((0.0, 60.0, 120.0), None),
        ((0.0, "a", "b", 3.0, "c", "d", 6.0), 3.0),
        ((0.0, "a", "a", 1.0), 1.0),
        ((0.0, 1.0, 2.0, "a", 4.0), None),
        ((0.0, "a", 2.0, "clear", 3.0, 4.0), None),
        ((0.0, "a", "b", "clear", 3.0, 4.0), None),
        (("a", "b", "c", 0.0, 1.0, 2.0), None),
        ((0.0, "a", 2.0, 3.0, 4.0, 5.0), None),
    ],
    ids=[
        "nothing",
        "rare looks",
        "every third",
        "one twice",
        "one of many",
        "clear",
        "clear while behind",
        "before",
        "over",
    ],
)
def test_only_what_is_skipped_makes_it_slow(events: Sequence[float | str], slow_s: float | None) -> None:
    assert told(*events) == slow_s


def test_who_collects_slowly_has_no_slow_line() -> None:
    now = frame(LLAMA)

    async def scene(stage: Stage) -> None:
        stage.app.session.source.interval_s = 0.01
        for seconds in (1, 2):
            await stage.pilot.pause(0.7)
            await stage.show(replace(now, mono_s=now.mono_s + seconds, late_s=9.0))
        assert "slow link" not in stage.lines[0]
        assert "sampled 9 s late" in stage.lines[0]

    play(scene, now)


def test_what_the_terminal_does_not_take_is_skipped_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    now = frame(LLAMA)
    behind = False
    monkeypatch.setattr("gputop.ui.session.behind", lambda _: behind)

    async def scene(stage: Stage) -> None:
        nonlocal behind
        for seconds in range(1, 9):
            behind = seconds % 4 != 0
            last = replace(now, mono_s=now.mono_s + seconds)
            stage.feed.give(last)
            await stage.until(lambda last=last: stage.newest is last)
        assert stage.app.main.shown
        assert stage.app.main.shown.frame is last
        assert "slow link: redraw every" in stage.lines[0]

    play(scene, now)


def test_who_was_away_in_the_shell_comes_back_to_a_line_that_is_not_slow(tmp_path: Path) -> None:
    argv = (*ARGV, "demo", "healthy", "--interval", "0.25")
    with Program(argv, "COMMAND", env={"XDG_STATE_HOME": str(tmp_path)}).start() as terminal:
        time.sleep(1.5)
        terminal.send("ctrl+z")
        time.sleep(6)
        before = len(terminal.output)
        terminal.signal(signal.SIGCONT)
        time.sleep(1.5)
        terminal.wait_for("COMMAND")
        assert b"slow link" not in bytes(terminal.output[before:])
        terminal.send("q")
        assert terminal.wait_exit() == 0
