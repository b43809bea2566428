"""What every command line has: one line for what is wrong, the flags that go everywhere, what a command is."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from gputop import units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe import output
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.model import Frame

OK, FAILED, USAGE, BROKEN = 0, 1, 64, 70  # the last two as in sysexits.h: wrong usage, a mistake of ours


_NEAR = 0.6  # how alike two words are of which one may be meant for the other


class Failure(Exception):
    """A clear failure: one line that says what, why and what to do, and the exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


def unwritten(error: OSError, code: int = FAILED) -> Failure:
    """That a disk is full; what is left to be written goes nowhere, or it would be tried again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return Failure(f"not everything could be written: {error.strerror}", code)


class Parser(argparse.ArgumentParser):
    """argparse with one line for wrong usage, and our exit code for it; a flag is spelled out: another may come."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})
        self._tail = False

    def keeps_tail(self, example: str) -> None:
        """What stands after `--` is another program's: a list called `tail`, which argparse would mix with ours.

        `example` stands below all options, as it is.
        """
        self._tail = True
        self.set_defaults(tail=[])
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        self.epilog = f"{example}\nWhat stands after -- goes to the function: {self.prog} FACTORY -- ARGS"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """A misspelled option is told first: argparse would take its value for a command."""
        given = list(sys.argv[1:] if args is None else args)
        tail: list[str] = []
        if self._tail and "--" in given:
            at = given.index("--")
            given, tail = given[:at], given[at + 1 :]
        self._check_options(given)
        found, unknown = super().parse_known_args(given, namespace)
        if self._tail:
            found.tail = tail
        return found, unknown

    def _check_options(self, args: Sequence[str]) -> None:
        """Look at the options that are this parser's: those before a command, or before what another program gets."""
        positional = next((action for action in self._actions if not action.option_strings), None)
        ends = positional is not None and positional.nargs in (argparse.PARSER, argparse.REMAINDER)
        known = self._option_string_actions
        takes = False  # the next word is the value of an option
        for word in args:
            if word == "--":
                return
            flag, has_value, _ = word.partition("=")
            if not word.startswith("--"):
                if ends and not takes and not word.startswith("-"):
                    return
            elif flag not in known:
                names = [name[2:] for name in known if name.startswith("--")]
                if near := difflib.get_close_matches(flag[2:], names, n=1, cutoff=_NEAR):
                    self.error(f"there is no option {flag}: did you mean --{near[0]}?")
            action = known.get(flag)
            takes = action is not None and action.nargs != 0 and not has_value

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A command that there is not: the nearest, an option that is called so, or those to begin with."""
        choices = action.choices
        if not isinstance(action, argparse._SubParsersAction) or not choices or value in choices:
            super()._check_value(action, value)
            return
        options = {name[2:]: f"{self.prog} {name}" for name in self._option_string_actions if name.startswith("--")}
        named = {**options, **{str(each): str(each) for each in choices}}
        near = difflib.get_close_matches(str(value).lstrip("-"), named, n=1, cutoff=_NEAR)
        ways = (
            f"did you mean {named[near[0]]}?" if near else f"try {self.prog}, {self.prog} demo or {self.prog} diagnose"
        )
        self.error(f"there is no command {value!r}: {ways}")

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is; exit 64."""
        # a glob puts the names of other people's files on the command line
        see = "" if message.endswith("--help?") else f"; see {self.prog} --help"
        sys.stderr.write(f"gputop: {clean(message)}{see}\n")
        raise SystemExit(USAGE)


FILES = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}  # what each shell completes a file's name with


def file(parser: argparse._ActionsContainer, *names: str, metavar: str, help: str, nargs: str | None = None) -> None:
    """An argument that is a file's name, for the shells too."""
    action = parser.add_argument(*names, metavar=metavar, help=help, nargs=nargs)
    setattr(action, "complete", FILES)  # noqa: B010  the type lacks it


class Suggestions:
    """What a shell offers for an argument; that a name is none of them is said by the command, in better words."""

    def __init__(self, find: Callable[[], Iterable[str]]) -> None:
        self._find = find  # late: only the completions need them

    def __iter__(self) -> Iterator[str]:
        return iter(self._find())

    def __contains__(self, name: object) -> bool:
        return True


def encoding() -> str:
    """The encoding of who reads standard output."""
    return output.understood(sys.stdout.encoding, os.environ)


def plain(settings: Settings) -> bool:
    """Whether standard output gets ASCII only."""
    return output.plain(settings.ascii, encoding())


def json_flag(parser: argparse.ArgumentParser) -> None:
    """`--json`, as every command with a report has it."""
    parser.add_argument("--json", dest="as_json", action="store_true", help="as one JSON object")


def no_commands(parser: argparse._ActionsContainer) -> None:
    """`--no-commands`, as every command has it that writes command lines: for what leaves the house."""
    parser.add_argument(
        "--no-commands",
        action="store_true",
        default=argparse.SUPPRESS,  # or it would be lost before the name of a command
        help="the name of a process in place of its command line",
    )


def only_names(args: argparse.Namespace) -> Callable[[Frame], Frame] | None:
    """What a frame goes through before anything else has it, if command lines were not wanted."""
    if not getattr(args, "no_commands", False):
        return None
    from gputop.export.format import without_commands

    return without_commands


def duration(text: str) -> float:
    try:
        return units.duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def lasting(text: str) -> float:
    """A duration in which something can happen."""
    if not (seconds := duration(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no time at all: use more, as in 60s")
    return seconds


INTERVAL = "1"  # seconds, where a command has no other


def common(interval: str = INTERVAL) -> Parser:
    """The flags that every command takes, before or after its name; `interval` is what help says that one is."""
    common = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    group = common.add_argument_group("everywhere")
    file(group, "--source", metavar="live|demo:NAME|FILE|-", help="where the numbers come from")
    group.add_argument("--interval", type=duration, metavar="S", help=f"seconds between samples ({interval})")
    group.add_argument("--readonly", action="store_true", help="nothing that changes a process or a file")
    group.add_argument(
        "--no-remember", dest="remember", action="store_false", help="keep no findings to measure fixes by"
    )
    group.add_argument("--ascii", action="store_const", const="on", help="draw with ASCII characters only")
    group.add_argument("--no-mouse", dest="mouse", action="store_false", help="leave the mouse to the terminal")
    group.add_argument("--no-nvml", dest="nvml", action="store_false", help="never call the NVIDIA driver")
    group.add_argument(
        "--gpm", choices=("on", "off", "auto"), help="SM, tensor and DRAM activity (Hopper and newer): read unless off"
    )
    file(group, "--config", metavar="FILE", help="settings file (~/.config/gputop/config.toml)")
    return common


def _nothing(parser: argparse.ArgumentParser) -> None:
    """A command that takes no more than the flags that go everywhere."""


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: its words on the command line and what it does. What it needs is imported when it runs."""

    name: str
    help: str
    run: Callable[[argparse.Namespace, Settings], int]  # the exit code
    arguments: Callable[[argparse.ArgumentParser], None] = _nothing
    interval: str = INTERVAL  # seconds between samples if nobody says so
    screen: bool = False  # it opens the full-screen monitor; the others print
