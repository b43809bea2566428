"""A fact: what somebody who looked inside a process says of it. It travels with the frames, so that a replay has it."""

from __future__ import annotations

from typing import Annotated, Literal

from gputop.declare import record
from gputop.model.process import Identity

Witness = Literal["stack", "trace", "notes", "meter"]


@record(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that a profile of stacks, a trace, or the notes of the program itself say of a process."""

    process: Annotated[Identity, "whom it is said of"]
    witness: Annotated[Witness, "who says it"]
    name: Annotated[str, "what it is, for the rules: loads-in-main, launch-bound"]
    text: Annotated[str, "the same in words, with its numbers"]
    share: Annotated[float | None, "of the time, 0 to 1"] = None
    age_s: Annotated[float, "how old it is at this frame, in seconds"] = 0.0
