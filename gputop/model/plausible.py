"""What values can be: an impossible one, or one that another contradicts, is unknown, with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

from gputop.model.frame import Frame
from gputop.model.gpu import Gpu
from gputop.model.host import Disk, Host, Mount, Network
from gputop.model.metric import Missing
from gputop.model.process import GpuShare, Process
from gputop.model.ranges import COUNTED, MOST_BYTES_PER_S, Doubts, out_of_bounds, without

_ALIKE = 0.001  # by which two sizes differ that are one and the same memory
# chips on which GPU and CPU share one memory, by CUDA compute capability and by name; and names of all others
_SHARED_CAPABILITY = {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)}
_SHARED = re.compile(r"\b(GB10|DGX Spark|Thor|Orin|Xavier|Tegra\w*|Jetson|N1X)\b", re.IGNORECASE)
_OWN = re.compile(r"GeForce|RTX|GTX|Quadro|Tesla|TITAN|\b(GH|GB|[ABHKLPTV])\d{1,3}\w*\b")
_PCIE = (
    "pcie_generation", "pcie_generation_max", "pcie_generation_device_max", "pcie_width", "pcie_width_max",
    "pcie_slot_generation", "pcie_slot_width", "pcie_lane_bytes_per_s", "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s",
)  # fmt: skip
_VRAM = ("vram_total_bytes", "vram_used_bytes", "vram_reserved_bytes")
_UNREPORTED, _SHARES = "the driver does not report the memory of this card", "GPU and host share one memory"


def integrated(name: str, capability: tuple[int, int] | None) -> bool | None:
    """Whether a GPU shares the memory of the host, by its model; None if that does not show it."""
    if _SHARED.search(name):
        return True
    if _OWN.search(name):
        return False
    return capability in _SHARED_CAPABILITY if capability else None


def whose_memory(gpu: Gpu, frame: Frame) -> Gpu:
    """Device memory, where the GPU has one: unified memory is decided by what the GPU is, not by one refused call."""
    if gpu.parent_uuid is not None:
        return gpu
    shares, of_host = integrated(gpu.name, gpu.compute_capability), frame.host.memory_total_bytes or 0
    alike = of_host > 0 and abs((gpu.vram_total_bytes or 0) - of_host) <= _ALIKE * of_host
    if shares or (shares is None and (gpu.unified_memory or alike)):
        return _unified(gpu, frame)
    if not gpu.unified_memory:
        return gpu
    said = (Missing(metric=name, reason="unsupported", unlock=_UNREPORTED) for name in _VRAM)
    missing = (*(one for one in gpu.missing if one.metric not in _VRAM), *said)
    return replace(gpu, unified_memory=False, missing=missing)


def _unified(gpu: Gpu, frame: Frame) -> Gpu:
    """A GPU that uses the memory of the host: in use is what its processes hold, and PCIe is a placeholder."""
    held = [share.vram_bytes for process in frame.processes for share in process.gpus if share.uuid == gpu.uuid]
    used = sum(one or 0 for one in held) if held and None not in held else None
    unknown = ["vram_total_bytes", "vram_reserved_bytes", *_PCIE]
    unknown += [] if used is not None else ["vram_used_bytes"]
    unknown += [] if gpu.memory_busy_percent else ["memory_busy_percent"]  # some of them always say 0
    if gpu.unified_memory and gpu.vram_used_bytes == used and all(getattr(gpu, name) is None for name in unknown):
        return gpu
    said = [Missing(metric=name, reason="unsupported", unlock=_SHARES) for name in unknown]
    missing = (*(one for one in gpu.missing if one.metric not in {*_VRAM, *unknown}), *said)
    changes: dict[str, Any] = dict.fromkeys(unknown)
    return replace(gpu, **changes | {"vram_used_bytes": used}, unified_memory=True, missing=missing)


_KEPT = "_plausible"  # where a frame remembers it
_P = TypeVar("_P", Disk, Mount, Network)

_DRAWS_MORE, _SLACK_WATTS = 1.5, 15.0  # times a power limit and above it, averaged over a second: no card does
_OVER_SET = 2.5  # times the limit in force, where others are higher: it may have been lowered a moment ago
_PEAK = 3.0  # the same at one instant
_OVER_MEAN, _OVER_MEAN_WATTS = 5.0, 100.0  # times the mean of a second and above it: no instant is, without a cause
_CLOCK_OVER = 1.15  # of the highest clock, or limit: some boards go a little beyond
_LINK_OVER = 1.25  # of what a link carries: rates are of intervals that are not exact
_LANE_BYTES_PER_S = 0.125e9  # of PCIe, times two to the power of its generation
_NO_LIMIT_CELSIUS = 40.0  # a slowdown temperature below that is none


def plausible(frame: Frame) -> Frame:
    """The frame with what cannot be made unknown; the same one where all of it can be. Worked out once a frame."""
    kept = vars(frame)
    if _KEPT not in kept:
        found = _plausible(frame)
        kept[_KEPT] = None if found is frame else found  # itself would be a cycle, which only the collector frees
    return kept[_KEPT] or frame


def _plausible(frame: Frame) -> Frame:
    gpus = [_gpu(gpu, frame) for gpu in frame.gpus]
    totals = {gpu.uuid: gpu.vram_total_bytes for gpu in gpus}
    processes = [_process(process, frame.host, totals) for process in frame.processes]
    host = _host(frame.host)
    same = host is frame.host and _same(gpus, frame.gpus) and _same(processes, frame.processes)
    return frame if same else replace(frame, host=host, gpus=tuple(gpus), processes=tuple(processes))


def _same(made: Sequence[object], given: Sequence[object]) -> bool:
    return all(one is other for one, other in zip(made, given, strict=True))


def _gpu(gpu: Gpu, frame: Frame) -> Gpu:
    doubts = out_of_bounds(gpu)
    sound = without(gpu, doubts)
    more = dict(_contradictions(sound))
    sound = whose_memory(without(sound, more), frame)
    sound = without(sound, dict(_overfull(sound)))
    percents = [percent for _, percent in sound.busy_samples]  # a list: twice as fast as a generator
    if percents and not (min(percents) >= 0 and max(percents) <= 100):
        sound = replace(sound, busy_samples=tuple(one for one in sound.busy_samples if 0 <= one[1] <= 100))
    return sound


def _contradictions(gpu: Gpu) -> Iterator[tuple[str, str]]:
    """Values of which one says that another cannot be."""
    yield from _power(gpu)
    yield from _clocks(gpu)
    yield from _temperatures(gpu)
    yield from _links(gpu)


def _power(gpu: Gpu) -> Iterator[tuple[str, str]]:
    least, most, limit = gpu.power_min_limit_watts, gpu.power_max_limit_watts, gpu.power_limit_watts
    limits = [one for one in (limit, most, gpu.power_default_limit_watts, gpu.power_requested_limit_watts) if one]
    if most is not None and least is not None and least > most:
        yield "power_min_limit_watts", f"{least:.0f} W is above the highest limit, {most:.0f} W"
        yield "power_max_limit_watts", f"{most:.0f} W is below the lowest limit, {least:.0f} W"
    elif limit is not None and most is not None and limit > _CLOCK_OVER * most:
        yield "power_limit_watts", f"{limit:.0f} W is above the highest limit, {most:.0f} W"
    if limit is not None and limit <= 0:
        yield "power_limit_watts", "a power limit of 0 W is invalid"
        return
    watts, top = gpu.power_watts, max(limits, default=None)
    if watts is not None and top is not None and watts > _DRAWS_MORE * top + _SLACK_WATTS:
        yield "power_watts", f"{watts:.0f} W on a card with a power limit of {top:.0f} W"
    over = _DRAWS_MORE if limit == top else _OVER_SET
    if watts is not None and limit is not None and watts > over * limit + _SLACK_WATTS:
        yield "power_watts", f"{watts:.0f} W with a power limit of {limit:.0f} W in force"
        yield "power_limit_watts", f"a limit of {limit:.0f} W in force while it draws {watts:.0f} W"
    instant = gpu.power_instant_watts
    if instant is None:
        return
    if top is not None and instant > _PEAK * top + _SLACK_WATTS:
        yield "power_instant_watts", f"{instant:.0f} W on a card with a power limit of {top:.0f} W"
    elif (
        watts is not None
        and instant > _OVER_MEAN * watts + _OVER_MEAN_WATTS
        and (limit is None or instant > _PEAK * limit + _SLACK_WATTS)
    ):
        yield "power_instant_watts", f"{instant:.0f} W at one instant and {watts:.0f} W over a second"


def _clocks(gpu: Gpu) -> Iterator[tuple[str, str]]:
    pairs = (
        ("sm_clock_mhz", max(gpu.sm_clock_max_mhz or 0.0, gpu.boost_clock_max_mhz or 0.0)),
        ("graphics_clock_mhz", max(gpu.graphics_clock_max_mhz or 0.0, gpu.boost_clock_max_mhz or 0.0)),
        ("memory_clock_mhz", gpu.memory_clock_max_mhz or 0.0),
    )
    for name, most in pairs:
        value = getattr(gpu, name)
        if value is not None and most and value > _CLOCK_OVER * most:
            yield name, f"{value:.0f} MHz with a highest clock of {most:.0f} MHz"


def _temperatures(gpu: Gpu) -> Iterator[tuple[str, str]]:
    shutdown = gpu.shutdown_celsius
    for name in ("slowdown_celsius", "gpu_max_celsius"):
        value = getattr(gpu, name)
        if value is not None and value < _NO_LIMIT_CELSIUS:
            yield name, f"{value:.0f} °C is not a plausible temperature limit"
        elif value is not None and shutdown is not None and 0 < shutdown < value:
            yield name, f"{value:.0f} °C is above its shutdown temperature, {shutdown:.0f} °C"
    if shutdown is not None and shutdown < _NO_LIMIT_CELSIUS:
        yield "shutdown_celsius", f"{shutdown:.0f} °C is not a plausible temperature limit"


def _links(gpu: Gpu) -> Iterator[tuple[str, str]]:
    lanes = max(gpu.pcie_width or 0, gpu.pcie_width_max or 0)
    generation = max(gpu.pcie_generation or 0, gpu.pcie_generation_max or 0)
    # the link may have been faster a moment ago: what it can at most counts
    most = max(lanes * _LANE_BYTES_PER_S * 2.0**generation, (gpu.pcie_lane_bytes_per_s or 0.0) * lanes)
    for name in ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"):
        value = getattr(gpu, name)
        if value is not None and lanes and generation and value > _LINK_OVER * most:
            yield name, f"{value / 1e9:.1f} GB/s over a PCIe link of {most / 1e9:.1f} GB/s"
    for name in ("nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s"):
        value, top = getattr(gpu, name), gpu.nvlink_max_bytes_per_s
        if value is not None and top and value > _LINK_OVER * top:
            yield name, f"{value / 1e9:.0f} GB/s over NVLinks of {top / 1e9:.0f} GB/s"


def _overfull(gpu: Gpu) -> Iterator[tuple[str, str]]:
    total = gpu.vram_total_bytes
    if total is not None and total <= 0:
        yield "vram_total_bytes", "a memory size of 0 bytes is invalid"
    for name in ("vram_used_bytes", "vram_reserved_bytes"):
        value = getattr(gpu, name)
        if value is not None and total is not None and value > total:
            yield name, f"{value / 2**30:.1f} GiB of {total / 2**30:.1f} GiB"


def _host(host: Host) -> Host:
    doubts = out_of_bounds(host)
    sound = without(host, doubts)
    sound = without(sound, dict(_parts(sound)))
    disks, mounts = _each(host.disks), _each(host.mounts)
    networks = tuple(_network(one) for one in _each(host.networks))
    if not (_same(disks, host.disks) and _same(mounts, host.mounts) and _same(networks, host.networks)):
        sound = replace(sound, disks=disks, mounts=mounts, networks=networks)
    return sound


def _parts(host: Host) -> Iterator[tuple[str, str]]:
    """Parts of the memory that are more than all of it."""
    wholes = (
        ("memory_total_bytes", ("memory_available_bytes", "memory_used_bytes", "memory_cached_bytes")),
        ("swap_total_bytes", ("swap_used_bytes",)),
        ("shm_total_bytes", ("shm_used_bytes",)),
    )
    for whole, parts in wholes:
        total = getattr(host, whole)
        for name in parts:
            value = getattr(host, name)
            if total and value is not None and value > total:
                yield name, f"{value / 2**30:.1f} GiB of {total / 2**30:.1f} GiB"


def _each(parts: tuple[_P, ...]) -> tuple[_P, ...]:
    return tuple(without(one, out_of_bounds(one)) for one in parts)


def _network(network: Network) -> Network:
    """A virtual interface may move more than the speed that it reports: then neither says how full it is."""
    speed = network.speed_bytes_per_s
    rates = (network.receive_bytes_per_s or 0.0, network.send_bytes_per_s or 0.0)
    return replace(network, speed_bytes_per_s=None) if speed and max(rates) > _LINK_OVER * speed else network


_OF_PROCESS = attrgetter("cpu_percent", "main_thread_percent", "rss_bytes", "read_bytes_per_s", "write_bytes_per_s")


def _process(process: Process, host: Host, totals: Mapping[str, int | None]) -> Process:
    """Of the hundreds of processes only what rules about single ones go by."""
    if process.job is None and not process.gpus:
        return process
    cpu, main, held, read, written = _OF_PROCESS(process)
    doubts: Doubts = {}
    most = 100 * COUNTED * (host.cpus_total or 1e6)
    if cpu is not None and not 0 <= cpu <= most:
        doubts["cpu_percent"] = f"{cpu:.0f} % of {host.cpus_total} CPUs"
    if main is not None and not 0 <= main <= 200:
        doubts["main_thread_percent"] = f"{main:.0f} % of one thread"
    if held is not None and not 0 <= held <= (host.memory_total_bytes or 2**60):
        doubts["rss_bytes"] = f"{held / 2**30:.1f} GiB on this machine"
    for name, rate in (("read_bytes_per_s", read), ("write_bytes_per_s", written)):
        if rate is not None and not 0 <= rate <= MOST_BYTES_PER_S:
            doubts[name] = f"{rate:g} bytes/s"
    sound = without(process, doubts)
    shares = tuple(_share(share, totals.get(share.uuid)) for share in process.gpus)
    return sound if _same(shares, process.gpus) else replace(sound, gpus=shares)


def _share(share: GpuShare, total: int | None) -> GpuShare:
    busy, held = share.busy_percent, share.vram_bytes
    wrong: Doubts = {}
    if busy is not None and not 0 <= busy <= 100:
        wrong["busy_percent"] = ""
    if held is not None and not 0 <= held <= (total or 2**60):
        wrong["vram_bytes"] = ""
    return without(share, wrong)
