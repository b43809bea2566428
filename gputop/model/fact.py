"""A fact: what somebody who looked inside a process says of it. It travels with the frames, so that a replay has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gputop.model.process import Identity

Witness = Literal["stack", "trace", "notes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that a profile of stacks, a trace, or the notes of the program itself say of a process."""

    process: Identity
    witness: Witness
    name: str  # what it is, for the rules: loads-in-main, launch-bound
    text: str  # the same in words, with its numbers
    share: float | None = None  # of the time, 0-1
    age_s: float = 0.0  # at this frame
