"""The fake driver under the real nvidia-ml-py: every call answers with its own key, before anything rests on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fakenvml import Fake, NoCompiler, keys
from tests.fakenvml.remote import Refused, Remote

CALLS = {  # H is the GPU's handle
    "minor_number": "MinorNumber(H)",
    "brand": "Brand(H)",
    "architecture": "Architecture(H)",
    "cores": "NumGpuCores(H)",
    "memory_bus_width": "MemoryBusWidth(H)",
    "persistence_mode": "PersistenceMode(H)",
    "compute_mode": "ComputeMode(H)",
    "display_mode": "DisplayMode(H)",
    "display_active": "DisplayActive(H)",
    "accounting_mode": "AccountingMode(H)",
    "virtualization_mode": "VirtualizationMode(H)",
    "util": "UtilizationRates(H).gpu",
    "mem_util": "UtilizationRates(H).memory",
    "encoder_util": "EncoderUtilization(H)[0]",
    "decoder_util": "DecoderUtilization(H)[0]",
    "jpeg_util": "JpgUtilization(H)[0]",
    "ofa_util": "OfaUtilization(H)[0]",
    "temperature": "TemperatureV(H, 0)",
    "margin_temperature": "MarginTemperature(H)",
    "shutdown_temperature": "TemperatureThreshold(H, 0)",
    "slowdown_temperature": "TemperatureThreshold(H, 1)",
    "memory_max_temperature": "TemperatureThreshold(H, 2)",
    "gpu_max_temperature": "TemperatureThreshold(H, 3)",
    "fans": "NumFans(H)",
    "fan_percent": "FanSpeed(H)",
    "fan_rpm": "FanSpeedRPM(H)",
    "power_mw": "PowerUsage(H)",
    "power_limit_enforced_mw": "EnforcedPowerLimit(H)",
    "power_limit_mw": "PowerManagementLimit(H)",
    "power_limit_default_mw": "PowerManagementDefaultLimit(H)",
    "power_limit_min_mw": "PowerManagementLimitConstraints(H)[0]",
    "power_limit_max_mw": "PowerManagementLimitConstraints(H)[1]",
    "graphics_clock": "ClockInfo(H, 0)",
    "sm_clock": "ClockInfo(H, 1)",
    "mem_clock": "ClockInfo(H, 2)",
    "video_clock": "ClockInfo(H, 3)",
    "max_graphics_clock": "MaxClockInfo(H, 0)",
    "max_sm_clock": "MaxClockInfo(H, 1)",
    "max_mem_clock": "MaxClockInfo(H, 2)",
    "max_video_clock": "MaxClockInfo(H, 3)",
    "boost_graphics_clock": "MaxCustomerBoostClock(H, 0)",
    "boost_sm_clock": "MaxCustomerBoostClock(H, 1)",
    "boost_mem_clock": "MaxCustomerBoostClock(H, 2)",
    "app_graphics_clock": "ApplicationsClock(H, 0)",
    "app_mem_clock": "ApplicationsClock(H, 2)",
    "pstate": "PerformanceState(H)",
    "event_reasons": "CurrentClocksEventReasons(H)",
    "event_reasons_supported": "SupportedClocksEventReasons(H)",
    "pcie_gen": "CurrPcieLinkGeneration(H)",
    "pcie_max_gen": "MaxPcieLinkGeneration(H)",
    "pcie_gpu_max_gen": "GpuMaxPcieLinkGeneration(H)",
    "pcie_width": "CurrPcieLinkWidth(H)",
    "pcie_max_width": "MaxPcieLinkWidth(H)",
    "pcie_replays": "PcieReplayCounter(H)",
    "ecc_mode": "EccMode(H)[0]",
    "ecc_mode_pending": "EccMode(H)[1]",
    "mig_mode_pending": "MigMode(H)[1]",
    "max_mig": "MaxMigDeviceCount(H)",
    "ecc_corrected": "TotalEccErrors(H, 0, 0)",
    "ecc_corrected_total": "TotalEccErrors(H, 0, 1)",
    "ecc_uncorrected": "TotalEccErrors(H, 1, 0)",
    "ecc_uncorrected_total": "MemoryErrorCounter(H, 1, 1, 2)",
    "remapped_corrected": "RemappedRows(H)[0]",
    "remapped_uncorrected": "RemappedRows(H)[1]",
    "remapped_pending": "RemappedRows(H)[2]",
    "remapped_failure": "RemappedRows(H)[3]",
    "remap_banks_max": "RowRemapperHistogram(H).max",
    "remap_banks_high": "RowRemapperHistogram(H).high",
    "remap_banks_partial": "RowRemapperHistogram(H).partial",
    "remap_banks_low": "RowRemapperHistogram(H).low",
    "remap_banks_none": "RowRemapperHistogram(H).none",
    "retired_pending": "RetiredPagesPendingStatus(H)",
    "numa_node": "NumaNodeId(H)",
    "event_types": "SupportedEventTypes(H)",
    "memory_total": "MemoryInfo(H, version=N.nvmlMemory_v2).total",
    "memory_reserved": "MemoryInfo(H, version=N.nvmlMemory_v2).reserved",
    "memory_used": "MemoryInfo(H, version=N.nvmlMemory_v2).used",
    "bar1_total": "BAR1MemoryInfo(H).bar1Total",
    "bar1_used": "BAR1MemoryInfo(H).bar1Used",
    "pci_device_id": "PciInfo(H).pciDeviceId",
    "pci_subsystem_id": "PciInfo(H).pciSubSystemId",
    "energy_mj": "TotalEnergyConsumption(H)",
    "sw_power_cap_ns": "ViolationStatus(H, 0).violationTime",
    "thermal_ns": "ViolationStatus(H, 1).violationTime",
    "sync_boost_ns": "ViolationStatus(H, 2).violationTime",
    "board_limit_ns": "ViolationStatus(H, 3).violationTime",
    "low_utilization_ns": "ViolationStatus(H, 4).violationTime",
    "reliability_ns": "ViolationStatus(H, 5).violationTime",
    "app_clocks_ns": "ViolationStatus(H, 10).violationTime",
    "base_clocks_ns": "ViolationStatus(H, 11).violationTime",
}
FIELDS = {  # an id, or an id with its scope
    1: "ecc_mode",
    2: "ecc_mode_pending",
    3: "ecc_corrected",
    4: "ecc_uncorrected",
    5: "ecc_corrected_total",
    6: "ecc_uncorrected_total",
    29: "retired_single",
    30: "retired_double",
    31: "retired_pending",
    74: "sw_power_cap_ns",
    75: "thermal_ns",
    76: "sync_boost_ns",
    77: "board_limit_ns",
    78: "low_utilization_ns",
    79: "reliability_ns",
    80: "app_clocks_ns",
    81: "base_clocks_ns",
    82: "memory_temperature",
    83: "energy_mj",
    91: "nvlink_count",
    94: "pcie_replays",
    95: "pcie_replay_rollovers",
    142: "remapped_corrected",
    143: "remapped_uncorrected",
    144: "remapped_pending",
    145: "remapped_failure",
    169: "pcie_l0_to_recovery",
    173: "pcie_correctable_errors",
    174: "pcie_naks_received",
    175: "pcie_receiver_errors",
    176: "pcie_bad_tlp",
    177: "pcie_naks_sent",
    178: "pcie_bad_dllp",
    179: "pcie_non_fatal_errors",
    180: "pcie_fatal_errors",
    181: "pcie_unsupported_requests",
    182: "pcie_lcrc_errors",
    183: "pcie_lane_errors",
    185: "power_average_mw",
    (185, 1): "power_average_module_mw",
    (185, 2): "power_average_memory_mw",
    186: "power_instant_mw",
    (186, 1): "power_instant_module_mw",
    (186, 2): "power_instant_memory_mw",
    187: "power_limit_min_mw",
    188: "power_limit_max_mw",
    189: "power_limit_default_mw",
    190: "power_limit_enforced_mw",
    191: "energy_mj",
    192: "power_limit_requested_mw",
    193: "shutdown_tlimit",
    194: "slowdown_tlimit",
    195: "memory_max_tlimit",
    196: "gpu_max_tlimit",
    197: "pcie_tx_bytes",
    198: "pcie_rx_bytes",
    230: "recovery_action",
    251: "sw_thermal_ns",
    252: "hw_thermal_ns",
    253: "hw_power_brake_ns",
    297: "mma_stall_percent",
    (161, 3): "nvlink.3.replay_errors",
    (162, 3): "nvlink.3.recovery_errors",
    (163, 3): "nvlink.3.crc_errors",
    (164, 3): "nvlink.3.speed",
    (165, 3): "nvlink.3.state",
    (213, 3): "nvlink.3.recovery_ok",
    (214, 3): "nvlink.3.recovery_failed",
    (215, 3): "nvlink.3.recovery_events",
    (204, 3): "nvlink.3.rx_bytes",
    (219, 3): "nvlink.3.effective_errors",
    (220, 3): "nvlink.3.effective_ber",
    (202, 3): "nvlink.3.tx_bytes",
    (221, 3): "nvlink.3.symbol_errors",
    (222, 3): "nvlink.3.symbol_ber",
}
TWINS = {  # older or newer names of the same
    "CurrentClocksThrottleReasons(H)": "event_reasons",
    "SupportedClocksThrottleReasons(H)": "event_reasons_supported",
    "Temperature(H, 0)": "temperature",
    "PowerState(H)": "pstate",
    "FanSpeed_v2(H, 1)": "fan_percent",
    "MemoryErrorCounter(H, 0, 0, 2)": "ecc_corrected",
}
SOURCES = Path(__file__).parent
SIGNED = {"shutdown_tlimit": -11, "slowdown_tlimit": -12, "memory_max_tlimit": -13, "gpu_max_tlimit": -14}
DISTINCT = {key: 1000 + at for at, key in enumerate(dict.fromkeys([*CALLS, *FIELDS.values()]))}
DISTINCT |= {**SIGNED, "power_mw": 0, "nvlink_count": 36}  # no power: the energy counter stands still
TEXTS = {
    "name": "Name(H)",
    "uuid": "UUID(H)",
    "serial": "Serial(H)",
    "board_part_number": "BoardPartNumber(H)",
    "vbios_version": "VbiosVersion(H)",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A program under a driver with a value of its own for every key of GPU 1; its counters stand still."""
    try:
        fake = Fake(tmp_path_factory.mktemp("driver"))
    except NoCompiler as why:
        pytest.skip(f"not covered: {why}")
    still = {key.replace("*", "1", 1): 0 for key in keys() if key.endswith("_per_s")}
    own = {**DISTINCT, **{key: f"{key} of GPU 1" for key in TEXTS}, "nvlink_rcv_xmit_bytes": 1}
    fake.update({**still, **{f"gpu.1.{key}": value for key, value in own.items()}})
    with Remote(fake) as told:
        yield told


