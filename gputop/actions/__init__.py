"""What can be done to processes. Each action is declared here once; a screen needs to know nothing else about it.

A screen does this, none of it waits:

    why = action.why_not(process, rights)     # None, or the line that stands beside a grey key
    hold = Hold(frame, process, rights)       # when a dialog opens: frozen by pidfd, pid, start time and uid
    run = action.run(hold, options, tell)     # a daemon thread; tell(run) is called there at each change
    run.line, run.result, run.cancel()        # progress, the end (None until then), give up
    hold.close()                              # when the dialog closes; a run keeps what it needs

`signals`, `renice`, `spy` and `tracing` say what their options are and what else their dialogs can ask.
"""

from typing import Any

from gputop.actions.action import Action, Result, Run
from gputop.actions.hold import Hold, Reach, Scope
from gputop.actions.renice import RENICE
from gputop.actions.signals import SIGNAL
from gputop.actions.spy import PROFILE, STACK
from gputop.actions.target import Outcome, Rights
from gputop.actions.tracing import TRACE

ACTIONS: tuple[Action[Any], ...] = (SIGNAL, RENICE, STACK, PROFILE, TRACE)

__all__ = [
    "ACTIONS",
    "PROFILE",
    "RENICE",
    "SIGNAL",
    "STACK",
    "TRACE",
    "Action",
    "Hold",
    "Outcome",
    "Reach",
    "Result",
    "Rights",
    "Run",
    "Scope",
]
