"""Save what is on the screen into a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.ui.commands.command import BOTH, Command

if TYPE_CHECKING:
    from gputop.ui.dialogs.saving import Kind
    from gputop.ui.screen import CommandScreen


def save(screen: CommandScreen) -> None:
    """Ask as what, and write it."""
    from gputop.ui.dialogs.saving import SaveDialog  # late

    def chosen(kind: Kind | None) -> None:
        if kind is not None:
            _write(screen, kind)

    screen.app.push_screen(SaveDialog(screen.look), chosen)


def _write(screen: CommandScreen, kind: Kind) -> None:
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


def _unavailable(screen: CommandScreen) -> str:
    if screen.session.readonly:
        return "gputop is read-only"
    return "" if screen.shown else "nothing is shown yet"


COMMANDS = (
    Command("save", ("S",), "Save", "save the screen: a picture, text or JSON", "LOOK", save, _unavailable, joins=True,
            on=BOTH, also="screenshot export json svg"),
)  # fmt: skip
