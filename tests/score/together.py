"""All runs of simulated servers at once, some at a time, behind everything else on the machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.score import runs
from tests.score.disturbed import PLAIN
from tests.score.marks import Result
from tests.score.tools import TOOLS

Key = tuple[str, str, str]  # scenario, variant, tool


def synthetic(wanted: list[str], variants: list[str], at_once: int) -> Iterator[tuple[Key, Result]]:
    """The results in the order in which they were asked for; a worker that dies ends it."""
    asked = [(name, variant) for name in wanted for variant in variants]
    with ProcessPoolExecutor(min(len(asked), at_once), get_context("spawn"), _polite) as pool:
        for number, found in enumerate(pool.map(_one, asked), 1):
            sys.stderr.write(f"\r{number} of {len(asked)} runs ")
            sys.stderr.flush()
            yield from found
    sys.stderr.write("\n")


def _one(asked: tuple[str, str]) -> list[tuple[Key, Result]]:
    name, variant = asked
    tools = TOOLS if variant == PLAIN.name else ("gputop",)
    return [((name, variant, tool), result) for tool, result in runs.played(name, variant, tools).items()]


def _polite() -> None:
    os.nice(10)
