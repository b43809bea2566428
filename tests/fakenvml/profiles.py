"""Drivers as they are, device class by device class: what each answers, what it refuses, and what a call costs.

    fake = Fake(tmp_path, gpus=GB10.gpus, without=GB10.without)
    fake.play(GB10)                    # at work; fake.play(GB10, idle=True) at rest

Where a public dump of such a device shows whether a metric is there, its name stands in `seen`. The rest is inferred
from what is near: the driver's change log, another card of the same generation, the interface's documentation; or it is
`unknown`, and the fake does without. gputop itself has seen one of them, by `make gpu-check`: h200-580.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Value = str | int | float | None

MIB, GIB = 1 << 20, 1 << 30
# nvidia-smi prints these of a card in its table, and those in its report
TABLE = frozenset({
    "busy_percent", "vram_total_bytes", "vram_used_bytes", "temperature_celsius", "power_watts", "power_limit_watts",
    "fan_percent", "performance_state", "persistence_mode", "compute_mode", "mig_mode", "ecc_uncorrected",
})  # fmt: skip
REPORT = TABLE | {
    "memory_busy_percent", "encoder_percent", "decoder_percent", "vram_reserved_bytes", "memory_temperature_celsius",
    "power_default_limit_watts", "power_requested_limit_watts", "power_min_limit_watts", "power_max_limit_watts",
    "power_module_watts", "power_memory_watts", "sm_clock_mhz", "sm_clock_max_mhz", "graphics_clock_mhz",
    "graphics_clock_max_mhz", "boost_clock_max_mhz", "memory_clock_mhz", "memory_clock_max_mhz", "throttle_reasons",
    "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "pcie_generation", "pcie_generation_max",
    "pcie_generation_device_max", "pcie_lane_bytes_per_s", "pcie_width", "pcie_width_max", "pcie_replays",
    "ecc_corrected", "remapped_corrected", "remapped_uncorrected", "remap_pending", "remap_failed", "retired_pages",
    "retirement_pending", "ecc_mode", "virtualization",
}  # fmt: skip
# activity of the units; and what of it came with driver 575
UNITS = frozenset({
    "graphics_active_percent", "sm_active_percent", "sm_occupancy_percent", "tensor_percent", "tensor_half_percent",
    "tensor_integer_percent", "tensor_double_percent", "tensor_double_fma_percent", "dram_percent", "integer_percent",
    "fp64_percent", "fp32_percent", "fp16_percent",
})  # fmt: skip
NEW_UNITS = frozenset({
    "memory_cache_hit_percent", "peer_cache_hit_percent", "host_cache_hit_percent", "mma_stall_percent",
    "context_switch_percent",
})  # fmt: skip


@dataclass(frozen=True)
class Profile:
    """One class of devices under one driver. `values` are of a card at work, `idle` is what is other at rest."""

    name: str
    device: str
    driver: str
    values: Mapping[str, Value]
    idle: Mapping[str, Value]
    seen: frozenset[str]
    unknown: frozenset[str] = frozenset()  # metrics of which nothing public says whether it has them
    gpus: int = 1
    shared: Mapping[str, Value] = field(default_factory=dict)
    faults: tuple[tuple[str, str, int], ...] = ()  # kind, function, value
    without: tuple[str, ...] = ()  # functions that this driver does not have
    slot: tuple[str, int] | None = None  # speed and lanes of the port, where the system shows it
    lists: bool = True  # whether the driver lists the process at work
    instance: tuple[int, int] | None = None  # GPU and compute instance of that process

    @property
    def state(self) -> dict[str, Value]:
        """Every key of the state file, of cards at work."""
        given = {"driver_version": self.driver, "name": self.device, **self.shared, **self.values}
        own = {name if name in _SHARED else f"gpu.*.{name}": value for name, value in given.items()}
        return own | {f"{kind}.{function}": f"{value} after=0 times=0" for kind, function, value in self.faults}

    def sysfs(self, root: Path) -> Path:
        """The part of /sys that shows the port of each card, where this class has one."""
        for gpu in range(self.gpus if self.slot else 0):
            speed, lanes = self.slot or ("", 0)
            port, card = root / f"devices/pci0000:1a/0000:1a:{gpu:02x}.0", f"0000:{0x1B + gpu:02x}:00.0"
            (port / card).mkdir(parents=True)
            (port / "max_link_speed").write_text(f"{speed}\n")
            (port / "max_link_width").write_text(f"{lanes}\n")
            (bus := root / "bus/pci/devices").mkdir(parents=True, exist_ok=True)
            (bus / card).symlink_to(port / card)
        return root

    @property
    def rest(self) -> dict[str, Value]:
        """The keys that are other while nothing runs."""
        return {f"gpu.*.{name}": value for name, value in self.idle.items()}


_SHARED = frozenset({"driver_version", "cuda_version", "one_lock", "pcie_throughput_us"})

# microseconds, as measured of a GeForce RTX 5090 under 610; nobody has measured the others
COSTS = (
    ("delay_us", "nvmlInit*", 4_000),
    ("delay_us", "nvmlDeviceGetHandleByIndex*", 6_000),
    ("delay_us", "nvmlDeviceGetComputeRunningProcesses*", 150),
    ("delay_us", "nvmlDeviceGetGraphicsRunningProcesses*", 150),
    ("delay_us", "nvmlDeviceGetMPSComputeRunningProcesses*", 150),
    ("delay_us", "nvmlDeviceGetFanSpeed*", 400),
    ("delay_us", "nvmlDeviceGetMarginTemperature", 560),
    ("delay_us", "nvmlDeviceGetProcessUtilization", 1_700),
    ("delay_us", "nvmlDeviceGetSamples", 1_500),
    ("delay_us", "nvmlDeviceGetTotalEnergyConsumption", 2_400),
)
FIELD_COSTS = {"field_us.83": 2_400, "field_us.185": 3_300, "field_us.186": 3, "field_us.197": 300, "field_us.198": 300}
BUFFERS = {"samples.0": "50 119", "samples.1": "5 71", "samples.2": "5 71", "samples.3": "5 71", "samples.4": "5 71"}
REAL = {**FIELD_COSTS, **BUFFERS}
DESK = {"cpus": "0-31", "memory_nodes": "0"}  # a machine of one node
ONE_LOCK: Mapping[str, Value] = {"one_lock": 1, "pcie_throughput_us": 21_000}

NO_UNITS = {"gpm_supported": 0}
NO_LINKS = {"nvlink_count": None}
NO_ECC = dict.fromkeys(("ecc_corrected", "ecc_uncorrected", "ecc_corrected_total", "ecc_uncorrected_total"))
NO_ECC_MODE = {**NO_ECC, "ecc_mode": None, "ecc_mode_pending": None}
NO_REMAP = dict.fromkeys(("remapped_corrected", "remapped_uncorrected", "remapped_pending", "remapped_failure"))
NO_MIG = {"mig_mode": None, "mig_mode_pending": None, "max_mig": 0}
NO_FAN = {"fans": None, "fan_percent": None}
NO_LIMITS = dict.fromkeys(f"power_limit_{one}mw" for one in ("min_", "enforced_", "", "requested_", "default_", "max_"))
NO_MEMORY = dict.fromkeys(("memory_total", "memory_reserved", "memory_used", "bar1_total", "bar1_used"))
NO_PCIE_BYTES = {"pcie_tx_bytes": None, "pcie_rx_bytes": None}
CLEAN = {"pcie_replays": 0, "pcie_replay_rollovers": 0, "remapped_corrected": 0, "remapped_uncorrected": 0}
CALM = dict.fromkeys(
    (f"{why}_ns_per_s" for why in ("sw_power_cap", "thermal", "sync_boost", "board_limit", "low_utilization",
                                   "reliability", "app_clocks", "base_clocks", "sw_thermal")), 0,
)  # fmt: skip
NO_SLOWED = dict.fromkeys(
    f"{why}_ns" for why in ("sw_power_cap", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability",
                            "app_clocks", "base_clocks", "sw_thermal", "hw_thermal", "hw_power_brake")
)  # fmt: skip
NO_THRESHOLDS = dict.fromkeys(
    ("shutdown_tlimit", "slowdown_tlimit", "memory_max_tlimit", "gpu_max_tlimit", "margin_temperature")
)
NO_OLD_FIELDS = {"field.197": None, "field.198": None, "field.230": None, "mma_stall_percent": None}  # before 555, 560
OLD_565 = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature")  # came after it
GEFORCE = {
    "brand": 5, **NO_UNITS, **NO_LINKS, **NO_ECC, **NO_MIG, **CLEAN, **CALM, "boost_graphics_clock": None,
    "boost_sm_clock": None, "boost_mem_clock": None, "app_graphics_clock": None, "app_mem_clock": None,
    "memory_temperature": None, "memory_max_tlimit": None, "serial": None, "board_part_number": None,
}  # fmt: skip


def watts(
    average: float, instant: float, least: float | None, limit: float, default: float, most: float
) -> dict[str, Value]:
    """Power, its limit in force and those that can be set, in watts."""
    given = {"power": average, "power_average": average, "power_instant": instant, "power_limit_min": least,
             "power_limit_enforced": limit, "power_limit": limit, "power_limit_requested": limit,
             "power_limit_default": default, "power_limit_max": most}  # fmt: skip
    return {f"{name}_mw": None if value is None else round(value * 1000) for name, value in given.items()}


def drawn(average: float, instant: float) -> dict[str, Value]:
    """Power alone."""
    return {"power_mw": average * 1000, "power_average_mw": average * 1000, "power_instant_mw": instant * 1000}


def clocks(sm: int, top: int | None, memory: int | None, memory_top: int | None) -> dict[str, Value]:
    """Clocks now and at most, in MHz."""
    return {"graphics_clock": sm, "sm_clock": sm, "max_graphics_clock": top, "max_sm_clock": top, "mem_clock": memory,
            "max_mem_clock": memory_top}  # fmt: skip


def link(now: int, most: int, device: int, lanes: int, most_lanes: int) -> dict[str, Value]:
    """PCIe generation now, of slot and device together, of the device; lanes now and at most."""
    return {"pcie_gen": now, "pcie_max_gen": most, "pcie_gpu_max_gen": device, "pcie_width": lanes,
            "pcie_max_width": most_lanes}  # fmt: skip


AT_WORK: Mapping[str, Value] = {
    "util": 97, "mem_util": 52, "encoder_util": 0, "decoder_util": 0, "jpeg_util": 0, "ofa_util": 0,
    "pcie_tx_bytes_per_s": 2e8, "pcie_rx_bytes_per_s": 5e8,
}  # fmt: skip
AT_REST: Mapping[str, Value] = {
    "util": 0, "mem_util": 0, "event_reasons": 1, "pcie_tx_bytes_per_s": 0, "pcie_rx_bytes_per_s": 0,
}  # fmt: skip
NO_LINK_WORK = {"nvlink.*.tx_bytes_per_s": 0, "nvlink.*.rx_bytes_per_s": 0}
NO_WORK = {f"gpm.{number}": 0 for number in (*range(1, 14), 20, 21, 60, 61)}
WORK_UNITS = {"gpm.1": 97, "gpm.2": 88, "gpm.3": 44, "gpm.5": 51, "gpm.7": 50, "gpm.10": 44, "gpm.12": 14, "gpm.13": 3,
              "gpm.20": 190, "gpm.21": 480}  # fmt: skip

RTX_4090_550 = Profile(
    name="rtx4090-550",
    device="NVIDIA GeForce RTX 4090",
    driver="550.120",
    values={
        **REAL, **DESK, **AT_WORK, **GEFORCE, **NO_OLD_FIELDS, "architecture": 8, "compute_capability": "8.9",
        "ecc_mode": 0, "ecc_mode_pending": 0, "memory_total": 24564 * MIB, "memory_reserved": 346 * MIB,
        "memory_used": 18 * GIB, "temperature": 66, "shutdown_tlimit": -7, "slowdown_tlimit": -2, "fans": 2,
        "fan_percent": 46, "pstate": 2, **watts(392, 401, 10, 450, 450, 600), **clocks(2610, 3120, 10251, 10501),
        **link(4, 4, 4, 16, 16),
        "samples.5": "10 100 changes", "samples.6": "10 100 changes",
    },
    idle={
        **AT_REST, **drawn(26.8, 27.1), **clocks(210, 3120, 405, 10501), "pcie_gen": 1, "pstate": 8, "fan_percent": 0,
        "temperature": 40, "memory_used": 2 * MIB,
    },
    seen=REPORT,
    shared={**ONE_LOCK, "cuda_version": 12040},
    faults=COSTS,
    without=OLD_565,
    slot=("16.0 GT/s PCIe", 16),
)  # fmt: skip

RTX_5090_610 = Profile(
    name="rtx5090-610",
    device="NVIDIA GeForce RTX 5090",
    driver="610.43.03",
    values={
        **REAL, **DESK, **AT_WORK, **GEFORCE, **NO_ECC_MODE, "architecture": 10, "compute_capability": "12.0",
        "memory_total": 32607 * MIB, "memory_reserved": 500 * MIB, "memory_used": 24 * GIB, "temperature": 62,
        "margin_temperature": 28, "shutdown_temperature": 96, "slowdown_temperature": 93, "gpu_max_temperature": 90,
        "shutdown_tlimit": -6, "slowdown_tlimit": -3, "fans": 2, "fan_percent": 42, "pstate": 1,
        **watts(498, 512, 400, 575, 575, 600), **clocks(2730, 3090, 13801, 14001), **link(5, 5, 5, 16, 16),
        "samples.5": "empty", "samples.6": "empty",
    },
    idle={
        **AT_REST, **drawn(19, 21), **clocks(180, 3090, 405, 14001), "pcie_gen": 1, "pstate": 8, "fan_percent": 0,
        "temperature": 45, "margin_temperature": 45, "memory_used": 2 * MIB,
    },
    seen=frozenset({
        "busy_percent", "memory_busy_percent", "temperature_celsius", "power_watts", "fan_percent", "sm_clock_mhz",
        "graphics_clock_mhz", "memory_clock_mhz", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "boost_clock_max_mhz",
        "temperature_margin_celsius", "slowdown_celsius", "shutdown_celsius", "gpu_max_celsius", "memory_max_celsius",
        "power_instant_watts", "energy_joules",
    }),
    unknown=UNITS | NEW_UNITS,
    shared={**ONE_LOCK, "cuda_version": 13030},
    faults=COSTS,
    slot=("32.0 GT/s PCIe", 16),
)  # fmt: skip

H100 = {
    **REAL, **AT_WORK, **CLEAN, **CALM, **WORK_UNITS, "fields_untyped": "3 4", "ecc_corrected": 3, "ecc_uncorrected": 0,
    "sw_power_cap_ns_per_s": 30_000_000,
}  # fmt: skip

H100_550 = Profile(
    name="h100-550",
    device="NVIDIA H100 NVL",
    driver="550.90.07",
    gpus=4,
    values={
        **H100, **NO_OLD_FIELDS, "memory_total": 95830 * MIB, "memory_reserved": 594 * MIB, "memory_used": 61 * GIB,
        "temperature": 58, "memory_temperature": 66, "margin_temperature": 28, "shutdown_tlimit": -8,
        "slowdown_tlimit": -2, "gpu_max_tlimit": 0, "nvlink_count": 12, "gpm_known_below": 98, "gpm_refuses_all": 2,
        **watts(296, 305, 200, 310, 310, 400), **clocks(1740, 1785, 2619, 2619), "boost_graphics_clock": 1785,
    },
    idle={
        **AT_REST, **NO_WORK, **NO_LINK_WORK, **drawn(62, 63), **clocks(345, 1785, 2619, 2619), "pstate": 0,
        "temperature": 36, "memory_temperature": 40, "memory_used": 2 * MIB,
    },
    seen=REPORT,
    shared={**ONE_LOCK, "cuda_version": 12040},
    faults=COSTS,
    without=OLD_565,
    slot=("32.0 GT/s PCIe", 16),
)  # fmt: skip

H100_580 = Profile(
    name="h100-580",
    device="NVIDIA H100 80GB HBM3",
    driver="580.65.06",
    gpus=8,
    values={
        **H100, "memory_total": 81559 * MIB, "memory_reserved": 597 * MIB, "memory_used": 66 * GIB, "temperature": 61,
        "memory_temperature": 73, "margin_temperature": 27, **watts(612, 634, 200, 700, 700, 700),
        **clocks(1905, 1980, 2619, 2619), "boost_graphics_clock": 1980, "gpm.60": 15500, "gpm.61": 15500,
    },
    idle={
        **AT_REST, **NO_WORK, **drawn(71, 72), **clocks(345, 1980, 2619, 2619), "pstate": 0, "temperature": 33,
        "margin_temperature": 55, "memory_temperature": 42, "memory_used": 4 * MIB, **NO_LINK_WORK,
    },
    seen=TABLE,
    unknown=NEW_UNITS,
    shared={**ONE_LOCK, "cuda_version": 13000},
    faults=COSTS,
    slot=("32.0 GT/s PCIe", 16),
)  # fmt: skip

# an H200 in a virtual machine, as `make gpu-check` found it in November 2026: no NVLink, energy dear, all else cheap
H200_COSTS = (
    ("delay_us", "nvmlInit*", 4_000),
    ("delay_us", "nvmlDeviceGetFanSpeed*", 140),
    ("delay_us", "nvmlDeviceGetMarginTemperature", 860),
    ("delay_us", "nvmlDeviceGetProcessUtilization", 2_360),
    ("delay_us", "nvmlDeviceGetSamples", 2_440),
    ("delay_us", "nvmlGpmMetricsGet", 1_900),
    ("delay_us", "nvmlGpmSampleGet", 240),
)
H200_580 = Profile(
    name="h200-580",
    device="NVIDIA H200",
    driver="580.159.04",
    values={
        **BUFFERS, **DESK, **AT_WORK, **CLEAN, **CALM, **NO_LINKS, **NO_FAN, "field_us.83": 3_800, "field_us.197": 200,
        "field_us.198": 200, "util": 99, "mem_util": 24, "memory_total": 143771 * MIB, "memory_reserved": 615 * MIB,
        "memory_used": 1011 * MIB, "ecc_corrected": 0, "ecc_uncorrected": 0,
        "temperature": 67, "memory_temperature": 58, "margin_temperature": 19, "shutdown_tlimit": -8,
        "slowdown_tlimit": -2, "gpu_max_tlimit": 0, "memory_max_tlimit": 0, **watts(691, 692, 200, 700, 700, 700),
        "power_average_memory_mw": 57_540, **clocks(1425, 1980, 3201, 3201), "event_reasons": 4,
        "boost_graphics_clock": 1980, "sw_power_cap_ns_per_s": 1_000_000_000, "virtualization_mode": 1,
        "gpm.1": 99.4, "gpm.2": 96, "gpm.3": 14.2,
        "gpm.4": 1.4, "gpm.5": 93.2, "gpm.6": 0, "gpm.7": 93.2, "gpm.8": 0, "gpm.9": 0, "gpm.10": 17, "gpm.11": 0,
        "gpm.12": 0, "gpm.13": 0, "gpm.20": 4.91, "gpm.21": 13.3, "gpm.60": 0, "gpm.61": 0, "gpm.100": 0, "gpm.101": 0,
        "gpm.174": 0, "mma_stall_percent": "error 2",
    },
    idle={
        **AT_REST, **NO_WORK, **drawn(83, 83), "power_average_memory_mw": 38_242, **clocks(345, 1980, 3201, 3201),
        "pstate": 0, "temperature": 46, "margin_temperature": 41, "memory_temperature": 47, "memory_used": 0,
        "sw_power_cap_ns_per_s": 0, "low_utilization_ns_per_s": 1_000_000_000, "base_clocks_ns_per_s": 1_000_000_000,
        "app_clocks_ns_per_s": 1_000_000_000,
    },
    seen=REPORT - {"fan_percent", "retired_pages", "retirement_pending", "power_module_watts"} | UNITS | {
        "context_switch_percent", "shutdown_celsius", "slowdown_celsius", "gpu_max_celsius", "memory_max_celsius",
        "temperature_margin_celsius", "recovery_action", "throttled_power_percent", "throttled_heat_percent",
        "energy_joules", "power_instant_watts", "nvlink_rx_bytes_per_s", "mma_stall_percent",
    },
    shared={**ONE_LOCK, "cuda_version": 13000},
    faults=H200_COSTS,
)  # fmt: skip

UNIFIED = {
    **REAL, **DESK, **AT_WORK, **NO_UNITS, **NO_LINKS, **NO_ECC_MODE, **NO_REMAP, **NO_MIG, **NO_FAN, **NO_LIMITS,
    **NO_MEMORY, **NO_PCIE_BYTES, **NO_THRESHOLDS, **CLEAN, **NO_REMAP, **CALM, "pcie_tx_bytes_per_s": None,
    "pcie_rx_bytes_per_s": None, "mem_util": 0, "memory_temperature": None, "samples.1": "5 71 busy",
    "samples.2": "5 71 busy", "mem_clock": None, "max_mem_clock": None, "serial": None,
    "boost_graphics_clock": None, "boost_sm_clock": None, "boost_mem_clock": None,
}  # fmt: skip
UNIFIED_REST = {"util": 0, "event_reasons": 1}
UNIFIED_SEEN = frozenset({
    "busy_percent", "memory_busy_percent", "vram_total_bytes", "vram_used_bytes", "vram_reserved_bytes", "fan_percent",
})  # fmt: skip

GB10 = Profile(
    name="gb10",
    device="NVIDIA GB10",
    driver="580.95.05",
    values={
        **UNIFIED, "architecture": 10, "compute_capability": "12.1", "pci_bus_id": "0000000F:01:00.0",
        "temperature": 72, **drawn(68, 71), **clocks(2405, 3003, None, None), **link(1, 1, 1, 1, 1),
    },
    idle={**UNIFIED_REST, **drawn(4, 4), "graphics_clock": 208, "sm_clock": 208, "pstate": 8, "temperature": 36},
    seen=UNIFIED_SEEN | {
        "temperature_celsius", "power_watts", "power_limit_watts", "memory_clock_mhz", "ecc_uncorrected", "ecc_mode",
        "sm_clock_mhz", "energy_joules", "performance_state", "persistence_mode", "compute_mode", "mig_mode",
        "pcie_generation", "pcie_width", "throttled_power_percent", "throttled_heat_percent",
    },
    unknown=UNITS | NEW_UNITS,
    shared={**ONE_LOCK, "cuda_version": 13000},
    faults=COSTS,
)  # fmt: skip

THOR = Profile(
    name="thor",
    device="NVIDIA Thor",
    driver="580.00",
    values={
        **UNIFIED, **NO_SLOWED, "architecture": 10, "compute_capability": "11.0", "pci_bus_id": "00000000:01:00.0",
        "temperature": None, "power_mw": None, "power_average_mw": None, "power_instant_mw": None, "energy_mj": None,
        **clocks(0, None, None, None), "graphics_clock": None, "sm_clock": None, "pstate": None,
        "event_reasons": None, "event_reasons_supported": None, "pcie_replays": None, "pcie_replay_rollovers": None,
        **dict.fromkeys(link(0, 0, 0, 0, 0)), "event_types": None,
        "mig_mode": 0, "mig_mode_pending": 0, "persistence_mode": 0,
    },
    idle={"util": 0},
    seen=UNIFIED_SEEN | TABLE,
    unknown=UNITS | NEW_UNITS,
    shared={**ONE_LOCK, "cuda_version": 13000},
    faults=COSTS,
)  # fmt: skip

LAPTOP = Profile(
    name="laptop",
    device="NVIDIA GeForce RTX 3050 Laptop GPU",
    driver="580.95.05",
    values={
        **REAL, **DESK, **AT_WORK, **GEFORCE, **NO_ECC_MODE, **NO_REMAP, **NO_FAN, **NO_THRESHOLDS, "architecture": 7,
        "compute_capability": "8.6", "memory_total": 4096 * MIB, "memory_reserved": 250 * MIB,
        "memory_used": 3100 * MIB, "temperature": 74, "shutdown_temperature": 100, "slowdown_temperature": 97,
        "gpu_max_temperature": 105, "pstate": 0, **watts(71, 749, 5, 95, 95, 95), "power_limit_requested_mw": None,
        **clocks(1740, 2100, 6000, 6001), **link(4, 4, 4, 8, 16), "persistence_mode": 0,
        "sw_thermal_ns": 86_400_000_000_000, "samples.5": "10 100 changes", "samples.6": "10 100 changes",
    },
    idle={
        **AT_REST, **drawn(1, 749), **clocks(210, 2100, 405, 6001), "pcie_gen": 1, "pstate": 8, "temperature": 44,
        "memory_used": 2 * MIB,
    },
    seen=REPORT | {"gpu_max_celsius", "shutdown_celsius", "power_instant_watts", "throttled_heat_percent"},
    shared={**ONE_LOCK, "cuda_version": 13000},
    faults=COSTS,
    slot=("16.0 GT/s PCIe", 8),
)  # fmt: skip

MIG_CONTAINER = Profile(
    name="mig-container",
    device="NVIDIA H100 80GB HBM3",
    driver="570.124.06",
    values={
        **H100, "memory_total": "error 4", "temperature": 55, "margin_temperature": 33,
        **watts(402, 410, 200, 700, 700, 700), **clocks(1905, 1980, 2619, 2619), "boost_graphics_clock": 1980,
        "mig_mode": 1, "mig_mode_pending": 1, "mig_count": 1, "gpm_known_below": 98,
    },
    idle={
        **NO_WORK, **NO_LINK_WORK, **drawn(71, 72), **clocks(345, 1980, 2619, 2619), "temperature": 33,
        "margin_temperature": 55, "memory_temperature": 42, "mig.*.gpm.2": 0, "mig.*.gpm.5": 0, "mig.*.gpm.10": 0,
        "mig.*.memory_used": 0, "event_reasons": 1,
    },
    seen=frozenset({"busy_percent", "vram_total_bytes", "vram_used_bytes", "vram_reserved_bytes"}),
    shared={**ONE_LOCK, "cuda_version": 12080},
    faults=(*COSTS, ("fail", "nvmlDeviceRegisterEvents", 4)),
    slot=("32.0 GT/s PCIe", 16),
    instance=(7, 0),
)  # fmt: skip

WSL = Profile(
    name="wsl",
    device="NVIDIA GeForce RTX 4070 Laptop GPU",
    driver="566.36",
    values={
        **REAL, **AT_WORK, **GEFORCE, **NO_ECC_MODE, **NO_FAN, "architecture": 8, "compute_capability": "8.9",
        "memory_total": 8188 * MIB, "memory_reserved": 240 * MIB, "memory_used": 6000 * MIB, "temperature": 68,
        "shutdown_tlimit": -12, "slowdown_tlimit": -2, **watts(52, 55, 5, 61.24, 55, 140), "minor_number": None,
        "power_limit_requested_mw": None, **clocks(2010, 3105, 8001, 8001), **link(4, 4, 4, 8, 8), "event_types": None,
        "cpus": None, "memory_nodes": None,
    },
    idle={
        **AT_REST, **drawn(1.97, 2), **clocks(210, 3105, 405, 8001), "pstate": 8, "temperature": 42, "memory_used": 0,
    },
    seen=REPORT | {"recovery_action"},
    shared={**ONE_LOCK, "cuda_version": 12070, "pcie_throughput_us": 32_000},  # as of an RTX 5080 under Windows
    faults=(
        *COSTS,
        *(("fail", f"nvmlDeviceGet{kind}RunningProcesses*", 999) for kind in ("Compute", "Graphics", "MPSCompute")),
        ("fail", "nvmlDeviceGetProcessUtilization", 3),
        ("fail", "nvmlDeviceGetTopologyCommonAncestor", 3),
    ),
    without=OLD_565,
    lists=False,
)  # fmt: skip

CC_H200 = Profile(
    name="cc-h200",
    device="NVIDIA H200",
    driver="570.124.06",
    values={
        **H100, **NO_UNITS, **NO_LINKS, "memory_total": 143771 * MIB, "memory_reserved": 610 * MIB,
        "memory_used": 120 * GIB, "temperature": 57, "memory_temperature": 68, "margin_temperature": 30,
        **watts(590, 611, 200, 700, 700, 700), **clocks(1905, 1980, 3201, 3201), "boost_graphics_clock": 1980,
        "virtualization_mode": 1,
    },
    idle={
        **AT_REST, **drawn(75, 76), **clocks(345, 1980, 3201, 3201), "temperature": 34, "margin_temperature": 53,
        "memory_temperature": 40, "memory_used": 4 * MIB,
    },
    seen=frozenset({
        "busy_percent", "memory_busy_percent", "vram_total_bytes", "vram_used_bytes", "temperature_celsius",
        "power_watts",
    }),
    unknown=UNITS | NEW_UNITS,
    shared={**ONE_LOCK, "cuda_version": 12080},
    faults=COSTS,
)  # fmt: skip

PROFILES = {
    one.name: one
    for one in (
        RTX_4090_550, RTX_5090_610, H100_550, H100_580, H200_580, GB10, THOR, LAPTOP, MIG_CONTAINER, WSL, CC_H200,
    )
}  # fmt: skip
