"""Keys of the advice: all of it, its page of experiments, muting a finding, and the command that verifies it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from gputop.ui.commands.command import Command, hint

if TYPE_CHECKING:
    from gputop.ui.advice.pages import AdvicePage
    from gputop.ui.main.screen import MainScreen

_VERIFIES = (
    "To verify: {text}. The command runs in this terminal, next to the job, and may slow the job down. Ctrl+C stops "
    "it; the screen comes back afterwards."
)


def toggle_advice(main: MainScreen) -> None:
    """Give the advice the whole screen, and the keys; again, all panes are back as they were."""
    from gputop.ui.advice.pages import PAGES  # late: it draws

    if not _collapse(main):
        _expand(main, PAGES[0])


def toggle_experiments(main: MainScreen) -> None:
    """The same, with the page of the experiments."""
    from gputop.ui.advice.pages import EXPERIMENTS  # late: it draws

    if main.advice.page is not EXPERIMENTS or not _collapse(main):
        _expand(main, EXPERIMENTS)


def _collapse(main: MainScreen) -> bool:
    """All panes as they were before the advice had the screen for itself; whether it had."""
    if main.alone != "advice":
        return False
    main.unzoom()
    leave_advice(main)
    return True


def _expand(main: MainScreen, page: AdvicePage) -> None:
    main.hidden -= {"advice"}
    main.advice.open(page)
    main.alone = "advice"
    main.place()
    main.set_focus(main.advice)
    main.refocused()
    main.advice.find_measured()


def leave_advice(main: MainScreen) -> bool:
    """The keys are about the processes again; whether they were about the advice."""
    if main.focused is not main.advice:
        return False
    main.set_focus(main.table if main.table.display else None)  # a small screen may not have the processes
    main.refocused()
    return True


def mute(main: MainScreen) -> None:
    """Show the chosen finding no more until it changes."""
    muted = main.advice.finding_list.mute()
    if muted is not None:
        main.place()
        main.refocused()
        lists = hint(main.names, "; {} lists it", "advice") if main.alone is None else ""
        main.session.say(f"muted until it changes{lists}" if muted else "unmuted")


def _nothing_to_mute(main: MainScreen) -> str:
    if main.advised and main.advice.finding_list.chosen:
        return ""
    first = hint(main.names, "select a finding first with {}", "advice") or "select a finding first"
    return first if main.advice.finding_list.listed else "no finding"


def verify(main: MainScreen) -> None:
    """Show the command and ask; it is run in this terminal."""
    from gputop.ui.dialogs.questions import Confirm  # late

    step = main.advice.finding_list.chosen.verify if main.advice.finding_list.chosen else None
    if step is None or step.command is None:
        return
    arguments = shlex.split(step.command)[1:]

    def run() -> None:
        code = main.session.app.lend(arguments)
        main.advice.find_measured()
        lent = "this terminal cannot run the command: copy it" if code is None else f"exit code {code}"
        main.session.say(lent)

    def answered(answer: str | None) -> None:
        if answer == "run":
            main.call_after_refresh(run)

    buttons, text = (("no", "Cancel"), ("run", "Run")), _VERIFIES.format(text=step.text)
    main.app.push_screen(Confirm(main.look, step.command, text, buttons, answered))


def _cannot_verify(main: MainScreen) -> str:
    finding, session = main.advice.finding_list.chosen if main.advised else None, main.session
    if finding is None:
        return hint(main.names, "select a finding first with {}", "advice") or "select a finding first"
    if finding.verify is None:
        return "this finding has no command to verify it"
    if (elsewhere := session.source.elsewhere) is not None:
        return f"these are processes of {elsewhere}, not of this machine"
    return "gputop is read-only" if session.readonly else ""


COMMANDS = (
    Command("advice", ("a",), "Advice", "all findings in full, and back", "LOOK", toggle_advice, keep=88,
            also="findings diagnosis why problems bottleneck slow"),
    Command("experiments", ("E",), "Experiments", "compare the experiments, and back", "LOOK", toggle_experiments,
            joins=True, also="jobs compare runs contention threads"),
    Command("advice-mute", ("x",), "Mute", "mute the finding until it changes", "LOOK", mute, _nothing_to_mute,
            keep=86, joins=True),
)  # fmt: skip
VERIFY_COMMANDS = (
    Command("measure", ("m",), "Measure", "run the command that confirms the finding; asks first", "ACT", verify,
            _cannot_verify,
            also="verify lab loader experiment maxbatch memory"),
)  # fmt: skip
