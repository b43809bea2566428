/* What one GPU says of itself: identity, modes, memory, temperature, power, clocks, PCIe; mostly one key a call. */
#include <stdio.h>
#include <string.h>

#include "fake.h"

#define UINT(function, name)                   \
    EXPORT function(void *handle, unsigned *out) \
    {                                          \
        DEVICE_CALL(handle);                   \
        return put_uint(dev, name, out);       \
    }

#define TEXT(function, name)                                \
    EXPORT function(void *handle, char *out, unsigned size) \
    {                                                       \
        DEVICE_CALL(handle);                                \
        return put_text(dev, name, out, size);              \
    }

#define TWO(function, first, second)                                 \
    EXPORT function(void *handle, unsigned *one, unsigned *other)    \
    {                                                                \
        DEVICE_CALL(handle);                                         \
        int rc = put_uint(dev, first, one);                          \
        return rc ? rc : put_uint(dev, second, other);               \
    }

/* the second argument chooses the key; NULL in the table is a choice the driver refuses */
#define CHOICE(function, ...)                                                \
    EXPORT function(void *handle, unsigned which, unsigned *out)             \
    {                                                                        \
        static const char *const NAMES[] = {__VA_ARGS__};                    \
        DEVICE_CALL(handle);                                                 \
        if (which >= sizeof NAMES / sizeof *NAMES)                           \
            return INVALID_ARGUMENT;                                         \
        return NAMES[which] ? put_uint(dev, NAMES[which], out) : NOT_SUPPORTED; \
    }

#define UNSUPPORTED(function)          \
    EXPORT function(void *handle)      \
    {                                  \
        DEVICE_CALL(handle);           \
        return NOT_SUPPORTED;          \
    }

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part_number")
TEXT(nvmlDeviceGetVbiosVersion, "vbios_version")
UINT(nvmlDeviceGetMinorNumber, "minor_number")
UINT(nvmlDeviceGetBrand, "brand")
UINT(nvmlDeviceGetArchitecture, "architecture")
UINT(nvmlDeviceGetNumGpuCores, "cores")
UINT(nvmlDeviceGetMemoryBusWidth, "memory_bus_width")

UINT(nvmlDeviceGetPersistenceMode, "persistence_mode")
UINT(nvmlDeviceGetComputeMode, "compute_mode")
UINT(nvmlDeviceGetDisplayMode, "display_mode")
UINT(nvmlDeviceGetDisplayActive, "display_active")
UINT(nvmlDeviceGetAccountingMode, "accounting_mode")
TWO(nvmlDeviceGetEccMode, "ecc_mode", "ecc_mode_pending")
TWO(nvmlDeviceGetMigMode, "mig_mode", "mig_mode_pending")
UNSUPPORTED(nvmlDeviceGetDriverModel)
UNSUPPORTED(nvmlDeviceGetDriverModel_v2)
UNSUPPORTED(nvmlDeviceGetAccountingStats)
UNSUPPORTED(nvmlDeviceGetAccountingPids)
UNSUPPORTED(nvmlDeviceGetAccountingBufferSize)

