"""Kineto's own daemon endpoint, of jobs that were started with it: served for one trace, where that is safe.

barred(process, environment, start)    # why not; None: it can be served, after a person has read risk(pid, order)
captured(targets, order, run)          # a shot each
"""

from gputop.actions.tracing.kineto.gate import barred
from gputop.actions.tracing.kineto.serve import RISK, captured, risk

__all__ = ["RISK", "barred", "captured", "risk"]
