"""Commands that print training code with every performance setting in place."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.cli.options import OK, USAGE, CliCommand, Failure, Suggestions, file
from gputop.safe.text import clean
from gputop.suggest import unknown

if TYPE_CHECKING:
    from gputop.config import Settings


def scaffold(args: argparse.Namespace, settings: Settings) -> int:
    """Print the training script, or write it to a file that does not exist yet."""
    from gputop.lab.recipes import script, with_workers

    to_file = args.file not in (None, "-")
    if settings.readonly and to_file:
        raise Failure("--readonly writes no file: omit FILE to print the script", USAGE)
    text = with_workers(script(), lambda: _workers(settings))
    if not to_file:
        print(text, end="")
        return OK
    _write(Path(args.file), text)
    name = clean(args.file)
    print(f"wrote {name}; run it with python {clean(shlex.quote(args.file))} --steps 200")
    return OK


def _write(path: Path, text: str) -> None:
    """Write a new file completely or not at all."""
    name = clean(str(path))
    try:
        opened = path.open("x", encoding="utf-8")
    except FileExistsError:
        raise Failure(f"{name} exists and is not overwritten; choose another name") from None
    except OSError as error:
        raise Failure(f"{name}: {error.strerror}") from None
    try:
        with opened:
            opened.write(text)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise Failure(f"{name}: {error.strerror}") from None


def recipe(args: argparse.Namespace, settings: Settings) -> int:
    """Print every part of the script with its purpose, or one of them in full."""
    from gputop.lab.recipes import recipes, with_workers

    found = recipes()
    if args.name is None:
        for each in found.values():
            print(f"{each.name:11} {each.text}")
        return OK
    if args.name not in found:
        raise Failure(unknown("recipe", args.name, found, "`gputop recipe` lists them"), USAGE)
    print(with_workers(found[args.name].code, lambda: _workers(settings)))
    return OK


def _workers(settings: Settings) -> int:
    """Initial number of DataLoader workers on this host, as in `gputop doctor`."""
    from gputop.doctor import DoctorContext
    from gputop.doctor.share import share

    try:
        return share(DoctorContext(nvml=settings.nvml)).workers
    except OSError as error:
        raise Failure(f"cannot read the CPUs of this host: {error.strerror}") from None


def _recipes() -> Iterable[str]:
    from gputop.lab.recipes import recipes

    return recipes()


def _scaffold_arguments(parser: argparse.ArgumentParser) -> None:
    file(parser, "file", nargs="?", metavar="FILE", help="file to create; omit it to print the script")


def _recipe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", choices=Suggestions(_recipes), help="part to print; omit it to list all"
    )


COMMANDS = (
    CliCommand(
        name="scaffold",
        help="write a training script with every performance setting",
        examples=("gputop scaffold train.py", "gputop scaffold | less"),
        run=scaffold,
        arguments=_scaffold_arguments,
    ),
    CliCommand(
        name="recipe",
        help="print one part of the scaffold, such as amp",
        examples=("gputop recipe", "gputop recipe amp"),
        run=recipe,
        arguments=_recipe_arguments,
    ),
)
