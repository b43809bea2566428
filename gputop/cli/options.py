"""Shared by all commands: one-line failures, common flags, the declaration of a command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any, NoReturn

from gputop import units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe import output
from gputop.safe.text import clean
from gputop.suggest import nearest, unknown

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.model import Frame

OK, FAILED, USAGE, BROKEN = 0, 1, 64, 70  # the last two as in sysexits.h: wrong usage, internal error


class Failure(Exception):
    """A failure to report: one line with what, why and what to do, and the exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


def write_failure(error: OSError, code: int = FAILED) -> Failure:
    """A failed write, such as a full disk; discards further output, which would be retried at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return Failure(f"not everything could be written: {error.strerror}", code)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help without the global options in the usage line: they are listed below."""

    def add_usage(self, usage: Any, actions: Iterable[argparse.Action], groups: Any, prefix: Any = None) -> None:
        super().add_usage(usage, [one for one in actions if not getattr(one, "everywhere", False)], groups, prefix)


class OneLineParser(argparse.ArgumentParser):
    """argparse with one-line usage errors and our exit code; options cannot be abbreviated, as new ones may follow."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, "formatter_class": _Help, **kwargs})
        self._tail = False
        self.task_groups: Mapping[str, Sequence[str]] = {}  # the commands of each task, for the help

    def keeps_tail(self, example: str) -> None:
        """Keep everything after `--` as a list called `tail`, which argparse would mix with our arguments.

        `example` is shown verbatim below all options, before the example commands.
        """
        self._tail = True
        self.set_defaults(tail=[])
        passed = f"arguments after -- are passed to the function: {self.prog} FACTORY -- ARGS"
        self.epilog = "\n\n".join(filter(None, (f"the function:\n{indent(example, '  ')}\n{passed}", self.epilog)))

    def format_help(self) -> str:
        """The help; commands, if any, are grouped by task."""
        commands = next((one for one in self._actions if isinstance(one, argparse._SubParsersAction)), None)
        if commands is None:
            return super().format_help()
        listed = {one.dest: one for one in commands._get_subactions()}
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for task, names in self.task_groups.items():
            formatter.start_section(task)
            formatter.add_arguments([listed[name] for name in names])
            formatter.end_section()
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_arguments([one for one in group._group_actions if one is not commands])
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Report a misspelled option first: argparse would take its value for a command."""
        given = list(sys.argv[1:] if args is None else args)
        tail: list[str] = []
        if self._tail and "--" in given:
            at = given.index("--")
            given, tail = given[:at], given[at + 1 :]
        self._check_options(given)
        found, extra = super().parse_known_args(given, namespace)
        if extra:  # here, not in the parser of the whole line: it is this command's help that lists the arguments
            self.error(f"unrecognized arguments: {' '.join(extra)}")
        if self._tail:
            found.tail = tail
        return found, extra

    def _check_options(self, args: Sequence[str]) -> None:
        """Check the options of this parser: those before a command or another program's arguments."""
        positional = next((action for action in self._actions if not action.option_strings), None)
        ends = positional is not None and positional.nargs in (argparse.PARSER, argparse.REMAINDER)
        known = self._option_string_actions
        takes = False  # the next word is the option's value
        for word in args:
            if word == "--":
                return
            flag, has_value, _ = word.partition("=")
            if not word.startswith("--"):
                if ends and not takes and not word.startswith("-"):
                    return
            elif flag not in known:
                near = nearest(flag[2:], [name[2:] for name in known if name.startswith("--")])
                self.error(f"unknown option {flag}" + (f": did you mean --{near}?" if near else ""))
            action = known.get(flag)
            takes = action is not None and action.nargs != 0 and not has_value

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """An unknown command or choice: suggest the nearest one, an option of that name, or where they are listed."""
        choices = action.choices
        if choices is None or value in choices:
            return
        names = [str(each) for each in choices]
        if not isinstance(action, argparse._SubParsersAction):
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            self.error(unknown(f"value for {name}:", str(value), names, f"choose from {', '.join(names)}"))
        options = {name[2:]: f"{self.prog} {name}" for name in self._option_string_actions if name.startswith("--")}
        named = {**options, **{each: each for each in names}}
        near = nearest(str(value), named)
        self.error(f"unknown command {value!r}" + (f": did you mean {named[near]}?" if near else ""))

    def error(self, message: str) -> NoReturn:
        """Print the error and, without a suggestion, where to find help; exit with 64."""
        message = message.replace("unrecognized arguments:", "unexpected argument")
        # a glob puts foreign file names on the command line
        see = "" if message.endswith("?") else f"; see {self.prog} --help"
        sys.stderr.write(f"gputop: {clean(message)}{see}\n")
        raise SystemExit(USAGE)


