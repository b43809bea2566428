"""The commands that print the manual, and what a shell and a terminal need."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.cli.options import OK, USAGE, CliCommand, Failure, Suggestions
from gputop.suggest import unknown

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
        raise Failure(unknown("page", topic, (*docs.TOPICS, *docs.FILES), "`gputop docs` lists them"), USAGE) from None
    return OK


def metrics(args: argparse.Namespace, settings: Settings) -> int:
    """Every metric, or one by its name in JSON."""
    from gputop.docs.tables import metric_names, metric_page

    if args.metric is None:
        return page(args, settings)
    try:
        print(metric_page(args.metric), end="")
    except KeyError:
        raise Failure(unknown("metric", args.metric, metric_names(), "`gputop metrics` lists them"), USAGE) from None
    return OK


def _metrics_arguments(metrics: argparse.ArgumentParser) -> None:
    metrics.add_argument(
        "metric",
        nargs="?",
        metavar="METRIC",
        choices=Suggestions(_metrics),
        help="name of the metric to show, as in JSON; omit it to list all",
    )


def _metrics() -> Iterable[str]:
    from gputop.docs.tables import metric_names

    return metric_names()


def rules(args: argparse.Namespace, settings: Settings) -> int:
    """Every rule and its question, or one in full; with `--thresholds` the thresholds in effect instead."""
    from gputop.diagnose.rules import RULES
    from gputop.docs.rules import rule_list, rule_page, threshold_page, threshold_pages

    if args.rule is not None and args.rule not in RULES:
        raise Failure(unknown("rule", args.rule, RULES, "`gputop rules` lists them"), USAGE)
    if args.thresholds:
        here = settings.thresholds
        print(threshold_page(args.rule, here) if args.rule else threshold_pages(here), end="")
    else:
        print(rule_page(args.rule) if args.rule else rule_list() + "\n", end="")
    return OK


def _rules_arguments(rules: argparse.ArgumentParser) -> None:
    rules.add_argument(
        "rule",
        nargs="?",
        metavar="RULE",
        choices=Suggestions(_rules),
        help="id of the rule to show in full; omit it to list all",
    )
    rules.add_argument(
        "--thresholds",
        action="store_true",
        help="print the thresholds in effect, with their meaning and source",
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
        help="page to print, or a file for sites; omit it to list all pages",
    )


def _topics() -> Iterable[str]:
    from gputop import docs

    return (*docs.TOPICS, *docs.FILES)


SHELLS = ("bash", "zsh", "tcsh")


def completions(args: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """The completion script of one shell, as shipped."""
    print((Path(__file__).parents[1] / "completions" / f"gputop.{args.shell}").read_text(), end="")
    return OK


def reset_terminal(args: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """Reset the terminal."""
    from gputop.safe import terminal

    if problem := terminal.reset_terminal():
        raise Failure(f"{problem}; run it in the terminal to reset")
    return OK


def _completions_arguments(completions: argparse.ArgumentParser) -> None:
    completions.add_argument("shell", choices=SHELLS, help="shell to print the script for")


COMMANDS = (
    CliCommand(
        name="rules",
        help="list the diagnosis rules, or one in full",
        examples=("gputop rules thermal", "gputop rules thermal --thresholds"),
        run=rules,
        arguments=_rules_arguments,
    ),
    CliCommand(
        name="metrics",
        help="list every metric with unit and meaning, or show one",
        examples=("gputop metrics busy_percent", "gputop metrics | grep -i power"),
        run=metrics,
        arguments=_metrics_arguments,
    ),
    CliCommand(
        name="columns",
        help="list every column of the process table",
        examples=("gputop columns | less", "gputop columns | grep -i cpu"),
        run=page,
    ),
    CliCommand(
        name="keys",
        help="list every key of the monitor",
        examples=("gputop keys | less", "gputop keys | grep -i filter"),
        run=page,
    ),
    CliCommand(
        name="docs",
        help="list the pages of the manual, or print one",
        examples=("gputop docs", "gputop docs diagnosis | less"),
        run=page,
        arguments=_docs_arguments,
    ),
    CliCommand(
        name="completions",
        help="print the completion script of a shell",
        examples=(
            'eval "$(gputop completions bash)"             # in ~/.bashrc',
            'gputop completions zsh > "$HOME/_gputop"      # a folder of $fpath',
        ),
        run=completions,
        arguments=_completions_arguments,
    ),
    CliCommand(
        name="reset-terminal",
        help="restore a terminal after a crashed program",
        examples=(
            "gputop reset-terminal",
            "kill -KILL %1; gputop reset-terminal    # after killing a full-screen job",
        ),
        run=reset_terminal,
    ),
)
