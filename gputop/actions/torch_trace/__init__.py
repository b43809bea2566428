"""Traces of torch.profiler from processes that run, and what they say; the program's own notes.

run = TRACE.run(hold, Order(steps=3), tell)
run.result.views, run.result.files     # a trace a rank, read, and where it is
run.result.risk                        # set: nothing was done; tell `text`, and run again with it in `confirmed`
notes(process, rights)                 # facts: loaders, model, precision, allocator, threads
"""

from gputop.actions.torch_trace.agent_facts import notes
from gputop.actions.torch_trace.capture import Order, Traced
from gputop.actions.torch_trace.trace import TRACE

__all__ = ["TRACE", "Order", "Traced", "notes"]
