"""What a training program spends its time on, told from the functions that are on the stack of its main thread."""

from __future__ import annotations

import re
from typing import NamedTuple

from gputop.profile.stacks import Profile


class Part(NamedTuple):
    """One known part. A stack belongs to the first part in the list below that one of its frames fits."""

    name: str  # of a fact, for the rules
    text: str  # after `its main thread is `
    frame: re.Pattern[str]  # of a frame as it is named: Class.function (file.py:12)
    phase: str = ""  # of a step: data, forward, backward, optimizer, comms


def _part(name: str, text: str, *frames: tuple[str, str], phase: str = "") -> Part:
    """`frames` are pairs of a function and its file; a function may have a class in front of it."""
    either = "|".join(rf"(?:{function}) \((?:[^)]*/)?(?:{file})(?::\d+)?\)$" for function, file in frames)
    return Part(name, text, re.compile(rf"(?:^|\.)(?:{either})"), phase)


PARTS = (
    _part("loads-in-main", "loading data itself", ("fetch", r"fetch\.py"), phase="data"),
    _part(
        "waits-for-data",
        "waiting for the DataLoader",
        ("__next__|_next_data|_get_data|_try_get_data|__iter__|_get_iterator", r"dataloader\.py"),
        phase="data",
    ),
    _part("compiles", "compiling", (r"\w+", r"convert_frame\.py|compile_fx\.py|async_compile\.py")),
    _part(
        "data-parallel",
        "DataParallel, copying the model and its batches",
        ("replicate|scatter|gather", r"data_parallel\.py"),
        ("replicate", r"replicate\.py"),
        (r"scatter\w*|gather\w*", r"scatter_gather\.py"),
        phase="comms",
    ),
    _part("collectives", "collectives", (r"\w+", r"distributed_c10d\.py"), phase="comms"),
    _part("saves", "saving a checkpoint", (r"\w*save\w*", r"serialization\.py|state_dict_saver\.py")),
    _part(
        "draws",
        "drawing or saving images",
        ("save_image|make_grid", r"utils\.py"),
        ("savefig|imsave", r"pyplot\.py|figure\.py"),
        ("save", r"Image\.py"),
        ("imwrite", r"v[23]\.py|core\.py"),
    ),
    _part(
        "logs",
        "logging",
        ("emit|callHandlers|_log", r"__init__\.py"),
        (r"add_\w+", r"writer\.py"),
        ("refresh|display", r"std\.py"),
        ("log|_log", r"wandb_run\.py"),
    ),
    _part("backward", "backward", ("_engine_run_backward", r"graph\.py"), ("backward", r".*\.py"), phase="backward"),
    _part(
        "optimizer",
        "optimizer",
        (r"\w*step\w*|zero_grad|\w*_use_grad", r"\w*optim\w*\.py|adam\w*\.py|sgd\.py|adagrad\.py|rmsprop\.py"),
        ("step", r"lbfgs\.py|muon\.py|adafactor\.py"),
        phase="optimizer",
    ),
    _part("forward", "forward", ("_call_impl|_wrapped_call_impl", r"module\.py"), ("forward", ".*"), phase="forward"),
)
PHASES = ("data", "forward", "backward", "optimizer", "comms")


def main(profile: Profile) -> Profile:
    """The main thread of the process it is about, where threads are told apart; else all of it."""
    found = profile.only(lambda thread: thread.main and thread.pid in (None, profile.subject))
    return found if found.stacks else profile


def shares(profile: Profile) -> dict[Part, float]:
    """Of all samples, those of each part, 0 to 1, the largest first; together never more than 1."""
    counts = dict.fromkeys(PARTS, 0.0)
    known: dict[str, int] = {}
    for stack, count in profile.stacks.items():
        first = min((_place(name, known) for name in stack), default=len(PARTS))
        if first < len(PARTS):
            counts[PARTS[first]] += count
    total = profile.total or 1.0
    return {part: counts[part] / total for part in sorted(PARTS, key=lambda part: -counts[part])}


def phases(profile: Profile) -> dict[str, float]:
    """Of all samples, those of each phase of a step; a phase that no name tells is missing."""
    found = shares(profile)
    sums = {phase: sum(share for part, share in found.items() if part.phase == phase) for phase in PHASES}
    return {phase: share for phase, share in sums.items() if share}


def _place(name: str, known: dict[str, int]) -> int:
    """The first part that a frame fits."""
    place = known.get(name)
    if place is None:
        fits = (place for place, part in enumerate(PARTS) if part.frame.search(name))
        place = known[name] = next(fits, len(PARTS))
    return place
