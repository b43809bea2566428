"""Rules about trainers that work together: on several GPUs, in several processes, on several machines."""

from gputop.diagnose.ranks import dataparallel, network, pipeline, straggler, wait

__all__ = ["dataparallel", "network", "pipeline", "straggler", "wait"]
