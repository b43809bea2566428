"""Keys of a recording: where it plays, and how fast."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gputop.ui.commands.command import BOTH, Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.ui.job_screen import JobScreen


def pause(screen: JobScreen) -> None:
    """Stand still, or go on."""
    if player := screen.session.player:
        player.hold()
        screen.redraw()


def change_speed(screen: JobScreen, steps: int) -> None:
    """Play faster, or slower."""
    if player := screen.session.player:
        player.hurry(steps)
        screen.redraw()


def step(screen: JobScreen, seconds: int) -> None:
    """Go so many seconds on, or back."""
    session = screen.session
    if session.player and seconds > 0 and session.player.ended:
        session.say("this is the end of the recording")
    elif session.player:
        session.player.step(seconds, session.source.interval_s)
        screen.moved_in_time()


def to_end(screen: JobScreen) -> None:
    """Go to the last frame."""
    if player := screen.session.player:
        player.end()
        screen.moved_in_time()


def _unavailable(screen: JobScreen) -> str:
    return "" if screen.session.player else "this is no recording"


def _command(
    id: str, key: str, title: str, help: str, run: Callable[[JobScreen], object], *, joins: bool = False
) -> Command:
    """A key of a recording."""
    return Command(id, (key,), title, help, "TIME", run, _unavailable, joins=joins, on=BOTH)


COMMANDS = (
    _command("pause", "vertical_line", "Replay: pause", "replay: pause, and play on", pause),
    _command("slower", "less_than_sign", "Slower", "replay: slower", partial(change_speed, steps=-1), joins=True),
    _command("faster", "greater_than_sign", "Faster", "replay: faster", partial(change_speed, steps=1), joins=True),
    _command("second-back", "left_square_bracket", "Replay: 1 s back", "replay: 1 s back", partial(step, seconds=-1)),
    _command("second-on", "right_square_bracket", "1 s on", "replay: 1 s on", partial(step, seconds=1), joins=True),
    _command("minute-back", "left_curly_bracket", "60 s back", "replay: 60 s back", partial(step, seconds=-60),
             joins=True),
    _command("minute-on", "right_curly_bracket", "60 s on", "replay: 60 s on", partial(step, seconds=60), joins=True),
    _command("recording-end", "0", "End", "replay: to the end", to_end),
)  # fmt: skip
