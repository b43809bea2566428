"""Rules about GPUs that are not used at all, and about programs that do not get to use them."""

from gputop.diagnose.rules.usage import idle_gpu, unused_gpu

__all__ = ["ORDER", "idle_gpu", "unused_gpu"]

ORDER = ("no-cuda-context", "slow-start", "gpu-idle-cpu-busy", "stack-vs-gpu", "gpu-unused-in-job")
