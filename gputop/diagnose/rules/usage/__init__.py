"""Rules on unused GPUs, and on programs that cannot use theirs."""

from gputop.diagnose.rules.usage import idle_gpu, unused_gpu

__all__ = ["ORDER", "idle_gpu", "unused_gpu"]

ORDER = ("no-cuda-context", "slow-start", "gpu-idle-cpu-busy", "stack-vs-gpu", "gpu-unused-in-job")
