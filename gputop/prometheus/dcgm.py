"""What DCGM exporter's metrics are called here.

Names before 4.9: etc/default-counters.csv of DCGM exporter 4.8. Names since 4.9: its release notes (23 default fields
renamed to those of DCGM 4.7, eleven of them in base units) and dcgm_fields.h of DCGM. Rows marked optional are comments
in that file: they are exported only if a site enables them.
"""

from __future__ import annotations

from gputop.frozen_dataclass import frozen_dataclass
from gputop.prometheus import families as names
from gputop.prometheus.families import GPU, GPU_EXTENDED, NVLINK


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class DcgmMetric:
    """One metric of DCGM exporter. `ours` is a name or an expression; empty if there is none."""

    before: str  # its name before 4.9, without DCGM_FI_
    since: str  # its name since 4.9; the same if it was not renamed
    ours: str
    note: str = ""
    optional: bool = False


def _gpu(metric: str) -> str:
    return GPU.named(metric).name


def _extended(metric: str) -> str:
    return GPU_EXTENDED.named(metric).name


_MHZ, _PERCENT, _MIB = "MHz before 4.9", "percent before 4.9", "MiB before 4.9"
_FREE = " - ".join(_gpu(f"vram_{part}_bytes") for part in ("total", "used", "reserved"))
_NVLINK = f"{_gpu('nvlink_tx_bytes_per_s')} + {_gpu('nvlink_rx_bytes_per_s')}"
_SHARE = "nanoseconds as a counter; `rate(...) / 1e9` is our ratio"

