"""What this machine is: kernel, CPU model, time since boot."""

from __future__ import annotations

import re

from gputop.collect.kernel import Kernel
from gputop.model import Host, Missing
from gputop.safe.text import decode

# x86 and arm servers, POWER, s390; arm64 without DMI says nothing
_MODEL = re.compile(rb"^(?:model name|Model Name|cpu|Processor)\s*:\s*(.+)$", re.MULTILINE)


class Machine:
    """Kernel release and CPU model: they do not change while it runs."""

    fills = ("kernel", "cpu_model")
    every_s = 3600.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read(self, now_s: float) -> Host:  # noqa: ARG002
        """The names as the kernel has them."""
        match = _MODEL.search(self._kernel.proc("cpuinfo"))
        unknown = Missing(metric="cpu_model", reason="absent", unlock="this kind of CPU does not tell its name")
        return Host(
            kernel=decode(self._kernel.proc("sys/kernel/osrelease").strip()),
            cpu_model=decode(re.sub(rb"\s+", b" ", match[1]).strip(), 80) if match else None,
            missing=() if match else (unknown,),
        )


class Uptime:
    """Time since boot, of the clock that counts a suspend too."""

    fills = ("uptime_s",)
    every_s = 0.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read(self, now_s: float) -> Host:  # noqa: ARG002
        """Seconds since boot."""
        return Host(uptime_s=float(self._kernel.proc("uptime").split()[0]))