UINT(nvmlDeviceGetNumFans, "fans")
UINT(nvmlDeviceGetFanSpeed, "fan_percent")
UINT(nvmlDeviceGetPowerUsage, "power_mw")
UINT(nvmlDeviceGetEnforcedPowerLimit, "power_limit_enforced_mw")
UINT(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
UINT(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default_mw")
TWO(nvmlDeviceGetPowerManagementLimitConstraints, "power_limit_min_mw", "power_limit_max_mw")
CHOICE(nvmlDeviceGetTemperature, "temperature", "memory_temperature")
CHOICE(nvmlDeviceGetTemperatureThreshold, "shutdown_temperature", "slowdown_temperature", "memory_max_temperature",
       "gpu_max_temperature", NULL, NULL, NULL, NULL)

CHOICE(nvmlDeviceGetClockInfo, "graphics_clock", "sm_clock", "mem_clock", "video_clock")
CHOICE(nvmlDeviceGetMaxClockInfo, "max_graphics_clock", "max_sm_clock", "max_mem_clock", "max_video_clock")
CHOICE(nvmlDeviceGetMaxCustomerBoostClock, "boost_graphics_clock", "boost_sm_clock", "boost_mem_clock", NULL)
CHOICE(nvmlDeviceGetApplicationsClock, "app_graphics_clock", NULL, "app_mem_clock", NULL)
UINT(nvmlDeviceGetPerformanceState, "pstate")
UINT(nvmlDeviceGetPowerState, "pstate")

UINT(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
UINT(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_max_gen")
UINT(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_gpu_max_gen")
UINT(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
UINT(nvmlDeviceGetMaxPcieLinkWidth, "pcie_max_width")
UINT(nvmlDeviceGetPcieReplayCounter, "pcie_replays")

#define MASK(function, name)                  \
    EXPORT function(void *handle, u64 *out)   \
    {                                         \
        DEVICE_CALL(handle);                  \
        return put_u64(dev, name, out);       \
    }

MASK(nvmlDeviceGetVirtualizationMode, "virtualization_mode")
MASK(nvmlDeviceGetCurrentClocksThrottleReasons, "event_reasons")
MASK(nvmlDeviceGetCurrentClocksEventReasons, "event_reasons")
MASK(nvmlDeviceGetSupportedClocksThrottleReasons, "event_reasons_supported")
MASK(nvmlDeviceGetSupportedClocksEventReasons, "event_reasons_supported")

EXPORT nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor)
{
    DEVICE_CALL(handle);
    const char *value = key(dev, "compute_capability").text;
    return value && sscanf(value, "%d.%d", major, minor) == 2 ? OK : NOT_SUPPORTED;
}

EXPORT nvmlDeviceGetPciInfo_v3(void *handle, PciInfo *out)
{
    DEVICE_CALL(handle);
    memset(out, 0, sizeof *out);
    put_uint(dev, "pci_device_id", &out->device_id);
    put_uint(dev, "pci_subsystem_id", &out->subsystem_id);
    int rc = put_text(dev, "pci_bus_id", out->bus_id, sizeof out->bus_id);
    if (rc == OK && sscanf(out->bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device) == 3)
        snprintf(out->legacy_bus_id, sizeof out->legacy_bus_id, "%04X:%02X:%02X.0", out->domain & 0xffff,
                 out->bus & 0xff, out->device & 0xff);
    return rc;
}

EXPORT nvmlDeviceGetPciInfoExt(void *handle, PciInfoExt *out)
{
    DEVICE_CALL(handle);
    if (out->version != VERSIONED(PciInfoExt, 1))
        return VERSION_MISMATCH;
    put_uint(dev, "pci_device_id", &out->device_id);
    put_uint(dev, "pci_subsystem_id", &out->subsystem_id);
    out->base_class = 3;
    out->sub_class = 2;
    int rc = put_text(dev, "pci_bus_id", out->bus_id, sizeof out->bus_id);
    if (rc == OK)
        sscanf(out->bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    return rc;
}

/* A value that is not available is all ones, and so is what is computed from it. */
static u64 minus(u64 total, u64 used)
{
    if (total == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    return used < total ? total - used : 0;
}

static int memory(Dev dev, MemoryV2 *out)
{
    int rc = put_u64(dev, "memory_total", &out->total);
    if (rc == OK)
        rc = put_u64(dev, "memory_used", &out->used);
    if (rc != OK || put_u64(dev, "memory_reserved", &out->reserved) != OK)
        out->reserved = 0;
    out->free = minus(minus(out->total, out->used), out->reserved);
    return rc;
}

/* The old call counts what the driver reserved as used. */
EXPORT nvmlDeviceGetMemoryInfo(void *handle, Memory *out)
{
    DEVICE_CALL(handle);
    MemoryV2 all = {0};
    int rc = memory(dev, &all);
    if (rc == OK)
        *out = (Memory){all.total, all.free, all.used == UINT64_MAX ? all.used : all.used + all.reserved};
    return rc;
}

EXPORT nvmlDeviceGetMemoryInfo_v2(void *handle, MemoryV2 *out)
{
    DEVICE_CALL(handle);
    return out->version == VERSIONED(MemoryV2, 2) ? memory(dev, out) : VERSION_MISMATCH;
}

EXPORT nvmlDeviceGetBAR1MemoryInfo(void *handle, Bar1 *out)
{
    DEVICE_CALL(handle);
    int rc = put_u64(dev, "bar1_total", &out->total);
    if (rc == OK)
        rc = put_u64(dev, "bar1_used", &out->used);
    out->free = minus(out->total, out->used);
    return rc;
}

EXPORT nvmlDeviceGetTemperatureV(void *handle, TemperatureV1 *out)
{
    DEVICE_CALL(handle);
    if (out->version != VERSIONED(TemperatureV1, 1))
        return VERSION_MISMATCH;
    return out->sensor == 0 ? put_uint(dev, "temperature", (unsigned *)&out->celsius) : INVALID_ARGUMENT;
}

EXPORT nvmlDeviceGetMarginTemperature(void *handle, MarginV1 *out)
{
    DEVICE_CALL(handle);
    if (out->version != VERSIONED(MarginV1, 1))
        return VERSION_MISMATCH;
    return put_uint(dev, "margin_temperature", (unsigned *)&out->celsius);
}

EXPORT nvmlDeviceGetFanSpeed_v2(void *handle, unsigned fan, unsigned *out)
{
    DEVICE_CALL(handle);
    unsigned fans = 0;
    put_uint(dev, "fans", &fans);
    return fan < fans ? put_uint(dev, "fan_percent", out) : INVALID_ARGUMENT;
}

EXPORT nvmlDeviceGetFanSpeedRPM(void *handle, FanSpeedV1 *out)
{
    DEVICE_CALL(handle);
    return out->version == VERSIONED(FanSpeedV1, 1) ? put_uint(dev, "fan_rpm", &out->rpm) : VERSION_MISMATCH;
}

/* KB/s, measured over a time in which the caller waits. */
EXPORT nvmlDeviceGetPcieThroughput(void *handle, unsigned which, unsigned *out)
{
    DEVICE_CALL(handle);
    double rate;
    if (which > 1)
        return INVALID_ARGUMENT;
    Found found = key(dev, which ? "pcie_rx_bytes_per_s" : "pcie_tx_bytes_per_s");
    if (!number(found, &rate))
        return refusal(found);
    spend(dev.gpu, global("pcie_throughput_us") / 1e6);
    *out = to_uint(rate / 1000);
    return OK;
}
