"""Traces of torch.profiler from processes that run, and what they say; the program's own notes.

run = TRACE.run(hold, Order(steps=3), tell)
run.result.views, run.result.files     # a trace a rank, read, and where it is
run.result.risk                        # set: nothing was done; tell `text`, and run again with it in `confirmed`
notes(process, rights)                 # facts: loaders, model, precision, allocator, threads
"""

from gputop.actions.tracing.notes import notes
from gputop.actions.tracing.order import Order, Traced
from gputop.actions.tracing.trace import TRACE

__all__ = ["TRACE", "Order", "Traced", "notes"]
