"""Rules about trainers that work together: on several GPUs, in several processes, on several machines."""

from gputop.diagnose.rules.ranks import collective_wait, model_parallel, network, straggler

__all__ = ["ORDER", "collective_wait", "model_parallel", "network", "straggler"]

ORDER = ("dataparallel", "network-bound", "model-parallel", "straggler", "collective-wait")
