"""When the screen is drawn: held, at another refresh interval; recorded, and where a recording plays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gputop.source import RECORDED
from gputop.ui.commands.command import BOTH, Command

if TYPE_CHECKING:
    from gputop.ui.job_screen import JobScreen
    from gputop.ui.main.screen import MainScreen
    from gputop.ui.screen import CommandScreen


AS_RECORDED = "a recording has fixed samples"
_PATH_S = 10.0  # a path is read slowly


def freeze(screen: CommandScreen) -> None:
    """Freeze or unfreeze the display."""
    screen.session.freeze()


def ask_interval(main: MainScreen) -> None:
    """Ask for the refresh interval."""
    from gputop.ui.dialogs.questions import DelayDialog  # late

    session = main.session
    main.app.push_screen(DelayDialog(main.look, session.source.interval_s), session.set_interval)


def _interval_is_recorded(main: MainScreen) -> str:
    return AS_RECORDED if main.session.source.elsewhere == RECORDED else ""


def toggle_recording(main: MainScreen) -> None:
    """Record, or stop."""
    session = main.session

    def tell(line: str) -> None:
        main.redraw()
        session.say(line, _PATH_S)

    if session.recorder.running:
        session.recorder.stop(tell)
    else:
        session.recorder.start(lambda: session.latest.newest, tell)


def _cannot_record(main: MainScreen) -> str:
    if main.session.player:
        return "this is already a recording"
    return "gputop is read-only" if main.session.readonly else ""


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
    """Go a number of seconds on, or back."""
    session = screen.session
    if session.player and seconds > 0 and session.player.ended:
        session.say("end of the recording")
    elif session.player:
        session.player.step(seconds, session.source.interval_s)
        screen.moved_in_time()


def to_end(screen: JobScreen) -> None:
    """Go to the last frame."""
    if player := screen.session.player:
        player.end()
        screen.moved_in_time()


def _no_recording(screen: JobScreen) -> str:
    return "" if screen.session.player else "not a recording"


def _command(
    id: str, key: str, title: str, help: str, run: Callable[[JobScreen], object], *, joins: bool = False
) -> Command:
    """A key of a recording."""
    return Command(id, (key,), title, help, "TIME", run, _no_recording, joins=joins, on=BOTH)


REPLAY_COMMANDS = (
    _command("pause", "vertical_line", "Replay: pause", "replay: pause or play", pause),
    _command("slower", "less_than_sign", "Slower", "replay: slower", partial(change_speed, steps=-1), joins=True),
    _command("faster", "greater_than_sign", "Faster", "replay: faster", partial(change_speed, steps=1), joins=True),
    _command("second-back", "left_square_bracket", "Replay: 1 s back", "replay: 1 s back", partial(step, seconds=-1)),
    _command("second-on", "right_square_bracket", "1 s on", "replay: 1 s on", partial(step, seconds=1), joins=True),
    _command("minute-back", "left_curly_bracket", "60 s back", "replay: 60 s back", partial(step, seconds=-60),
             joins=True),
    _command("minute-on", "right_curly_bracket", "60 s on", "replay: 60 s on", partial(step, seconds=60), joins=True),
    _command("recording-end", "0", "End", "replay: to the end", to_end),
)  # fmt: skip
COMMANDS = (
    Command("freeze", ("Z",), "Freeze", "freeze the display", "TIME", freeze, keep=70, on=BOTH,
            also="pause hold stop refresh"),
    Command("delay", ("d",), "Interval", "refresh interval", "TIME", ask_interval, _interval_is_recorded, keep=40,
            also="delay refresh rate speed"),
    Command("record", ("R",), "Record", "start or stop recording to a file", "TIME", toggle_recording,
            _cannot_record, keep=35),
    *REPLAY_COMMANDS,
)  # fmt: skip
