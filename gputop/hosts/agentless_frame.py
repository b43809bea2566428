"""Frames from what nvidia-smi and /proc of a host without gputop say. Everything in it is untrusted text."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gputop.collect.jobs.groups import Jobs
from gputop.collect.nvml.clocks import reasons
from gputop.collect.proc.cgroup import place
from gputop.collect.rates import Counters
from gputop.model import Frame, Gpu, GpuShare, Host, Identity, Note, Process, Unseen
from gputop.model.ranges import held
from gputop.safe.identity import Stat, parse_stat
from gputop.safe.text import clean

TICKS_PER_S = 100  # USER_HZ of Linux on every platform with NVIDIA's driver
_MIB = 1 << 20
_MOST_PROCESSES, _MOST_GPUS = 512, 64
_PID_DIGITS = 7  # PID_MAX_LIMIT of the kernel is 4,194,304
_INSTALL = "ssh {host} python3 -m pip install --user gputop-tui"


def _number(scale: float = 1.0) -> Callable[[str], float | None]:
    def read(text: str) -> float | None:
        try:
            value = float(text) * scale
        except ValueError:  # [N/A], [Not Supported], [Unknown Error]
            return None
        return value if math.isfinite(value) else None

    return read


def _whole(scale: int = 1) -> Callable[[str], int | None]:
    return lambda text: None if (value := _number(scale)(text)) is None else int(value)


def _mask(text: str) -> frozenset[Any] | None:
    try:
        return reasons(int(text, 16))
    except ValueError:
        return None


def _flag(text: str) -> bool | None:
    return {"enabled": True, "disabled": False}.get(text.casefold())


def _capability(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


# columns of nvidia-smi --query-gpu, the field of the model, and how it is written
_GPU_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "pci.bus_id": ("pci_bus_id", str),
    "utilization.gpu": ("busy_percent", _number()),
    "utilization.memory": ("memory_busy_percent", _number()),
    "memory.total": ("vram_total_bytes", _whole(_MIB)),
    "memory.used": ("vram_used_bytes", _whole(_MIB)),
    "memory.reserved": ("vram_reserved_bytes", _whole(_MIB)),
    "temperature.gpu": ("temperature_celsius", _number()),
    "temperature.memory": ("memory_temperature_celsius", _number()),
    "power.draw": ("power_watts", _number()),
    "enforced.power.limit": ("power_limit_watts", _number()),
    "power.default_limit": ("power_default_limit_watts", _number()),
    "clocks.sm": ("sm_clock_mhz", _number()),
    "clocks.current.sm": ("sm_clock_mhz", _number()),
    "clocks.max.sm": ("sm_clock_max_mhz", _number()),
    "pstate": ("performance_state", lambda text: _whole()(text.removeprefix("P"))),
    "fan.speed": ("fan_percent", _number()),
    "persistence_mode": ("persistence_mode", _flag),
    "mig.mode.current": ("mig_mode", _flag),
    "compute_cap": ("compute_capability", _capability),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", _whole()),
    "pcie.link.gen.current": ("pcie_generation", _whole()),
    "pcie.link.gen.max": ("pcie_generation_max", _whole()),
    "pcie.link.width.current": ("pcie_width", _whole()),
    "pcie.link.width.max": ("pcie_width_max", _whole()),
    "clocks_throttle_reasons.active": ("throttle_reasons", _mask),
    "clocks_event_reasons.active": ("throttle_reasons", _mask),
}


_SHELL = "nvidia-smi: "  # that a shell names before it says why


class FrameBuilder:
    """Makes the frames of one host; remembers counters, for rates."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._cpu = Counters()
        self._used: dict[Identity, Counters] = {}
        self._jobs = Jobs()

    def frame(self, sample: bytes, wall_s: float, mono_s: float) -> Frame:
        """The frame of a sample of the script; ValueError if it is none. Times are ours."""
        text = f"{sample.decode('utf-8', 'replace')}\n"
        head, _, rest = text.partition("\n@@gpus\n")
        cards, _, rest = rest.partition("\n@@apps\n")
        apps, marked, listed = rest.partition("\n@@processes\n")
        name, _, machine = head.partition("\n")
        if not marked or not name.startswith("@@gputop "):
            raise ValueError("not a sample")
        gpus, version, trouble = _gpus(cards)
        host = self._machine(machine.splitlines(), mono_s, version)
        processes = self._processes(listed, _shares(apps), host.uptime_s, mono_s)
        placed, jobs = self._jobs.of(processes, tuple(gpu.uuid for gpu in gpus))
        made = Frame(
            wall_s=wall_s, mono_s=mono_s, hostname=clean(name.removeprefix("@@gputop ").strip(), 255) or self._host,
            host=host, gpus=gpus, processes=placed, jobs=jobs, notes=self._notes(trouble),
        )  # fmt: skip
        return held(made)

    def _notes(self, trouble: str) -> tuple[Note, ...]:
        install = f"to see them: `{_INSTALL.format(host=self._host)}`"
        without = "agentless: no GPU use by process, run queue wait, disk I/O, tensor activity or step times"
        notes = [Note(subject="monitor", key="agentless", text=without, help=(install,))]
        if trouble:
            notes.append(Note(subject="driver", key="nvidia-smi", text=f"nvidia-smi: {trouble.rpartition(_SHELL)[2]}"))
        return tuple(notes)

    def _machine(self, lines: Iterable[str], mono_s: float, version: str | None) -> Host:
        """CPUs, memory and load; the first line is /proc/uptime, the second /proc/loadavg."""
        words = [line.split() for line in lines if line.strip()]
        if len(words) < 2:
            raise ValueError("no /proc")
        memory = {
            word[0].rstrip(":"): int(word[1]) << 10 for word in words if word[0].endswith(":") and _digits(word[1:2])
        }
        cpus = sum(word[0].startswith("cpu") and word[0] != "cpu" for word in words)
        times = next(
            ([int(part) for part in word[1:9]] for word in words if word[0] == "cpu" and _digits(word[1:9])), []
        )
        idle = sum(times[3:5])
        grown = self._cpu.grown(mono_s, (sum(times), idle) if times else (None, None))
        busy = None
        if grown and grown[1][0] and grown[1][1] is not None:
            busy = 100 * (1 - grown[1][1] / grown[1][0])
        total, free = memory.get("MemTotal"), memory.get("MemAvailable")
        load = tuple(_number()(part) or 0.0 for part in words[1][:3])
        return Host(
            cpus_total=cpus or None, cpu_percent=busy, load=load if len(load) == 3 else None,
            memory_total_bytes=total, memory_available_bytes=free,
            memory_used_bytes=total - free if total is not None and free is not None else None,
            memory_cached_bytes=memory.get("Cached"), swap_total_bytes=memory.get("SwapTotal"),
            swap_used_bytes=memory.get("SwapTotal", 0) - memory.get("SwapFree", 0) if "SwapTotal" in memory else None,
            uptime_s=_number()(words[0][0]), driver_version=version,
        )  # fmt: skip

    def _processes(
        self, listed: str, shares: Mapping[int, tuple[GpuShare, ...]], uptime_s: float | None, mono_s: float
    ) -> tuple[Process, ...]:
        found = []
        before, self._used = self._used, {}
        for block in listed.split("@@process ")[1 : _MOST_PROCESSES + 1]:
            first, *rest = block.split("\n")
            pid, stat = _pid(first), parse_stat(first.encode())
            if pid is None or stat is None or stat.started_ticks is None:
                continue
            identity = Identity(pid, stat.started_ticks)
            counters = self._used[identity] = before.get(identity) or Counters()
            found.append(_process(pid, stat, rest, shares.get(pid, ()), counters.rates(mono_s, _ticks(stat)), uptime_s))
        seen = {process.pid for process in found}
        # without hidepid it is of another namespace, as where ssh leads into a container
        why: Unseen = "hidden" if "@@hidepid" in listed else "foreign"
        hidden = (
            Process(pid=pid, started_ticks=0, unseen=why, gpus=gpus) for pid, gpus in shares.items() if pid not in seen
        )
        return (*found, *hidden)


