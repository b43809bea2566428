"""The command that measures a DataLoader in the user's own Python."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gputop.cli import experiment
from gputop.cli.experiment import Asked, Experiment, whole_number
from gputop.cli.line import Command

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.page import Page

_MOST_WORKERS = 1024
_SETTINGS = 5  # measured after the numbers of workers, for the time that is left
_EXAMPLE = """\
def make_loader():                       # in train.py: gputop loader train.py:make_loader
    data = ImageFolder("/data/train")
    loader = DataLoader(data, batch_size=64, shuffle=True)
    return loader                        # or, to learn how long the step waits for it:
    return loader, step                  # step(batch) does one training step
"""


def _page(result: Mapping[str, Any]) -> Page:
    from gputop.lab.loader_report import page

    return page(result)


def _advice(result: Mapping[str, Any]) -> dict[str, Any]:
    """The line to write, where all was measured."""
    from gputop.lab.loader_report import plan_of
    from gputop.lab.loading import line, per_rank

    if "recommended" not in result or result.get("ended"):
        return {"line": None}
    return {"line": line(result, per_rank(plan_of(result), result["recommended"]))}


_SKETCH = """\
def make_loader():
    dataset = ...  # as the training makes it
    return DataLoader(dataset, batch_size={batch_size}, shuffle=True, num_workers={workers})
"""
LOADER = Experiment(
    kind="loader",
    program="child_loader.py",
    example=_EXAMPLE,
    unit="batches",
    rows="workers",
    page=_page,
    extra=_advice,
)


def loader(args: argparse.Namespace, settings: Settings) -> int:
    """Measure each number of workers, then each other setting."""
    from gputop.cli.from_process import filled
    from gputop.lab.loading import BATCH_SIZE, Plan, sweep

    if args.last:
        return experiment.last(LOADER, args, settings)
    seen = filled(args, settings, "loader", ("loader", "dataset", "data"), _SKETCH)
    asked = Asked(LOADER, args)
    cpus, jobs = _host(settings)
    own = seen.workers if seen else None
    plan = Plan(cpus=cpus, jobs=jobs, workers=args.workers, batches=args.batches, own=own)
    size = args.batch_size or (seen.batch_size if seen else None) or BATCH_SIZE
    asked.request, asked.rounds = {"batch_size": size}, len(plan.counts) + _SETTINGS
    return experiment.run(asked, settings, {"cpus": cpus, "jobs": jobs}, lambda result: sweep(asked, plan, result))


def _host(settings: Settings) -> tuple[int, int]:
    """CPUs that may be used here, and how many ranks share them, as `gputop doctor` counts them."""
    from gputop.doctor.machine import Machine
    from gputop.doctor.share import share

    try:
        found = share(Machine(nvml=settings.nvml))
    except OSError:
        return len(os.sched_getaffinity(0)), 1
    return found.allowed, found.jobs


def _counts(text: str) -> tuple[int, ...]:
    """Numbers of workers, with commas."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) <= _MOST_WORKERS for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers of workers: write 0,4,8")
    return tuple(int(part) for part in parts)


def _arguments(parser: argparse.ArgumentParser) -> None:
    from gputop.lab.loading import BATCH_SIZE, BATCHES

    returns = "a DataLoader or a Dataset, or one with the step or the model: (loader, step), (model, loader)"
    experiment.arguments(parser, LOADER, returns)
    parser.add_argument(
        "--workers", type=_counts, metavar="LIST", help="numbers of workers (0,2,4,8,12, as far as there are CPUs)"
    )
    parser.add_argument(
        "--batches", type=whole_number, default=BATCHES, metavar="N", help=f"batches timed for each setting ({BATCHES})"
    )
    parser.add_argument(
        "--batch-size",
        type=whole_number,
        metavar="N",
        help=f"where it returns a Dataset ({BATCH_SIZE})",
    )


COMMANDS = (
    Command(
        name="loader",
        help="measure a DataLoader with different settings, and print the best one for this host",
        run=loader,
        arguments=_arguments,
    ),
)
