"""One GPU, or one MIG instance, at one moment."""

from __future__ import annotations

from typing import Annotated, Literal

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model.metric import Missing, Unit, extended, metric

_P, _B, _R, _W, _C, _M, _N = (
    Unit.PERCENT,
    Unit.BYTES,
    Unit.BYTES_PER_S,
    Unit.WATTS,
    Unit.CELSIUS,
    Unit.MHZ,
    Unit.COUNT,
)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """NVLinks of one GPU with equal values: on a healthy GPU all of them. Counters are per link, since it came up."""

    numbers: Annotated[str, "link numbers, as ranges"]
    up: bool | None = metric(Unit.FLAG, "the link is up")
    speed_bytes_per_s: float | None = metric(Unit.BYTES_PER_S, "link speed, each direction")
    replays: int | None = metric(_N, "replayed packets (up to Hopper)", counter=True)
    recoveries: int | None = metric(_N, "link recoveries", counter=True)
    recoveries_failed: int | None = metric(_N, "failed link recoveries (from Blackwell on)", counter=True)
    crc_errors: int | None = metric(_N, "packets with CRC errors (up to Hopper)", counter=True)
    effective_errors: int | None = metric(
        _N, "effective errors: those left after error correction (from Blackwell on)", counter=True
    )
    effective_error_rate: float | None = metric(
        _N, "effective bit error rate, after error correction (from Blackwell on)"
    )
    symbol_errors: int | None = metric(_N, "symbol errors, before error correction (from Blackwell on)", counter=True)
    symbol_error_rate: float | None = metric(_N, "symbol bit error rate, before error correction (from Blackwell on)")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class PcieErrors:
    """PCIe errors since the driver was loaded; which ones are counted depends on the GPU."""

    replay_rollovers: int | None = metric(
        _N, "replay rollovers: a packet was replayed so often that the link was retrained", counter=True
    )
    recoveries: int | None = metric(_N, "link recoveries", counter=True)
    correctable: int | None = metric(_N, "correctable errors", counter=True)
    non_fatal: int | None = metric(_N, "non-fatal errors: a packet was lost", counter=True)
    fatal: int | None = metric(_N, "fatal errors: the link went down", counter=True)
    unsupported_requests: int | None = metric(_N, "unsupported requests", counter=True)
    naks_received: int | None = metric(_N, "NAKs received", counter=True)
    naks_sent: int | None = metric(_N, "NAKs sent", counter=True)
    bad_packets: int | None = metric(_N, "bad TLPs (transaction layer packets)", counter=True)
    bad_link_packets: int | None = metric(_N, "bad DLLPs (data link layer packets)", counter=True)
    checksum_errors: int | None = metric(_N, "LCRC errors", counter=True)
    receiver_errors: int | None = metric(_N, "receiver errors", counter=True)
    lane_errors: int | None = metric(_N, "lane errors", counter=True)