def _digits(words: list[str]) -> bool:
    return bool(words) and all(word.isdecimal() and len(word) < 19 for word in words)


def _pid(line: str) -> int | None:
    word = line.partition(" ")[0]
    return int(word) if word.isdecimal() and len(word) <= _PID_DIGITS else None


def _ticks(stat: Stat) -> tuple[int | None]:
    known = stat.user_ticks is not None and stat.system_ticks is not None
    return ((stat.user_ticks or 0) + (stat.system_ticks or 0) if known else None,)


def _process(
    pid: int, stat: Stat, lines: Iterable[str], gpus: tuple[GpuShare, ...], rates: tuple[float | None, ...],
    uptime_s: float | None,
) -> Process:  # fmt: skip
    said = dict(line.split(": ", 1) if ": " in line else line.split(":", 1) for line in lines if ":" in line)
    command = tuple(clean(word) for word in said.get("Command", "").rstrip("\037").split("\037") if word)
    uid = said.get("Uid", "").split()
    rss = said.get("VmRSS", "").split()
    belongs = place("\n".join(_cgroups(lines)).encode())
    started_s = (stat.started_ticks or 0) / TICKS_PER_S
    user = clean(said.get("User", ""), 64)
    return Process(
        pid=pid, started_ticks=stat.started_ticks or 0, parent_pid=stat.parent_pid or 0, group=stat.group,
        user=user if user and user != "UNKNOWN" else None, uid=int(uid[0]) if _digits(uid[:1]) else None,
        name=stat.comm, command=command, state=stat.state, threads=stat.threads, nice=stat.nice,
        cpu_percent=None if rates[0] is None else 100 * rates[0] / TICKS_PER_S,
        cpu_time_s=None if (ticks := _ticks(stat)[0]) is None else ticks / TICKS_PER_S,
        age_s=None if uptime_s is None else max(0.0, uptime_s - started_s),
        rss_bytes=int(rss[0]) << 10 if _digits(rss[:1]) else None, gpus=gpus,
        container=belongs.container, slurm_job=belongs.slurm_job,
    )  # fmt: skip


