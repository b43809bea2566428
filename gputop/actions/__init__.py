"""What can be done to processes. Each is an `Action`, declared in a module of its own.

A screen does this, none of it waits:

    why = action.why_not(process, rights)     # None, or the line that stands beside a grey key
    hold = Handles(frame, process, rights)       # when a dialog opens: frozen by pidfd, pid, start time and uid
    run = action.run(hold, options, tell)     # a daemon thread; tell(run) is called there at each change
    run.line, run.result, run.cancel()        # progress, the end (None until then), give up
    hold.close()                              # when the dialog closes; a run keeps what it needs

`signals`, `renice`, `spy` and `tracing` have them, and say what their options are and what else their dialogs can ask.
"""

from gputop.actions.action import Action, Result, Run
from gputop.actions.handles import Handles, Reach, Scope
from gputop.actions.target import Outcome, Rights

__all__ = ["Action", "Handles", "Outcome", "Reach", "Result", "Rights", "Run", "Scope"]
