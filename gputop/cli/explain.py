"""What a trace or a profile says, in plain words first."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from gputop import __version__, config
from gputop.cli.line import OK, Command, Failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.config import Settings
    from gputop.page import Page
    from gputop.trace.verdict import View

T = TypeVar("T")


def explain(args: argparse.Namespace, settings: Settings) -> int:
    """Print what the files say; several traces are the ranks of one job."""
    from gputop.page import markdown, text
    from gputop.safe.files import Refused

    try:
        if args.as_json:
            told: list[Any] = _told(args.files, _object)
            print(json.dumps({"version": 1, "gputop": __version__, "files": told}, allow_nan=False))
            return OK
        pages = _told(args.files, _page)
    except Refused as refused:
        raise Failure(str(refused)) from None
    plain = config.plain(settings.ascii, sys.stdout.encoding)
    print("\n".join(markdown(page) if args.format == "md" else text(page, ascii=plain) for page in pages), end="")
    return OK


def _told(files: list[str], tell: Callable[[View], T]) -> list[T]:
    """Each file as it is told; those of one job know of each other."""
    from gputop.trace import signatures  # noqa: F401
    from gputop.trace.read import read
    from gputop.trace.verdict import View

    views = [View(read(name)) for name in files]
    for view in views:
        view.ranks = views
    return [tell(view) for view in views]


def _page(view: View) -> Page:
    from gputop.trace.told import page

    return page(view)


def _object(view: View) -> dict[str, Any]:
    from gputop.trace.summary import as_json

    return as_json(view)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a trace of torch.profiler, packed or not")
    parser.add_argument("--json", dest="as_json", action="store_true", help="as one JSON object")
    parser.add_argument("--format", choices=("text", "md"), default="text", help="text, or Markdown for an issue")


COMMANDS = (
    Command(
        name="explain",
        help="what a torch trace says, and what to do about it",
        run=explain,
        arguments=_arguments,
    ),
)
