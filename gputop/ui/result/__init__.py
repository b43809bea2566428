"""The screen that shows what a profiler found: stacks, a profile, a trace, or what is kept of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.screen import Screen

    from gputop.ui.result.builders import Result
    from gputop.ui.session import Session


def screen_of(session: Session, result: Result) -> Screen[Any]:
    """The screen of a result, to be pushed; it reads what has to be read in a thread of its own."""
    from gputop.ui.result.screen import ResultScreen  # late: it knows the traces

    return ResultScreen(session, result)
