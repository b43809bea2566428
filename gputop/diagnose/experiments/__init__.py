"""The experiments on one machine side by side: what each takes, who slows whom, and values that fit together. Pure.

    told = together(frame, history, monitor.limits, update.contention)
    for one in told.experiments: one.name, one.gpus, one.threads_asked, one.slowed_by, one.fit

An experiment is a job with a trainer that /proc shows; what each field means stands beside it in `types`. It is worked
out anew at each call, a few milliseconds on a full server: once a second, while somebody looks. The history must be
one that the engine has fed.
"""

from gputop.diagnose.experiments.comparison import together
from gputop.diagnose.experiments.loads import Experiment, Fit, Resource, Slower, Together

__all__ = ["Experiment", "Fit", "Resource", "Slower", "Together", "together"]
