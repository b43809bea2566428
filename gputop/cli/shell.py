"""The commands for the shell and the terminal around gputop."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.cli.line import OK, Command, Failure

if TYPE_CHECKING:
    from gputop.config import Settings

SHELLS = ("bash", "zsh", "tcsh")


def completions(args: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """The completion script of one shell, as shipped."""
    print((Path(__file__).parents[1] / "completions" / f"gputop.{args.shell}").read_text(), end="")
    return OK


def reset_terminal(args: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """Heal the terminal."""
    from gputop.safe import terminal

    if problem := terminal.reset_terminal():
        raise Failure(f"{problem}; run it in the terminal that is to be healed")
    return OK


def _completions_arguments(completions: argparse.ArgumentParser) -> None:
    completions.add_argument("shell", choices=SHELLS)


COMMANDS = (
    Command(
        name="completions",
        help="print the completion script of a shell",
        run=completions,
        arguments=_completions_arguments,
    ),
    Command(name="reset-terminal", help="heal a terminal that a crash left in a strange mode", run=reset_terminal),
)