Condition = Literal["ok", "starting", "hung", "lost", "asleep"]
Throttle = Literal[
    "idle", "clock settings", "power cap", "hw slowdown", "sync boost", "thermal", "hw thermal", "power brake",
    "display", "board limit", "reliability", "other",
]  # fmt: skip
Samples = tuple[tuple[float, float], ...]  # (seconds before taken_at, value), oldest first


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """A driver error event: its number and when gputop saw it."""

    number: Annotated[int, "Xid number"]
    wall_s: Annotated[float, "when gputop saw it, as `wall_s` of a frame"]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What the driver measured between two samples: values at an even step, oldest first."""

    wall_s: Annotated[float, "when the last value was measured, as `wall_s` of a frame"]
    step_s: Annotated[float, "seconds between two values"]
    values: Annotated[tuple[float, ...], "the values, oldest first"]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One video engine."""

    name: Annotated[str, "engine: decoder 0, jpeg 0, encoder 0"]
    busy_percent: float | None = metric(_P, "engine utilization since the last sample (GPM)", top=100)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device. `uuid` identifies it; `index` is for display and changes when a GPU is lost."""

    uuid: Annotated[str, "identifies the device"]
    index: Annotated[str, "index as in nvidia-smi; a MIG instance is 0:1"]
    name: Annotated[str, "model name reported by the driver"]
    parent_uuid: Annotated[str | None, "UUID of the GPU of a MIG instance"] = None
    pci_bus_id: Annotated[str | None, "PCI bus ID"] = None
    architecture: Annotated[
        str | None, "kepler, maxwell, pascal, volta, turing, ampere, ada, hopper, blackwell, rubin"
    ] = None
    compute_capability: Annotated[tuple[int, int] | None, "CUDA compute capability, major and minor"] = None
    condition: Annotated[Condition, "whether the driver answers for it"] = "ok"
    condition_s: Annotated[float, "time in this condition, in seconds"] = 0.0
    age_s: Annotated[float, "age of the values, in seconds; above 0 they are the last known ones"] = 0.0
    unified_memory: Annotated[bool, "unified memory with the host: there are no VRAM metrics"] = False
    numa_memory: Annotated[
        bool, "the kernel runs its memory as a separate NUMA node: memory in use may be page cache"
    ] = False
    missing: Annotated[tuple[Missing, ...], "unavailable metrics, and why"] = ()

    # utilization
    busy_percent: float | None = metric(
        _P,
        "GPU busy: share of time in which at least one kernel was resident; 100 does not mean efficient",
        top=100,
        history=True,
    )
    busy_samples: Annotated[
        Samples,
        "utilization samples of the driver, oldest first: seconds before the frame, percent; "
        "covers a few seconds, in a first frame all that the driver keeps",
    ] = ()
    memory_busy_percent: float | None = metric(
        _P,
        "memory utilization: time in which device memory was read or written; neither its fill level nor its bandwidth",
        top=100,
        history=True,
    )
    memory_busy_series: Annotated[Series | None, "memory_busy_percent at a finer step, since the last sample"] = (
        extended(None)
    )
    encoder_percent: float | None = metric(_P, "video encoder utilization", top=100)
    decoder_percent: float | None = metric(_P, "video decoder utilization", top=100)
    engines: Annotated[tuple[Engine, ...], "each video engine (GPM)"] = extended(())

    # memory
    vram_total_bytes: int | None = metric(_B, "device memory installed")
    vram_used_bytes: int | None = metric(_B, "device memory in use, all processes", history=True)
    vram_reserved_bytes: int | None = metric(_B, "device memory reserved by the driver")

    # temperature and power
    temperature_celsius: float | None = metric(_C, "GPU core temperature", history=True)
    memory_temperature_celsius: float | None = metric(_C, "temperature of the hottest memory stack", history=True)
    temperature_margin_celsius: float | None = metric(_C, "margin to the nearest slowdown temperature", history=True)
    slowdown_celsius: float | None = metric(_C, "slowdown temperature: hardware thermal slowdown starts here")
    shutdown_celsius: float | None = metric(_C, "shutdown temperature")
    gpu_max_celsius: float | None = metric(
        _C, "maximum operating temperature: above it the GPU may go below its base clock", tier="extended"
    )
    memory_max_celsius: float | None = metric(
        _C, "maximum memory temperature: above it the GPU slows down (before Ada)", tier="extended"
    )
    power_watts: float | None = metric(_W, "average board power", history=True)
    power_instant_watts: float | None = metric(_W, "instantaneous board power", history=True, tier="extended")
    power_series: Annotated[Series | None, "board power since the last sample, in watts"] = None
    power_module_watts: float | None = metric(_W, "average power of a superchip module, GPU and CPU", tier="extended")
    power_module_instant_watts: float | None = metric(
        _W, "instantaneous power of a superchip module, GPU and CPU", tier="extended"
    )
    power_module_series: Annotated[Series | None, "power of a superchip module since the last sample, in watts"] = (
        extended(None)
    )
    power_memory_watts: float | None = metric(_W, "average power of the device memory", tier="extended")
    power_memory_instant_watts: float | None = metric(_W, "instantaneous power of the device memory", tier="extended")
    power_limit_watts: float | None = metric(_W, "power limit in force (enforced)", history=True)
    power_default_limit_watts: float | None = metric(_W, "default power limit")
    power_requested_limit_watts: float | None = metric(_W, "requested power limit; the one in force may be lower")
    power_min_limit_watts: float | None = metric(_W, "minimum power limit")
    power_max_limit_watts: float | None = metric(_W, "maximum power limit")
    energy_joules: float | None = metric(
        Unit.JOULES, "energy used since the driver was loaded", tier="extended", counter=True
    )
    fan_percent: float | None = metric(_P, "requested fan speed, of its maximum", top=100)

    # clocks and clock event reasons
    sm_clock_mhz: float | None = metric(_M, "SM clock", history=True)
    sm_clock_max_mhz: float | None = metric(_M, "maximum SM clock")
    sm_clock_series: Annotated[Series | None, "sm_clock_mhz at a finer step, since the last sample"] = extended(None)
    graphics_clock_mhz: float | None = metric(_M, "graphics clock", tier="extended")
    graphics_clock_max_mhz: float | None = metric(_M, "maximum graphics clock", tier="extended")
    boost_clock_max_mhz: float | None = metric(_M, "highest graphics clock that can be set on this GPU")
    memory_clock_mhz: float | None = metric(_M, "memory clock", history=True, tier="extended")
    memory_clock_max_mhz: float | None = metric(_M, "maximum memory clock", tier="extended")
    memory_clock_series: Annotated[Series | None, "memory_clock_mhz at a finer step, since the last sample"] = extended(
        None
    )
    performance_state: int | None = metric(_N, "P-state: P0 is full performance, P15 the lowest")
    throttle_reasons: frozenset[Throttle] | None = metric(Unit.WORD, "active clock event reasons")
    throttled_power_percent: float | None = metric(
        _P, "time power-capped: clocks lowered to keep the power limit", top=100, history=True
    )
    throttled_heat_percent: float | None = metric(
        _P, "time in software thermal slowdown: the driver lowers clocks", top=100, history=True
    )
    throttled_heat_hard_percent: float | None = metric(
        _P, "time in hardware thermal slowdown: clocks halved or worse", top=100, history=True
    )
    throttled_brake_percent: float | None = metric(
        _P, "time in hardware power brake slowdown, requested by the server", top=100, history=True
    )
    throttled_board_percent: float | None = metric(_P, "time limited by the board limit", top=100, tier="extended")
    throttled_sync_percent: float | None = metric(
        _P, "time limited by sync boost: clocks match other GPUs", top=100, tier="extended"
    )
    throttled_reliability_percent: float | None = metric(
        _P, "time limited by the reliability voltage", top=100, tier="extended"
    )
    throttled_low_use_percent: float | None = metric(
        _P, "time at low clocks because of low utilization", top=100, tier="extended"
    )
    throttled_base_percent: float | None = metric(
        _P, "time below the base clock, for any reason", top=100, tier="extended"
    )

    # links
    pcie_tx_bytes_per_s: float | None = metric(_R, "PCIe tx: device to host", history=True)
    pcie_rx_bytes_per_s: float | None = metric(_R, "PCIe rx: host to device", history=True)
    pcie_generation: int | None = metric(_N, "current PCIe generation; lower while idle")
    pcie_generation_max: int | None = metric(_N, "maximum PCIe generation of device and slot")
    pcie_generation_device_max: int | None = metric(_N, "maximum PCIe generation of the device in any slot")
    pcie_lane_bytes_per_s: float | None = metric(_R, "current raw rate of one PCIe lane; lower while idle")
    pcie_width: int | None = metric(_N, "current number of PCIe lanes")
    pcie_width_max: int | None = metric(_N, "maximum number of PCIe lanes of the device")
    pcie_slot_generation: int | None = metric(_N, "maximum PCIe generation of its port (slot)")
    pcie_slot_width: int | None = metric(_N, "PCIe lanes of its port (slot)")
    pcie_replays: int | None = metric(_N, "PCIe replays since the driver was loaded", counter=True)
    pcie_errors: Annotated[PcieErrors | None, "PCIe errors since the driver was loaded"] = extended(None)
    nvlink_tx_bytes_per_s: float | None = metric(_R, "NVLink tx: sent over all links", history=True)
    nvlink_rx_bytes_per_s: float | None = metric(_R, "NVLink rx: received over all links", history=True)
    nvlink_max_bytes_per_s: float | None = metric(_R, "capacity of the active NVLinks, each direction")
    nvlink_bytes_per_s: Annotated[
        tuple[tuple[float | None, float | None], ...], "sent and received by each link, in bytes/s (GPM)"
    ] = extended(())
    nvlinks_active: int | None = metric(_N, "number of active NVLinks")
    nvlink_errors: int | None = metric(_N, "NVLink CRC, replay and recovery errors", tier="extended", counter=True)
    nvlinks: Annotated[tuple[NvLink, ...], "its NVLinks; those with equal values as one entry"] = ()
    c2c_tx_bytes_per_s: float | None = metric(_R, "NVLink-C2C tx: GPU to CPU in a superchip (GPM)", tier="extended")
    c2c_rx_bytes_per_s: float | None = metric(_R, "NVLink-C2C rx: CPU to GPU in a superchip (GPM)", tier="extended")

    # health
    ecc_corrected: int | None = metric(
        _N, "corrected ECC errors since the driver was loaded", tier="extended", counter=True
    )
    ecc_uncorrected: int | None = metric(_N, "uncorrectable ECC errors since the driver was loaded", counter=True)
    remapped_corrected: int | None = metric(
        _N, "rows remapped because of correctable errors", tier="extended", counter=True
    )
    remapped_uncorrected: int | None = metric(_N, "rows remapped because of uncorrectable errors", counter=True)
    remap_pending: bool | None = metric(Unit.FLAG, "a row remapping is pending until the next GPU reset")
    remap_failed: bool | None = metric(Unit.FLAG, "a row remapping failed: the GPU needs service")
    retired_pages: int | None = metric(_N, "retired memory pages (before Ampere)", counter=True)
    retirement_pending: bool | None = metric(
        Unit.FLAG, "a page retirement is pending until the next reboot (before Ampere)"
    )
    recovery_action: str | None = metric(
        Unit.WORD, "recovery action requested by the driver: none, reset, reboot, drain"
    )
    xids: Annotated[tuple[Xid, ...], "Xid errors seen by gputop"] = ()

    # activity of the units (GPM: Hopper and newer)
    graphics_active_percent: float | None = metric(_P, "graphics engine active (GPM)", top=100, history=True)
    sm_active_percent: float | None = metric(
        _P, "SM activity: share of SMs with at least one warp, averaged over time (GPM)", top=100, history=True
    )
    sm_occupancy_percent: float | None = metric(
        _P, "SM occupancy: resident warps of the maximum (GPM)", top=100, history=True
    )
    tensor_percent: float | None = metric(_P, "tensor cores active (GPM)", top=100, history=True)
    tensor_half_percent: float | None = metric(
        _P, "tensor cores active with fp16 and bf16 (GPM)", top=100, tier="extended"
    )
    tensor_integer_percent: float | None = metric(
        _P, "tensor cores active with integers (GPM)", top=100, tier="extended"
    )
    tensor_double_percent: float | None = metric(_P, "tensor cores active with fp64 (GPM)", top=100, tier="extended")
    tensor_double_fma_percent: float | None = metric(
        _P, "tensor cores active with fp64 FMA (GPM)", top=100, tier="extended"
    )
    dram_percent: float | None = metric(
        _P, "device-memory bandwidth used, of its peak (GPM: DRAM activity)", top=100, history=True
    )
    integer_percent: float | None = metric(_P, "integer pipe active (GPM)", top=100, tier="extended")
    fp64_percent: float | None = metric(_P, "fp64 pipe active (GPM)", top=100, history=True)
    fp32_percent: float | None = metric(_P, "fp32 pipe active (GPM)", top=100, history=True)
    fp16_percent: float | None = metric(_P, "fp16 pipe active, tensor cores excluded (GPM)", top=100, tier="extended")
    memory_cache_hit_percent: float | None = metric(
        _P, "L2 hit rate of device-memory accesses (GPM)", top=100, tier="extended"
    )
    peer_cache_hit_percent: float | None = metric(
        _P, "L2 hit rate of peer-memory accesses (GPM)", top=100, tier="extended"
    )
    host_cache_hit_percent: float | None = metric(
        _P, "L2 hit rate of host-memory accesses (GPM)", top=100, tier="extended"
    )
    mma_stall_percent: float | None = metric(_P, "time MMA instructions stalled", top=100, tier="extended")
    context_switch_percent: float | None = metric(_P, "time a context was switched in (GPM)", top=100, tier="extended")

    # settings and place
    persistence_mode: bool | None = metric(
        Unit.FLAG, "persistence mode: the driver stays loaded while no process uses the GPU"
    )
    compute_mode: str | None = metric(Unit.WORD, "compute mode: default, exclusive, prohibited", tier="extended")
    mig_mode: bool | None = metric(Unit.FLAG, "MIG mode is enabled")
    ecc_mode: bool | None = metric(Unit.FLAG, "ECC is enabled", tier="extended")
    virtualization: str | None = metric(Unit.WORD, "virtualization mode: none, passthrough, vgpu, host")
    numa_node: int | None = metric(_N, "NUMA node the GPU is attached to")
    local_cpus: str | None = metric(Unit.WORD, "CPUs of that NUMA node, as ranges")
    peers: Annotated[
        tuple[tuple[str, str], ...], "other GPUs: UUID and connection: nvlink, switch, bridge, node, system"
    ] = ()

    @property
    def unlisted(self) -> Missing | None:
        """Why the driver does not list its processes; None if it does, or lists those of its instances."""
        if self.mig_mode and self.parent_uuid is None:
            return None
        said = (one for one in self.missing if one.metric == "processes" and one.reason != "absent")
        return next(said, None)