def _cgroups(lines: Iterable[str]) -> Iterator[str]:
    return (line.removeprefix("Cgroup: ") for line in lines if line.startswith("Cgroup: "))


def _gpus(text: str) -> tuple[tuple[Gpu, ...], str | None, str]:
    """The GPUs, the version of the driver, and what nvidia-smi said instead."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row]
    if not rows or "uuid" not in (names := [cell.partition(" ")[0] for cell in rows[0]]):
        return (), None, clean(" ".join(text.split()), 200) or "not found"
    gpus, version = [], None
    for row in rows[1 : _MOST_GPUS + 1]:
        said = dict(zip(names, row, strict=False))
        if not said.get("uuid", "").startswith("GPU-"):
            continue
        version = version or clean(said.get("driver_version", ""), 32) or None
        fields = ((field, read, said[name]) for name, (field, read) in _GPU_FIELDS.items() if name in said)
        values = {field: read(_bare(clean(text, 64))) for field, read, text in fields}
        gpus.append(
            Gpu(uuid=clean(said["uuid"], 64), index=clean(said["index"], 8), name=clean(said["name"], 64), **values)
        )
    return tuple(gpus), version, ""


def _bare(text: str) -> str:
    """A value without its unit: `81559 MiB`, `97 %`."""
    word, _, unit = text.rpartition(" ")
    return word if unit in ("%", "MiB", "W", "MHz") else text


def _shares(text: str) -> dict[int, tuple[GpuShare, ...]]:
    """Device memory by process, as nvidia-smi --query-compute-apps lists it."""
    found: dict[int, tuple[GpuShare, ...]] = {}
    for row in csv.reader(text.splitlines()):
        cells = [cell.strip() for cell in row]
        pid = _pid(cells[0]) if len(cells) == 3 else None
        if pid is not None and cells[1].startswith("GPU-") and len(found) < _MOST_PROCESSES:
            share = GpuShare(uuid=clean(cells[1], 64), vram_bytes=_whole(_MIB)(cells[2]))
            found[pid] = (*found.get(pid, ()), share)
    return found
