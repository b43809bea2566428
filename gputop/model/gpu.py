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
    """NVLinks of one GPU that say the same: on a healthy GPU all of them. Counts are of each link, since its start."""

    numbers: Annotated[str, "which links, as a list of ranges"]
    up: bool | None = metric(Unit.FLAG, "the link is up")
    speed_bytes_per_s: float | None = metric(Unit.BYTES_PER_S, "speed of the link, each way")
    replays: int | None = metric(_N, "packets sent again (up to Hopper)")
    recoveries: int | None = metric(_N, "times the link went down and was brought back")
    recoveries_failed: int | None = metric(_N, "times it was not brought back (from Blackwell on)")
    crc_errors: int | None = metric(_N, "packets with a wrong checksum (up to Hopper)")
    effective_errors: int | None = metric(_N, "errors that error correction left (from Blackwell on)")
    effective_error_rate: float | None = metric(_N, "errors per bit after error correction (from Blackwell on)")
    symbol_errors: int | None = metric(_N, "errors before error correction (from Blackwell on)")
    symbol_error_rate: float | None = metric(_N, "errors per bit before error correction (from Blackwell on)")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class PcieErrors:
    """What went wrong on PCIe since the driver was loaded; which of it is counted depends on the card."""

    replay_rollovers: int | None = metric(_N, "times a packet was sent again so often that the link was trained again")
    recoveries: int | None = metric(_N, "times the link had to recover")
    correctable: int | None = metric(_N, "errors the link corrected itself")
    non_fatal: int | None = metric(_N, "errors that lost a packet")
    fatal: int | None = metric(_N, "errors that broke the link")
    unsupported_requests: int | None = metric(_N, "requests the GPU could not serve")
    naks_received: int | None = metric(_N, "packets the other side refused")
    naks_sent: int | None = metric(_N, "packets the GPU refused")
    bad_packets: int | None = metric(_N, "damaged packets of data (TLP)")
    bad_link_packets: int | None = metric(_N, "damaged packets of the link itself (DLLP)")
    checksum_errors: int | None = metric(_N, "packets with a wrong link checksum (LCRC)")
    receiver_errors: int | None = metric(_N, "signals the receiver could not read")
    lane_errors: int | None = metric(_N, "errors on single lanes")


