"""Traces of torch.profiler from running processes, their analysis, and the notes of the programs.

run = TRACE.run(handles, TraceOrder(steps=3), tell)
run.result.views, run.result.files     # one trace per rank, parsed, and its path
run.result.risk                        # set: nothing was done; show `text`, and run again with it in `confirmed`
notes(process, rights)                 # facts: loaders, model, precision, allocator, threads
"""

from gputop.actions.torch_trace.agent_facts import notes
from gputop.actions.torch_trace.capture import Traced, TraceOrder
from gputop.actions.torch_trace.trace import TRACE

__all__ = ["TRACE", "TraceOrder", "Traced", "notes"]
