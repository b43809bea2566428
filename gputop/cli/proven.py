"""gputop proven: measured effects of fixes that earlier findings advised."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from gputop.cli.options import OK, USAGE, CliCommand, Failure, ascii_only, json_flag

if TYPE_CHECKING:
    from gputop.config import Settings

VERSION = 1


def proven(args: argparse.Namespace, settings: Settings) -> int:
    """List the stored records, report how good predictions were, or delete all."""
    from gputop.proven.report import as_json, page, score
    from gputop.proven.store import FixStore
    from gputop.report import text
    from gputop.safe.files import Refused

    if args.forget and settings.readonly:
        raise Failure("--forget cannot be combined with --readonly", USAGE)
    store = FixStore(writes=not settings.readonly)
    try:
        if args.forget:
            count = store.forget()
            print(f"Deleted {count} stored findings and their outcomes." if count else "No stored findings to delete.")
            return OK
        fixes = list(store.load().values())
    except (Refused, OSError) as why:
        raise Failure(str(why)) from None
    if args.as_json:
        stats = score(fixes)._asdict()
        print(json.dumps({"version": VERSION, "stats": stats, **({} if args.stats else {"fixes": as_json(fixes)})}))
        return OK
    print(text(page(fixes, stats=args.stats), ascii=ascii_only(settings)), end="")
    return OK


def _arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--stats", action="store_true", help="how accurate the predictions were")
    which.add_argument("--forget", action="store_true", help="delete all stored findings")
    json_flag(parser)


COMMANDS = (
    CliCommand(
        name="proven",
        help="show the measured gain of each fix",
        examples=("gputop proven", "gputop proven --stats"),
        run=proven,
        arguments=_arguments,
    ),
)