Condition = Literal["ok", "starting", "hung", "lost", "asleep"]
Throttle = Literal[
    "idle", "settings", "power cap", "hardware", "sync boost", "heat", "hard heat", "power brake", "display",
    "board limit", "reliability", "other",
]  # fmt: skip
Samples = tuple[tuple[float, float], ...]  # (seconds before taken_at, value), oldest first


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """A driver error event: its number and when gputop saw it."""

    number: Annotated[int, "number of the error"]
    wall_s: Annotated[float, "when it was seen, as `wall_s` of a frame"]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What the driver measured between two looks: values at an even step, oldest first."""

    wall_s: Annotated[float, "when the last value was measured, as `wall_s` of a frame"]
    step_s: Annotated[float, "seconds between two values"]
    values: Annotated[tuple[float, ...], "the values, oldest first"]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One video engine."""

    name: Annotated[str, "which one: decoder 0, jpeg 0, encoder 0"]
    busy_percent: float | None = metric(_P, "time the engine was busy, since the last look (GPM)", top=100)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device. `uuid` is the identity; `index` is for people and changes when a card is lost."""

    uuid: Annotated[str, "what identifies the device"]
    index: Annotated[str, "its number for people; of a MIG instance 0:1"]
    name: Annotated[str, "model, as the driver says it"]
    parent_uuid: Annotated[str | None, "of a MIG instance: uuid of its card"] = None
    pci_bus_id: Annotated[str | None, "place on the PCIe bus"] = None
    architecture: Annotated[
        str | None, "kepler, maxwell, pascal, volta, turing, ampere, ada, hopper, blackwell, rubin"
    ] = None
    compute_capability: Annotated[tuple[int, int] | None, "CUDA compute capability, major and minor"] = None
    condition: Annotated[Condition, "whether it can be asked"] = "ok"
    condition_s: Annotated[float, "how long it has been in this condition, in seconds"] = 0.0
    age_s: Annotated[float, "how old the values are, in seconds; above 0 they are the last known ones"] = 0.0
    unified_memory: Annotated[bool, "it shares the memory of the host: there are no vram figures"] = False
    numa_memory: Annotated[
        bool, "the system runs its memory as a NUMA node of its own: what is in use may be kept for nobody, as a cache"
    ] = False
    missing: Annotated[tuple[Missing, ...], "what is not known of it, and why"] = ()

    # how busy
    busy_percent: float | None = metric(_P, "time a kernel was resident; 100 is not efficiency", top=100, history=True)
    busy_samples: Annotated[
        Samples,
        "the driver's own samples of busy_percent, oldest first: seconds before the frame, percent; "
        "of some seconds, in a first frame of all that the driver keeps",
    ] = ()
    memory_busy_percent: float | None = metric(
        _P, "time device memory was read or written; not memory in use, not bandwidth", top=100, history=True
    )
    memory_busy_series: Annotated[Series | None, "memory_busy_percent in smaller steps, since the last look"] = (
        extended(None)
    )
    encoder_percent: float | None = metric(_P, "time the video encoder was busy", top=100)
    decoder_percent: float | None = metric(_P, "time the video decoder was busy", top=100)
    engines: Annotated[tuple[Engine, ...], "video engines one by one (GPM)"] = extended(())

    # memory
    vram_total_bytes: int | None = metric(_B, "device memory installed")
    vram_used_bytes: int | None = metric(_B, "device memory in use, all processes", history=True)
    vram_reserved_bytes: int | None = metric(_B, "device memory the driver keeps for itself")

    # heat and power
    temperature_celsius: float | None = metric(_C, "GPU core temperature", history=True)
    memory_temperature_celsius: float | None = metric(_C, "hottest memory stack", history=True)
    temperature_margin_celsius: float | None = metric(_C, "distance to the nearest slow-down", history=True)
    slowdown_celsius: float | None = metric(_C, "temperature at which the driver slows this GPU")
    shutdown_celsius: float | None = metric(_C, "temperature at which the GPU switches off")
    gpu_max_celsius: float | None = metric(
        _C, "temperature above which the GPU may go below its base clock", tier="extended"
    )
    memory_max_celsius: float | None = metric(
        _C, "memory temperature at which the driver slows the GPU (before Ada)", tier="extended"
    )
    power_watts: float | None = metric(_W, "board power, averaged by the driver", history=True)
    power_instant_watts: float | None = metric(_W, "board power now", history=True, tier="extended")
    power_series: Annotated[Series | None, "board power since the last look, in watts"] = None
    power_module_watts: float | None = metric(
        _W, "power of GPU and CPU of a superchip, averaged by the driver", tier="extended"
    )
    power_module_instant_watts: float | None = metric(_W, "power of GPU and CPU of a superchip now", tier="extended")
    power_module_series: Annotated[
        Series | None, "power of GPU and CPU of a superchip since the last look, in watts"
    ] = extended(None)
    power_memory_watts: float | None = metric(_W, "power of the device memory, averaged by the driver", tier="extended")
    power_memory_instant_watts: float | None = metric(_W, "power of the device memory now", tier="extended")
    power_limit_watts: float | None = metric(_W, "power limit in force", history=True)
    power_default_limit_watts: float | None = metric(_W, "power limit as delivered")
    power_requested_limit_watts: float | None = metric(_W, "power limit that was set; the one in force may be lower")
    power_min_limit_watts: float | None = metric(_W, "lowest power limit that can be set")
    power_max_limit_watts: float | None = metric(_W, "highest power limit that can be set")
    energy_joules: float | None = metric(Unit.JOULES, "energy used since the driver was loaded", tier="extended")
    fan_percent: float | None = metric(_P, "fan speed wanted by the card", top=100)

    # clocks and what holds them down
    sm_clock_mhz: float | None = metric(_M, "clock of the multiprocessors", history=True)
    sm_clock_max_mhz: float | None = metric(_M, "highest clock of the multiprocessors")
    sm_clock_series: Annotated[Series | None, "sm_clock_mhz in smaller steps, since the last look"] = extended(None)
    graphics_clock_mhz: float | None = metric(_M, "graphics clock", tier="extended")
    graphics_clock_max_mhz: float | None = metric(_M, "highest graphics clock", tier="extended")
    boost_clock_max_mhz: float | None = metric(_M, "highest graphics clock that can be chosen on this card")
    memory_clock_mhz: float | None = metric(_M, "memory clock", history=True, tier="extended")
    memory_clock_max_mhz: float | None = metric(_M, "highest memory clock", tier="extended")
    memory_clock_series: Annotated[Series | None, "memory_clock_mhz in smaller steps, since the last look"] = extended(
        None
    )
    performance_state: int | None = metric(_N, "P-state: 0 is full performance, 15 the lowest")
    throttle_reasons: frozenset[Throttle] | None = metric(Unit.WORD, "what holds the clocks down now")
    throttled_power_percent: float | None = metric(_P, "time slowed by the power limit", top=100, history=True)
    throttled_heat_percent: float | None = metric(_P, "time slowed by temperature, in software", top=100, history=True)
    throttled_heat_hard_percent: float | None = metric(
        _P, "time slowed by temperature, in hardware: clocks halved or worse", top=100, history=True
    )
    throttled_brake_percent: float | None = metric(
        _P, "time slowed by the power brake of the server", top=100, history=True
    )
    throttled_board_percent: float | None = metric(_P, "time slowed by board limits", top=100, tier="extended")
    throttled_sync_percent: float | None = metric(
        _P, "time slowed to match other GPUs (sync boost)", top=100, tier="extended"
    )
    throttled_reliability_percent: float | None = metric(
        _P, "time slowed for reliable voltage", top=100, tier="extended"
    )
    throttled_low_use_percent: float | None = metric(
        _P, "time slowed because there was little to do", top=100, tier="extended"
    )
    throttled_base_percent: float | None = metric(
        _P, "time below the base clock, whatever the reason", top=100, tier="extended"
    )

    # links
    pcie_tx_bytes_per_s: float | None = metric(_R, "device to host over PCIe", history=True)
    pcie_rx_bytes_per_s: float | None = metric(_R, "host to device over PCIe", history=True)
    pcie_generation: int | None = metric(_N, "PCIe generation now; drops while idle")
    pcie_generation_max: int | None = metric(_N, "highest PCIe generation of device and slot")
    pcie_generation_device_max: int | None = metric(_N, "highest PCIe generation of the device, in a better slot too")
    pcie_lane_bytes_per_s: float | None = metric(_R, "raw speed of one PCIe lane now; drops while idle")
    pcie_width: int | None = metric(_N, "PCIe lanes now")
    pcie_width_max: int | None = metric(_N, "highest number of PCIe lanes of the device")
    pcie_slot_generation: int | None = metric(_N, "highest PCIe generation of the port that the device is plugged into")
    pcie_slot_width: int | None = metric(_N, "PCIe lanes that this port is wired for")
    pcie_replays: int | None = metric(_N, "PCIe packets sent again since the driver was loaded")
    pcie_errors: Annotated[PcieErrors | None, "what went wrong on PCIe since the driver was loaded"] = extended(None)
    nvlink_tx_bytes_per_s: float | None = metric(_R, "sent over all NVLinks", history=True)
    nvlink_rx_bytes_per_s: float | None = metric(_R, "received over all NVLinks", history=True)
    nvlink_max_bytes_per_s: float | None = metric(_R, "what the NVLinks that are up can carry, each way")
    nvlink_bytes_per_s: Annotated[
        tuple[tuple[float | None, float | None], ...], "sent, received by each link, in bytes a second (GPM)"
    ] = extended(())
    nvlinks_active: int | None = metric(_N, "NVLinks that are up")
    nvlink_errors: int | None = metric(_N, "NVLink CRC, replay and recovery errors", tier="extended")
    nvlinks: Annotated[tuple[NvLink, ...], "its NVLinks, those that say the same as one"] = ()
    c2c_tx_bytes_per_s: float | None = metric(_R, "device to CPU inside a superchip (GPM)", tier="extended")
    c2c_rx_bytes_per_s: float | None = metric(_R, "CPU to device inside a superchip (GPM)", tier="extended")

    # health
    ecc_corrected: int | None = metric(_N, "corrected memory errors since the driver was loaded", tier="extended")
    ecc_uncorrected: int | None = metric(_N, "uncorrectable memory errors since the driver was loaded")
    remapped_corrected: int | None = metric(_N, "memory rows replaced after corrected errors", tier="extended")
    remapped_uncorrected: int | None = metric(_N, "memory rows replaced after uncorrectable errors")
    remap_pending: bool | None = metric(Unit.FLAG, "a row waits for the next reset to be replaced")
    remap_failed: bool | None = metric(Unit.FLAG, "a row could not be replaced: the card needs service")
    retired_pages: int | None = metric(_N, "memory pages retired (before Ampere)")
    retirement_pending: bool | None = metric(
        Unit.FLAG, "a page waits for the next reboot to be retired (before Ampere)"
    )
    recovery_action: str | None = metric(Unit.WORD, "what the driver asks for: none, reset, reboot, drain")
    xids: Annotated[tuple[Xid, ...], "driver errors that were seen"] = ()

    # activity of the units (GPM: Hopper and newer)
    graphics_active_percent: float | None = metric(_P, "time any engine was active (GPM)", top=100, history=True)
    sm_active_percent: float | None = metric(_P, "multiprocessors with work, mean (GPM)", top=100, history=True)
    sm_occupancy_percent: float | None = metric(_P, "warps resident of those possible (GPM)", top=100, history=True)
    tensor_percent: float | None = metric(_P, "tensor cores active (GPM)", top=100, history=True)
    tensor_half_percent: float | None = metric(
        _P, "tensor cores active on fp16 and bf16 (GPM)", top=100, tier="extended"
    )
    tensor_integer_percent: float | None = metric(_P, "tensor cores active on integers (GPM)", top=100, tier="extended")
    tensor_double_percent: float | None = metric(_P, "tensor cores active on fp64 (GPM)", top=100, tier="extended")
    tensor_double_fma_percent: float | None = metric(
        _P, "tensor cores active on fp64 multiply-adds (GPM)", top=100, tier="extended"
    )
    dram_percent: float | None = metric(_P, "memory bandwidth used of the maximum (GPM)", top=100, history=True)
    integer_percent: float | None = metric(_P, "integer pipe active (GPM)", top=100, tier="extended")
    fp64_percent: float | None = metric(_P, "fp64 pipe active (GPM)", top=100, history=True)
    fp32_percent: float | None = metric(_P, "fp32 pipe active (GPM)", top=100, history=True)
    fp16_percent: float | None = metric(_P, "fp16 pipe active, tensor cores excluded (GPM)", top=100, tier="extended")
    memory_cache_hit_percent: float | None = metric(
        _P, "accesses of device memory that the cache served (GPM)", top=100, tier="extended"
    )
    peer_cache_hit_percent: float | None = metric(
        _P, "accesses of other GPUs' memory that the cache served (GPM)", top=100, tier="extended"
    )
    host_cache_hit_percent: float | None = metric(
        _P, "accesses of host memory that the cache served (GPM)", top=100, tier="extended"
    )
    mma_stall_percent: float | None = metric(_P, "time matrix instructions waited", top=100, tier="extended")
    context_switch_percent: float | None = metric(_P, "time a context was switched in (GPM)", top=100, tier="extended")

    # settings and place
    persistence_mode: bool | None = metric(Unit.FLAG, "the driver stays loaded between programs")
    compute_mode: str | None = metric(
        Unit.WORD, "who may compute here: default, exclusive, prohibited", tier="extended"
    )
    mig_mode: bool | None = metric(Unit.FLAG, "the card is partitioned into MIG instances")
    ecc_mode: bool | None = metric(Unit.FLAG, "memory error correction is on", tier="extended")
    virtualization: str | None = metric(Unit.WORD, "none, passthrough, vgpu, host")
    numa_node: int | None = metric(_N, "NUMA node the card is attached to")
    local_cpus: str | None = metric(Unit.WORD, "CPUs near the card, as a list of ranges")
    peers: Annotated[
        tuple[tuple[str, str], ...], "other GPUs: uuid, and how they are joined: nvlink, switch, bridge, node, system"
    ] = ()

    @property
    def unlisted(self) -> Missing | None:
        """Why the driver does not list the processes of this device; None where it does, if only of its instances."""
        if self.mig_mode and self.parent_uuid is None:
            return None
        said = (one for one in self.missing if one.metric == "processes" and one.reason != "absent")
        return next(said, None)
