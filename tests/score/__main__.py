"""python -m tests.score [--tier synthetic|real] [--scenario NAME ...] [--land]: how often the diagnosis is right."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from multiprocessing import get_context

from tests.score import real, runs
from tests.score.marks import Result
from tests.score.told import Runs, land, page
from tests.score.tools import TOOLS

HOW = {
    "synthetic": "Simulated servers with a planted fault each, at one look a second. Made by `make score`, from a "
    "checkout; the runs are the same every time.",
    "real": "Real processes with a planted fault each and their healthy twins, on two CPUs and a fake driver. Made by "
    "`python -m tests.score --tier real`, which needs an idle machine for some hours.",
}
_Key = tuple[str, str, str]


def _one(asked: tuple[str, str]) -> list[tuple[_Key, Result]]:
    name, variant = asked
    tools = TOOLS if variant == runs.PLAIN.name else ("gputop",)
    return [((name, variant, tool), result) for tool, result in runs.played(name, variant, tools).items()]


def _polite() -> None:
    os.nice(10)


def synthetic(wanted: list[str], variants: list[str]) -> Iterator[tuple[_Key, Result]]:
    """All runs, on all CPUs."""
    asked = [(name, variant) for name in wanted for variant in variants]
    workers = min(len(asked), os.cpu_count() or 1)
    with get_context("spawn").Pool(workers, _polite) as pool:
        for number, found in enumerate(pool.imap(_one, asked), 1):
            sys.stderr.write(f"\r{number} of {len(asked)} runs ")
            yield from found
    sys.stderr.write("\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tier", choices=tuple(HOW), default="synthetic")
    parser.add_argument("--scenario", nargs="*", default=[], metavar="NAME", help="parts of names; all without")
    parser.add_argument("--plain", action="store_true", help="not disturbed")
    parser.add_argument("--land", action="store_true", help="write the table into the manual")
    options = parser.parse_args()
    tier = real if options.tier == "real" else runs
    wanted = [name for name in tier.names() if not options.scenario or any(part in name for part in options.scenario)]
    if not wanted:
        parser.error("no scenario has such a name")
    variants = [runs.PLAIN.name] if options.plain else list(runs.VARIANTS)
    made: Runs = dict(real.all_played(wanted) if tier is real else synthetic(wanted, variants))
    text = page(made, runs.PLAIN.name, HOW[options.tier])
    print(text)
    if options.land:
        land(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