def call(told, question: str, gpu: int = 1):
    return told("N.nvmlDeviceGet" + question.replace("(H", f"(gpu({gpu})"))


@pytest.mark.parametrize("key", CALLS)
def test_each_call_answers_with_its_own_key(told, key):
    assert call(told, CALLS[key]) == DISTINCT[key]


@pytest.mark.parametrize("name", TWINS)
def test_another_name_of_a_call_answers_the_same(told, name):
    assert call(told, name) == DISTINCT[TWINS[name]]


@pytest.mark.parametrize("key", TEXTS)
def test_each_text_is_its_own(told, key):
    assert call(told, TEXTS[key]) == f"{key} of GPU 1"
    assert call(told, TEXTS[key], gpu=2) != call(told, TEXTS[key], gpu=3) or key in ("name", "board_part_number")


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_each_field_answers_with_its_own_key(told, field):
    [[rc, _type, value]] = told(f"fields(1, {field})")
    assert (rc, value) == (0, DISTINCT[FIELDS[field]])


def test_the_default_server_is_eight_h100_and_no_two_fields_of_a_gpu_agree(told):
    assert told("N.nvmlDeviceGetCount()") == 8
    assert told("N.nvmlSystemGetDriverVersion()") == "580.65.06"
    assert told("N.nvmlSystemGetNVMLVersion()") == "13.580.65.06"
    assert told("N.nvmlSystemGetCudaDriverVersion()") == 13000
    assert call(told, "Name(H)", gpu=0) == "NVIDIA H100 80GB HBM3"
    assert call(told, "CudaComputeCapability(H)", gpu=0) == [9, 0]
    ids = [82, (185, 0), (186, 0), 187, 188, 189, 190, 192, 193, 194, 195, 196, 197, 198, *range(173, 184)]
    seen = [value for rc, _type, value in told(f"fields(0, {', '.join(map(str, ids))})") if rc == 0]
    assert len(seen) == len(ids)
    assert len(set(seen)) == len(ids) - 1  # the best T.Limit and fatal PCIe errors are both 0
    assert [told(f"fields(0, {field})[0][0]") for field in (29, 202, 213, 219, 297, (185, 1), 9999)] == [3] * 7


