"""The commands that print the manual."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gputop.cli.line import OK, USAGE, Command, Failure, Names

if TYPE_CHECKING:
    from gputop.config import Settings


def page(args: argparse.Namespace, settings: Settings) -> int:
    """A page of the manual: a topic, or one of the lists that are made from the declarations."""
    from gputop import docs
    from gputop.docs.tables import key_tables
    from gputop.ui.keys.remap import remapped

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


def _docs_arguments(docs: argparse.ArgumentParser) -> None:
    docs.add_argument(
        "topic", nargs="?", metavar="TOPIC", choices=Names(_topics), help="one page; without it, the list of pages"
    )


def _topics() -> Iterable[str]:
    from gputop import docs

    return docs.TOPICS


COMMANDS = (
    Command(name="metrics", help="every metric, its unit and its meaning", run=page),
    Command(name="columns", help="every column of the process table", run=page),
    Command(name="keys", help="every key", run=page),
    Command(name="docs", help="read the manual", run=page, arguments=_docs_arguments),
)