FILES = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}  # file name completion of each shell


def file(parser: argparse._ActionsContainer, *names: str, metavar: str, help: str, nargs: str | None = None) -> None:
    """An argument that is a file name, also for shell completion."""
    action = parser.add_argument(*names, metavar=metavar, help=help, nargs=nargs)
    setattr(action, "complete", FILES)  # noqa: B010  the type lacks it


class Suggestions:
    """Shell completions for an argument; unknown values are rejected by the command with a better message."""

    def __init__(self, find: Callable[[], Iterable[str]]) -> None:
        self._find = find  # called late: only completions need it

    def __iter__(self) -> Iterator[str]:
        return iter(self._find())

    def __contains__(self, name: object) -> bool:
        return True


def encoding() -> str:
    """The encoding of standard output."""
    return output.reader_encoding(sys.stdout.encoding, os.environ)


def ascii_only(settings: Settings) -> bool:
    """Whether standard output must be ASCII."""
    return output.plain(settings.ascii, encoding())


def json_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, shared by all commands with a report."""
    parser.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object")


def no_commands(parser: argparse._ActionsContainer) -> None:
    """Add `--no-commands`, shared by commands that write command lines: for output that leaves the machine."""
    parser.add_argument(
        "--no-commands",
        action="store_true",
        default=argparse.SUPPRESS,  # or it would be lost before the command's name
        help="omit command lines: process names only",
    )


def only_names(args: argparse.Namespace) -> Callable[[Frame], Frame] | None:
    """A filter that removes command lines from every frame, if requested."""
    if not getattr(args, "no_commands", False):
        return None
    from gputop.export.format import without_commands

    return without_commands


def duration(text: str) -> float:
    try:
        return units.duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive_duration(text: str) -> float:
    """A positive duration."""
    if not (seconds := duration(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is too short: use a positive duration such as 60s")
    return seconds


INTERVAL = "1"  # default in seconds


def common_flags(interval: str = INTERVAL) -> OneLineParser:
    """Flags that every command takes, before or after its name; `interval` is the default shown by help."""
    common = OneLineParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = common.add_argument_group("global options")
    file(group, "--source", metavar="live|demo:NAME|FILE|-", help="data source (live)")
    group.add_argument("--interval", type=duration, metavar="S", help=f"seconds between samples ({interval})")
    group.add_argument("--readonly", action="store_true", help="change no process and write no file")
    group.add_argument(
        "--no-remember", dest="remember", action="store_false", help="do not store findings for gputop proven"
    )
    group.add_argument("--ascii", action="store_const", const="on", help="draw with ASCII characters only")
    group.add_argument("--no-mouse", dest="mouse", action="store_false", help="disable mouse support")
    group.add_argument("--no-nvml", dest="nvml", action="store_false", help="do not query the NVIDIA driver")
    group.add_argument(
        "--gpm",
        choices=("on", "off", "auto"),
        help="GPM metrics: SM and tensor activity, memory bandwidth; Hopper and newer (auto)",
    )
    file(group, "--config", metavar="FILE", help="settings file (~/.config/gputop/config.toml)")
    for action in group._group_actions:
        setattr(action, "everywhere", True)  # noqa: B010  for the help
    return common


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """A command without further arguments."""


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class CliCommand:
    """One command: its name, help and function. Its dependencies are imported when it runs."""

    name: str
    help: str
    examples: tuple[str, ...] = ()  # two command lines that run as they are, with a comment
    run: Callable[[argparse.Namespace, Settings], int]  # returns the exit code
    arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments
    interval: str = INTERVAL  # default seconds between samples
    screen: bool | Callable[[argparse.Namespace], bool] = False  # opens the full-screen monitor; others print

    def opens_screen(self, args: argparse.Namespace) -> bool:
        """Whether it opens the full-screen monitor with these arguments."""
        return self.screen if isinstance(self.screen, bool) else self.screen(args)
