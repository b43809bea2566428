"""The screen that shows what a profiler found: stacks, a profile, a trace, or what is kept of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.screen import Screen

    from gputop.ui.keys.declared import Key
    from gputop.ui.result.builders import Result
    from gputop.ui.result.program import Program
    from gputop.ui.theme import Look


def screen_of(program: Program, result: Result, look: Look, keys: Sequence[Key]) -> Screen[Any]:
    """The screen of a result, to be pushed; it reads what has to be read in a thread of its own."""
    from gputop.ui.result.screen import ResultScreen  # late: it knows the traces

    return ResultScreen(program, result, look, keys)
