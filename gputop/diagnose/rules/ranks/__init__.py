"""Rules on trainers that work together: several GPUs, processes or machines."""

from gputop.diagnose.rules.ranks import collective_wait, model_parallel, network, straggler

__all__ = ["ORDER", "collective_wait", "model_parallel", "network", "straggler"]

ORDER = ("dataparallel", "network-bound", "model-parallel", "straggler", "collective-wait")
