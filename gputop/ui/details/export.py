"""What of one process goes into a file: what is drawn and its numbers, without secrets, those too that are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gputop.export import codec, diagnosis
from gputop.export.format import masked, redacted
from gputop.model import Detail, Variable
from gputop.safe.text import MASK
from gputop.ui.advice.states import concerning
from gputop.ui.details.process_view import ProcessView


def private(view: ProcessView) -> ProcessView:
    """The same process as others may see it."""
    found = view.found
    if isinstance(found, Detail) and found.environment is not None:
        found = replace(found, environment=tuple(map(_hidden, found.environment)))
    return replace(view, process=masked(view.process), frame=redacted(view.frame), found=found)


def _hidden(variable: Variable) -> Variable:
    return replace(variable, value=MASK, revealed=False) if variable.secret and variable.revealed else variable


def numbers(view: ProcessView) -> dict[str, Any]:
    """The process, what was read of it for the open tab, what was found; never its environment."""
    shown = private(view)
    return {
        "version": codec.VERSION,
        "hostname": shown.frame.hostname,
        "wall_s": shown.frame.wall_s,
        "process": codec.encode(shown.process),
        "detail": codec.encode(replace(shown.detail, environment=None)),
        "findings": [diagnosis.finding(one, shown.frame) for one in concerning(view.process, view.findings)],
    }
