"""A host without gputop: what nvidia-smi and /proc say, by one ssh command, as frames.

The remote script needs sh, awk and cat, and stops with the connection.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from threading import Event
from typing import NamedTuple

from gputop.hosts.agentless_frame import FrameBuilder
from gputop.hosts.source import Connect, RemoteCommand, RemoteHost
from gputop.hosts.ssh import Child
from gputop.model import Frame
from gputop.safe.files import Refused

LEAST_INTERVAL_S = 2.0  # nvidia-smi takes up to a second where no process holds the driver
MOST_BYTES = 8 << 20  # of one sample
START, END = b"@@gputop", b"@@end"
# as nvidia-smi --help-query-gpu names them; the first list fails as a whole on a driver that lacks one of them
_COMMON = (
    "index,uuid,name,pci.bus_id,driver_version,utilization.gpu,utilization.memory,memory.total,memory.used,"
    "temperature.gpu,power.draw,enforced.power.limit,power.default_limit,clocks.sm,clocks.max.sm,pstate"
)
_RECENT = (
    f"{_COMMON},memory.reserved,temperature.memory,fan.speed,persistence_mode,mig.mode.current,compute_cap,"
    "ecc.errors.uncorrected.volatile.total,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,"
    "pcie.link.width.max,clocks_throttle_reasons.active"
)
_SCRIPT = r"""
while printf '@@gputop %s\n' "$(uname -n)"; do
  cat /proc/uptime /proc/loadavg
  grep '^cpu' /proc/stat
  grep -E '^(MemTotal|MemAvailable|Cached|SwapTotal|SwapFree):' /proc/meminfo
  echo @@gpus
  G=$(nvidia-smi --query-gpu=RECENT --format=csv 2>/dev/null) || G=$(nvidia-smi --query-gpu=COMMON --format=csv 2>&1)
  printf '%s\n' "$G"
  echo @@apps
  A=$(nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory --format=csv,noheader,nounits 2>/dev/null)
  printf '%s\n' "$A"
  echo @@processes
  [ -e /proc/1/stat ] || echo @@hidepid
  P=$(printf '%s\n' "$A" | awk -F, '{ print $1 }' | sort -u)
  for p in $(cat /proc/[0-9]*/stat 2>/dev/null | awk -v gpu="$P" '
      { pid = $1; rest = $0; sub(/^.*\) /, "", rest); split(rest, f, " "); up[pid] = f[2] }
      END {
        n = split(gpu, want, /[ \n]+/)
        for (i = 1; i <= n; i++) if (want[i] in up) {
          below[want[i]] = 1
          for (p = want[i]; p in up && p > 1; p = up[p]) kin[p] = 1
        }
        for (more = 1; more;) {
          more = 0
          for (p in up) if (!(p in below) && (up[p] in below)) { below[p] = kin[p] = 1; more = 1 }
        }
        for (p in kin) if (count++ < 500) print p
      }'); do
    [ -r /proc/$p/stat ] || continue
    printf '@@process %s\n' "$(cat /proc/$p/stat 2>/dev/null)"
    grep -E '^(Uid|VmRSS):' /proc/$p/status 2>/dev/null
    stat -c 'User: %U' /proc/$p 2>/dev/null
    printf 'Command: '; tr '\000\n' '\037 ' < /proc/$p/cmdline 2>/dev/null; echo
    head -c 2048 /proc/$p/cgroup 2>/dev/null | sed 's/^/Cgroup: /'
  done
  echo @@end
  sleep SECONDS
done
"""


def script(interval_s: float) -> str:
    """What the host runs."""
    wait = max(LEAST_INTERVAL_S, interval_s)
    return _SCRIPT.replace("RECENT", _RECENT).replace("COMMON", _COMMON).replace("SECONDS", f"{wait:g}")


def reader(host: str, interval_s: float) -> Connect:
    """Starts the script on a host."""

    def connect(silence_s: float) -> RemoteCommand:
        return Child(host, ["sh", "-c", script(interval_s)], silence_s=silence_s)

    return connect


def agentless_host(host: str, interval_s: float, turn: AbstractContextManager[object] | None = None) -> RemoteHost:
    """The source of a host without gputop."""
    interval_s = max(LEAST_INTERVAL_S, interval_s)
    return RemoteHost(
        host,
        reader(host, interval_s),
        interval_s=interval_s,
        turn=turn,
        read=lambda fd: AgentlessStream(fd, host, interval_s),
    )


class Sample(NamedTuple):
    """What the host said, and when it arrived, by our clocks."""

    text: bytes
    wall_s: float
    mono_s: float


class AgentlessStream:
    """Frames made of the samples of the script. Impossible samples are skipped and counted."""

    def __init__(self, fd: int, host: str, interval_s: float) -> None:
        """Waits for nothing: what the script cannot say is noted in the frames."""
        self.interval_s = max(LEAST_INTERVAL_S, interval_s)
        self._fd = fd
        self._builder = FrameBuilder(host)
        self._damaged = 0

    @property
    def damage(self) -> str:
        """What could not be read, in one line."""
        return f"{self._damaged} samples could not be read" if self._damaged else ""

    def steps(self, stop: Event) -> Iterator[Sample]:
        """The samples as they arrive; Refused if they are not those of the script."""
        for text in self._samples():
            if stop.is_set():
                return
            yield Sample(text, time.time(), time.monotonic())

    def frame(self, sample: Sample) -> Frame | None:
        """The frame of a sample; None if it cannot be read."""
        try:
            return self._builder.frame(*sample)
        except ValueError:
            self._damaged += 1
            return None

    def _samples(self) -> Iterator[bytes]:
        """What stands between the marks."""
        data = b""
        try:
            while piece := os.read(self._fd, 1 << 16):
                data += piece
                while (end := data.find(b"\n" + END + b"\n")) >= 0:
                    start = data.rfind(START, 0, end)
                    if start >= 0:
                        yield data[start:end]
                    data = data[end + len(END) + 2 :]
                if len(data) > MOST_BYTES:
                    raise Refused("its answer has no end: is this host's shell printing something else?")
        except OSError:  # silence, or the connection ended: the caller asks why
            return
