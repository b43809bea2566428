"""What can be taken along: texts to the clipboard or onto a plain screen for the mouse, the screen into a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputop.ui.commands.command import BOTH, Command, hint

if TYPE_CHECKING:
    from gputop.ui.copy_texts import CopyText
    from gputop.ui.dialogs.saving import Kind
    from gputop.ui.job_screen import JobScreen


LONGEST = 2000  # characters: a terminal drops what is too long for it, and does not say so


def copy(screen: JobScreen) -> None:
    """Copy the first text of what is selected; pressed again, the next. What comes next is said with it."""
    texts = screen.copy_texts()
    if not texts:
        screen.session.say("nothing to copy here")
        return
    place = screen.copy_place(texts)
    text = texts[place].text
    if len(text) > LONGEST:
        shows = hint(screen.names, "; {} shows it", "show")
        screen.session.say(f"too long to copy ({len(text)} characters){shows}")
        return
    screen.app.copy_to_clipboard(text)
    screen.session.say(f"copied {text}{_next(screen, texts, place)}")


def _next(screen: JobScreen, texts: Sequence[CopyText], place: int) -> str:
    again = texts[(place + 1) % len(texts)].title
    return hint(screen.names, f"   {{}} again: {again}", "copy") if len(texts) > 1 and not place else ""


def show_plain(screen: JobScreen) -> None:
    """Show what can be copied on a plain screen, where the terminal's own mouse selects."""
    from gputop.ui.dialogs.pager import Plain  # late

    if texts := screen.copy_texts():
        screen.app.push_screen(Plain(screen, [text.text for text in texts]))
    else:
        screen.session.say("nothing to copy here")


def save(screen: JobScreen) -> None:
    """Ask as what, and write it."""
    from gputop.ui.dialogs.saving import SaveDialog  # late

    def chosen(kind: Kind | None) -> None:
        if kind is not None:
            _write(screen, kind)

    screen.app.push_screen(SaveDialog(screen.look), chosen)


def _write(screen: JobScreen, kind: Kind) -> None:
    (width, height), look, shot = screen.app.size, screen.look, screen.shot()
    panes = shot.panes()

    def work() -> str:
        from gputop.export import codec  # late
        from gputop.ui.dialogs.saving import save
        from gputop.ui.panes import picture

        if kind == "json":
            return save(kind, f"{codec.dumps(shot.numbers())}\n")
        lines = picture.composed(width, height, panes, look)
        return save(kind, picture.text(lines) if kind == "txt" else picture.svg(lines, width))

    screen.session.files.do(work, lambda line: screen.session.say(line, 10))


def _cannot_save(screen: JobScreen) -> str:
    if screen.session.readonly:
        return "gputop is read-only"
    return "" if screen.shown else "nothing is shown yet"


COMMANDS = (
    Command("copy", ("y",), "Copy", "copy the PID; again: the command line (OSC 52)", "LOOK", copy, keep=5, on=BOTH),
    Command("show", ("Y",), "Show", "show what y copies, to select it with the mouse", "LOOK", show_plain, joins=True,
            on=BOTH),
    Command("save", ("S",), "Save", "save the screen as SVG, text or JSON", "LOOK", save, _cannot_save, joins=True,
            on=BOTH, also="screenshot export json svg"),
)  # fmt: skip
