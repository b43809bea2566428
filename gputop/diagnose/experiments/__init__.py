"""Experiments on one machine side by side: use of each, mutual slowdown, and settings that fit together. Pure.

    found = together(frame, history, monitor.limits, update.contention)
    for one in found.experiments:
        one.name, one.gpus, one.threads_asked, one.slowed_by, one.fit

An experiment is a job with a trainer visible in /proc; `loads` documents each field. It is recomputed at each call, in
a few milliseconds on a full server: once per second while the page is open. The history must be one that the engine has
fed.
"""

from gputop.diagnose.experiments.comparison import together
from gputop.diagnose.experiments.loads import Experiment, Fit, Resource, Slower, Together

__all__ = ["Experiment", "Fit", "Resource", "Slower", "Together", "together"]
