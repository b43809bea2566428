"""What a training loop spends its time on, told by the frames on the stacks of its main thread."""

from __future__ import annotations

import re
from typing import NamedTuple

from gputop.profile.stacks import Profile


class Part(NamedTuple):
    """One known part: a frame of this kind is on the stack."""

    name: str
    text: str
    pattern: re.Pattern[str]


PARTS = tuple(
    Part(name, text, re.compile(pattern))
    for name, text, pattern in (
        (
            "waits-for-data",
            "waiting for the DataLoader",
            r"^(?:__next__|_next_data|_get_data|_try_get_data) \(.*dataloader\.py",
        ),
        ("loads-in-main", "loading data itself", r"^fetch \((?:.*/)?fetch\.py"),
        ("backward", "backward", r"^(?:_engine_run_backward|backward) \("),
        ("optimizer", "optimizer", r"^\w*step\w* \((?:.*optim\w*|adam\w*|sgd|adagrad|rmsprop|lbfgs|muon)\.py"),
        ("collectives", "collectives", r"^\w+ \((?:.*/)?distributed_c10d\.py"),
        ("data-parallel", "DataParallel", r"^\w+ \((?:.*/)?(?:data_parallel|parallel_apply|replicate)\.py"),
        (
            "logs",
            "logging and drawing",
            r"^(?:save_image|make_grid|add_(?:image|scalar|histogram)s?|imwrite|imsave|savefig) \("
            r"|^(?:_log|callHandlers|emit) \((?:.*/)?__init__\.py|^\w+ \((?:.*/)?wandb_run\.py",
        ),
        ("saves", "saving a checkpoint", r"^\w*save\w* \((?:.*/)?serialization\.py"),
        ("compiles", "compiling", r"^\w+ \((?:.*/)?(?:convert_frame|compile_fx|async_compile)\.py"),
    )
)


def main(profile: Profile) -> Profile:
    """The main thread, where threads are told apart; else all of it."""
    found = Profile(
        (stack[1:], count) for stack, count in profile.stacks.items() if "MainThread" in stack[0] and stack[1:]
    )
    return found if found.stacks else profile


def shares(profile: Profile) -> dict[Part, float]:
    """Of all samples, those of each part, 0 to 1; one sample may be in several."""
    total = profile.total
    return {
        part: sum(count for stack, count in profile.stacks.items() if any(map(part.pattern.search, stack))) / total
        for part in PARTS
    }
