"""The commands that print the manual, and what a shell and a terminal need."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.cli.options import OK, USAGE, CliCommand, Failure, Suggestions
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.config import Settings


def page(args: argparse.Namespace, settings: Settings) -> int:
    """A page of the manual: a topic, or one of the lists that are made from the declarations."""
    from gputop import docs
    from gputop.docs.keys import key_tables
    from gputop.ui.commands.remap import remapped

    topic = args.topic if args.command == "docs" else args.command
    if topic is None:
        for name, title in docs.topics():
            print(f"{name:15} {title}")
        return OK
    try:
        print(docs.read(topic, {"keys": lambda: key_tables(remapped(settings.keys))}), end="")
    except KeyError:
        names = ", ".join(name for name, _ in docs.topics())
        raise Failure(f"there is no page {topic!r}: use one of {names}", USAGE) from None
    return OK


def rules(args: argparse.Namespace, settings: Settings) -> int:
    """Every rule and its question, or one in full; its numbers are those that hold here."""
    from gputop.diagnose.rules import RULES
    from gputop.docs.rules import rule_list, rule_page

    if args.rule is None:
        print(rule_list())
        return OK
    if args.rule not in RULES:
        from difflib import get_close_matches  # late, as only a mistake needs it

        near = get_close_matches(args.rule, RULES, 1, 0.5)
        hint = f"do you mean {near[0]}?" if near else "`gputop rules` lists them"
        raise Failure(f"there is no rule {clean(args.rule, 40)!r}: {hint}", USAGE)
    print(rule_page(args.rule, settings.thresholds), end="")
    return OK


def _rules_arguments(rules: argparse.ArgumentParser) -> None:
    rules.add_argument(
        "rule",
        nargs="?",
        metavar="RULE",
        choices=Suggestions(_rules),
        help="one rule in full, by its id; without it, all",
    )


def _rules() -> Iterable[str]:
    from gputop.diagnose.rules import RULES

    return RULES


def _docs_arguments(docs: argparse.ArgumentParser) -> None:
    docs.add_argument(
        "topic",
        nargs="?",
        metavar="TOPIC",
        choices=Suggestions(_topics),
        help="one page; without it, the list of pages",
    )


def _topics() -> Iterable[str]:
    from gputop import docs

    return docs.TOPICS


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
    CliCommand(
        name="rules", help="every rule of the diagnosis, or one with its numbers", run=rules, arguments=_rules_arguments
    ),
    CliCommand(name="metrics", help="every metric, its unit and its meaning", run=page),
    CliCommand(name="columns", help="every column of the process table", run=page),
    CliCommand(name="keys", help="every key", run=page),
    CliCommand(name="docs", help="read the manual", run=page, arguments=_docs_arguments),
    CliCommand(
        name="completions",
        help="print the completion script of a shell",
        run=completions,
        arguments=_completions_arguments,
    ),
    CliCommand(name="reset-terminal", help="heal a terminal that a crash left in a strange mode", run=reset_terminal),
)