DCGM_METRICS = (
    DcgmMetric(before="DEV_SM_CLOCK", since="DEV_SM_CLOCK_HERTZ", ours=_gpu("sm_clock_mhz"), note=_MHZ),
    DcgmMetric(before="DEV_MEM_CLOCK", since="DEV_MEMORY_CLOCK_HERTZ", ours=_extended("memory_clock_mhz"), note=_MHZ),
    DcgmMetric(before="DEV_GPU_TEMP", since="DEV_GPU_TEMP_CELSIUS", ours=_gpu("temperature_celsius")),
    DcgmMetric(before="DEV_MEMORY_TEMP", since="DEV_MEMORY_TEMP_CELSIUS", ours=_gpu("memory_temperature_celsius")),
    DcgmMetric(before="DEV_POWER_USAGE", since="DEV_BOARD_POWER_WATTS", ours=_gpu("power_watts")),
    DcgmMetric(
        before="DEV_TOTAL_ENERGY_CONSUMPTION",
        since="DEV_GPU_ENERGY_JOULES_TOTAL",
        ours=_extended("energy_joules"),
        note="mJ before 4.9",
    ),
    DcgmMetric(before="DEV_PCIE_REPLAY_COUNTER", since="DEV_PCIE_REPLAY_TOTAL", ours=_gpu("pcie_replays")),
    DcgmMetric(before="PROF_PCIE_TX_BYTES", since="PROF_PCIE_TX_BYTES", ours=_gpu("pcie_tx_bytes_per_s")),
    DcgmMetric(before="PROF_PCIE_RX_BYTES", since="PROF_PCIE_RX_BYTES", ours=_gpu("pcie_rx_bytes_per_s")),
    DcgmMetric(before="DEV_GPU_UTIL", since="DEV_GPU_UTIL_RATIO", ours=_gpu("busy_percent"), note=_PERCENT),
    DcgmMetric(
        before="DEV_MEM_COPY_UTIL", since="DEV_MEMORY_UTIL_RATIO", ours=_gpu("memory_busy_percent"), note=_PERCENT
    ),
    DcgmMetric(before="DEV_ENC_UTIL", since="DEV_ENC_UTIL_RATIO", ours=_gpu("encoder_percent"), note=_PERCENT),
    DcgmMetric(before="DEV_DEC_UTIL", since="DEV_DEC_UTIL_RATIO", ours=_gpu("decoder_percent"), note=_PERCENT),
    DcgmMetric(
        before="DEV_XID_ERRORS",
        since="DEV_XID_ERROR",
        ours=names.GPU_XID.name,
        note="its value is the number of the last Xid; here the number is the label `xid`, the value its time",
    ),
    DcgmMetric(before="DEV_FB_USED", since="DEV_FB_USED_BYTES", ours=_gpu("vram_used_bytes"), note=_MIB),
    DcgmMetric(before="DEV_FB_FREE", since="DEV_FB_FREE_BYTES", ours=_FREE, note=_MIB),
    DcgmMetric(before="DEV_FB_RESERVED", since="DEV_FB_RESERVED_BYTES", ours=_gpu("vram_reserved_bytes"), note=_MIB),
    DcgmMetric(
        before="DEV_FB_TOTAL",
        since="DEV_FB_CAPACITY_BYTES",
        ours=_gpu("vram_total_bytes"),
        note=f"{_MIB}; a default since then",
        optional=True,
    ),
    DcgmMetric(
        before="DEV_NVLINK_BANDWIDTH_TOTAL",
        since="DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
        ours=_NVLINK,
        note="MB/s before 4.9",
    ),
    DcgmMetric(before="DEV_VGPU_LICENSE_STATUS", since="DEV_VGPU_LICENSE_STATUS", ours=""),
    DcgmMetric(
        before="DEV_UNCORRECTABLE_REMAPPED_ROWS",
        since="DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
        ours=_gpu("remapped_uncorrected"),
    ),
    DcgmMetric(
        before="DEV_CORRECTABLE_REMAPPED_ROWS",
        since="DEV_ROW_REMAP_CORRECTABLE_TOTAL",
        ours=_extended("remapped_corrected"),
    ),
    DcgmMetric(before="DEV_ROW_REMAP_FAILURE", since="DEV_ROW_REMAP_FAILED", ours=_gpu("remap_failed")),
    DcgmMetric(before="PROF_GR_ENGINE_ACTIVE", since="PROF_GR_ENGINE_UTIL_RATIO", ours=_gpu("graphics_active_percent")),
    DcgmMetric(before="PROF_PIPE_TENSOR_ACTIVE", since="PROF_TENSOR_UTIL_RATIO", ours=_gpu("tensor_percent")),
    DcgmMetric(before="PROF_DRAM_ACTIVE", since="PROF_DRAM_UTIL_RATIO", ours=_gpu("dram_percent")),
    DcgmMetric(before="PROF_SM_ACTIVE", since="PROF_SM_UTIL_RATIO", ours=_gpu("sm_active_percent"), optional=True),
    DcgmMetric(
        before="PROF_SM_OCCUPANCY", since="PROF_SM_OCCUPANCY_RATIO", ours=_gpu("sm_occupancy_percent"), optional=True
    ),
    DcgmMetric(before="PROF_PIPE_FP64_ACTIVE", since="PROF_FP64_UTIL_RATIO", ours=_gpu("fp64_percent"), optional=True),
    DcgmMetric(before="PROF_PIPE_FP32_ACTIVE", since="PROF_FP32_UTIL_RATIO", ours=_gpu("fp32_percent"), optional=True),
    DcgmMetric(
        before="PROF_PIPE_FP16_ACTIVE", since="PROF_FP16_UTIL_RATIO", ours=_extended("fp16_percent"), optional=True
    ),
    DcgmMetric(
        before="DEV_ECC_SBE_VOL_TOTAL", since="DEV_ECC_SBE_VOL_TOTAL", ours=_extended("ecc_corrected"), optional=True
    ),
    DcgmMetric(
        before="DEV_ECC_DBE_VOL_TOTAL", since="DEV_ECC_DBE_VOL_TOTAL", ours=_gpu("ecc_uncorrected"), optional=True
    ),
    DcgmMetric(
        before="DEV_POWER_VIOLATION",
        since="DEV_POWER_VIOLATION",
        ours=_gpu("throttled_power_percent"),
        note=_SHARE,
        optional=True,
    ),
    DcgmMetric(
        before="DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        since="DEV_NVLINK_REPLAY_ERROR_TOTAL",
        ours=NVLINK.named("replays").name,
        optional=True,
    ),
    DcgmMetric(
        before="DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        since="DEV_NVLINK_RECOVERY_ERROR_TOTAL",
        ours=NVLINK.named("recoveries").name,
        optional=True,
    ),
)
DCGM_LABELS = {
    "gpu": "gpu",
    "UUID": "uuid",
    "modelName": f"name of {names.GPU_INFO.name}",
    "pci_bus_id": f"pci_bus_id of {names.GPU_INFO.name}",
    "Hostname (hostname since 4.8.3)": f"instance; hostname of {names.HOST_INFO.name}",
    "DCGM_FI_DRIVER_VERSION (DCGM_FI_SYSTEM_DRIVER_VERSION since 4.9)": f"driver_version of {names.HOST_INFO.name}",
    "hpc_job": f"job_name; slurm_job of {names.JOB_INFO.name}",
}