def test_what_takes_a_struct_or_gives_none(told):
    ext = "(lambda info: [N.nvmlDeviceGetPciInfoExt(gpu(2), ctypes.byref(info)), info.busId, info.bus])({})"
    assert told(ext.format("N.nvmlPciInfoExt_v1_t(version=N.nvmlPciInfoExt_v1)")) == [None, "00000000:1D:00.0", 0x1D]
    assert told(ext.format("N.nvmlPciInfoExt_v1_t(version=1)")) == Refused(25)
    assert [call(told, f"PcieThroughput(H, {way})", gpu=2) for way in (0, 1)] == [1_220_000, 3_420_000]
    assert call(told, "FanSpeed_v2(H, 0)", gpu=2) == Refused(2)
    assert call(told, "AccountingBufferSize(H)", gpu=2) == Refused(3)
    assert told("N.nvmlErrorString(15)") == "GPU is lost"


def test_every_key_is_read_and_no_other_can_be_set(fake):
    sources = "".join(path.read_text() for path in SOURCES.glob("*.c"))
    for key in keys():
        name = re.sub(r"^gpu\.\*\.((nvlink|mig)\.\*\.)?", "", key)
        parts = (name, name.removesuffix("_per_s"), re.sub(r"_(module|memory)_mw$|_mw$", "", name), "gpm.%u")
        assert any(f'"{part}' in sources for part in parts[: 4 if name.startswith("gpm.") else 3]), key
    for wrong in ("gpu.0.utl", "util", "gpu.0.gpus", "fail.power", "gpu.0.nvlink.0.nothing", "gpm.3"):
        with pytest.raises(KeyError):
            fake.set(wrong, 1)
