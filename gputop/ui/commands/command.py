"""What a command is: one thing that a person can do, with its keys and its place in bar, help, palette and manual."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from gputop.frozen_dataclass import frozen_dataclass
from gputop.ui.commands.key_names import shown

Group = Literal["MOVE", "PICK", "SORT", "LOOK", "ACT", "TIME", "LEAVE", "DETAILS", "RESULT", "HOSTS"]
GROUPS: tuple[Group, ...] = ("MOVE", "PICK", "SORT", "LOOK", "ACT", "TIME", "LEAVE", "DETAILS", "RESULT", "HOSTS")
# the screens with commands: a key may mean another thing on each
Place = Literal["main", "details", "result", "hosts"]
EVERY: tuple[Place, ...] = ("main", "details", "result", "hosts")
BOTH: tuple[Place, ...] = ("main", "details")
Names = Mapping[str, str]  # by the id of a command, the key to show
# commands are declared without a screen, as the manual lists them without one: each function names the screen it needs
AnyScreen = Any


def available(_: AnyScreen) -> str:
    """The reason of a command that can always be run."""
    return ""


def no_processes(screen: AnyScreen) -> str:
    """Why nothing can be done to a process: the screen shows none; empty if it does."""
    return str(screen.no_processes())


@frozen_dataclass(frozen=True, slots=True)
class Command:
    """One thing that can be done. `keys` are named as Textual names them; the first is the one to show."""

    id: str  # for remapping, and its name in the palette
    keys: tuple[str, ...]
    title: str  # in the key bar
    help: str
    group: Group
    run: Callable[[AnyScreen], object] = field(compare=False)  # gets the screen; may be a coroutine function
    unavailable: Callable[[AnyScreen], str] = field(default=available, compare=False)  # why not now; empty if it can
    title_now: Callable[[AnyScreen], str] | None = field(default=None, compare=False)  # where the title depends
    keep: int = 0  # in the key bar the higher one stays when it is narrow; 0 is never there
    joins: bool = False  # in help it stands on the line of the command before it, by its title
    on: tuple[Place, ...] = ("main",)
    above_dialogs: bool = False  # its keys work while a dialog is open, too
    also: str = ""  # other words for it, by which it may be looked for in the palette

    @property
    def names(self) -> tuple[str, ...]:
        """The keys as a person reads them: F10, PgUp, Ctrl+C, S-Tab, ?."""
        return tuple(shown(key) for key in self.keys)


def offered(commands: Iterable[Command], screen: AnyScreen) -> list[Command]:
    """The commands that can be run on a screen now, each with the title it has now."""
    return [
        replace(command, title=command.title_now(screen)) if command.title_now else command
        for command in commands
        if not command.unavailable(screen)
    ]


def help_lines(group: Group, commands: Sequence[Command]) -> list[tuple[str, str]]:
    """A group for people: names of keys and what they do; those that join share a line, by their titles.

    Commands without a key are left out.
    """
    lines: list[list[Command]] = []
    for command in commands:
        if command.group == group and command.keys:
            joined = command.joins and lines
            lines = [*lines[:-1], [*lines[-1], command]] if joined else [*lines, [command]]
    return [
        (
            " ".join(name for command in line for name in command.names),
            line[0].help if len(line) == 1 else ", ".join(dict.fromkeys(command.title.lower() for command in line)),
        )
        for line in lines
    ]


def names(commands: Iterable[Command]) -> Names:
    """What the keys are called."""
    return {command.id: command.names[0] for command in commands if command.keys}


def hint(names: Names, text: str, *ids: str) -> str:
    """A text about keys, which stand in the place of its `{}`: `3 or z`; nothing where none of them is there."""
    known = [names[id] for id in ids if id in names]
    return text.replace("{}", " or ".join(known)) if known else ""
