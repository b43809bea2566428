"""Actions on processes. Each is an `Action`, declared in its own module.

A screen uses them as follows; nothing blocks:

    why = action.why_not(process, rights)    # None, or the reason shown beside a disabled key
    handles = Handles(frame, process, rights)  # when a dialog opens: frozen by pidfd, PID, start time and uid
    run = action.run(handles, options, tell)   # a daemon thread; it calls tell(run) at each change
    run.line, run.result, run.cancel()       # progress, result (None until the end), cancel
    handles.close()                            # when the dialog closes; a run keeps what it needs

`signals`, `renice`, `pyspy` and `torch_trace` define them with their options and further queries for their dialogs.
"""

from gputop.actions.action import Action, ActionResult, ActionRun
from gputop.actions.handles import Handles, Reach, Scope
from gputop.actions.target import Rights, TargetOutcome

__all__ = ["Action", "ActionResult", "ActionRun", "Handles", "Reach", "Rights", "Scope", "TargetOutcome"]
