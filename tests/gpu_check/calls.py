"""The calls gputop makes about one GPU through nvidia-ml-py, with its arguments, to be timed one by one."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from tests.gpu_check.driver import MEMORY_V2

SCOPES = tuple((number, scope) for number in (185, 186) for scope in (1, 2, 0))
SLOWED = (74, 75, 77, 76, 79, 78, 81)
STREAM = (186, 82, *SLOWED, (138, 0xFFFFFFFF), (139, 0xFFFFFFFF), 297)
HEALTH = (3, 4, 142, 143, 144, 145, 230, 31, 29, 30)
LIMITS = (187, 188, 189, 192, 190)
PCIE = (94, 95, 169, *range(173, 184))
NVLINKS = (165, 164, 161, 162, 163, 215, 214, 219, 220, 221, 222)
LINKS = tuple((number, link) for number in NVLINKS for link in range(18))


class Call(NamedTuple):
    """A call of nvidia-ml-py by name, its arguments after the handle, what tells it from others of that name."""

    name: str
    args: tuple[Any, ...] = ()
    about: str = ""

    @property
    def title(self) -> str:
        """The name as the report shows it."""
        return f"{self.name} {self.about}".rstrip()


_SELDOM = (  # every ten seconds, thirty, once
    Call("nvmlDeviceGetFieldValues", (list(SCOPES),), "power by scope"),
    Call("nvmlDeviceGetFieldValues", ([83],), "energy"),
    Call("nvmlDeviceGetClockInfo", (2,), "memory"),
    Call("nvmlDeviceGetClockInfo", (0,), "graphics"),
    Call("nvmlDeviceGetFanSpeed"),
    Call("nvmlDeviceGetMarginTemperature"),
    Call("nvmlDeviceGetEncoderUtilization"),
    Call("nvmlDeviceGetDecoderUtilization"),
    Call("nvmlDeviceGetCurrPcieLinkGeneration"),
    Call("nvmlDeviceGetCurrPcieLinkWidth"),
    Call("nvmlDeviceGetPcieReplayCounter"),
    Call("nvmlDeviceGetFieldValues", (list(PCIE),), "PCIe"),
    Call("nvmlDeviceGetFieldValues", (list(LINKS),), "NVLinks"),
    Call("nvmlDeviceGetFieldValues", (list(HEALTH),), "health"),
    Call("nvmlDeviceGetFieldValues", (list(LIMITS),), "limits"),
    Call("nvmlDeviceGetEnforcedPowerLimit"),
    *(Call(f"nvmlDeviceGet{mode}") for mode in ("PersistenceMode", "ComputeMode", "MigMode", "EccMode")),
    Call("nvmlDeviceGetVirtualizationMode"),
    Call("nvmlDeviceGetMaxPcieLinkGeneration"),
    Call("nvmlDeviceGetMaxPcieLinkWidth"),
    Call("nvmlDeviceGetGpuMaxPcieLinkGeneration"),
    Call("nvmlDeviceGetMaxClockInfo", (0,), "graphics"),
    Call("nvmlDeviceGetMaxCustomerBoostClock", (0,), "graphics"),
    Call("nvmlDeviceGetMaxClockInfo", (1,), "SM"),
    Call("nvmlDeviceGetMaxClockInfo", (2,), "memory"),
    Call("nvmlDeviceGetTemperatureThreshold", (1,), "slow-down"),
    Call("nvmlDeviceGetUUID"),
    Call("nvmlDeviceGetName"),
    Call("nvmlDeviceGetPciInfo"),
    Call("nvmlDeviceGetArchitecture"),
    Call("nvmlDeviceGetCudaComputeCapability"),
    Call("nvmlDeviceGetMaxMigDeviceCount"),
    Call("nvmlGpmQueryDeviceSupport"),
)


def calls(slowed: tuple[int, ...]) -> list[Call]:
    """By their cadence: each second, two, ten, thirty, once. `slowed`: this driver's counters of heat and brake."""
    now_us = int(time.time() * 1e6)
    return [
        Call("nvmlDeviceGetFieldValues", ([*STREAM, *slowed],), "each second"),
        Call("nvmlDeviceGetFieldValues", ([197, 198],), "PCIe bytes"),
        Call("nvmlDeviceGetSamples", (1, now_us - 1_000_000), "busy, 1 s"),
        Call("nvmlDeviceGetSamples", (1, 0), "busy, all"),
        Call("nvmlDeviceGetClockInfo", (1,), "SM"),
        Call("nvmlDeviceGetPowerUsage"),
        Call("nvmlDeviceGetUtilizationRates"),
        Call("nvmlDeviceGetMemoryInfo", (MEMORY_V2,)),
        Call("nvmlDeviceGetTemperatureV", (0,)),
        Call("nvmlDeviceGetTemperature", (0,)),
        Call("nvmlDeviceGetCurrentClocksEventReasons"),
        Call("nvmlDeviceGetComputeRunningProcesses"),
        Call("nvmlDeviceGetProcessUtilization", (now_us - 2_000_000,)),
        Call("nvmlDeviceGetGraphicsRunningProcesses"),
        Call("nvmlDeviceGetMPSComputeRunningProcesses"),
        Call("nvmlDeviceGetPerformanceState"),
        *(Call("nvmlDeviceGetSamples", (kind, now_us - 10_000_000), f"type {kind}, 10 s") for kind in (0, 2, 5, 6, 7)),
        *_SELDOM,
    ]
