/* The driver's ABI: the types and numbers of NVIDIA's public NVML API that this library answers with. */
#ifndef NVML_H
#define NVML_H

#include <stdint.h>

typedef uint64_t u64;

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    NO_MEMORY = 20,
    NO_DATA = 21,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

enum { T_DOUBLE = 0, T_UINT = 1, T_ULONG = 2, T_ULL = 3, T_SLL = 4, T_INT = 5 };

/* a struct's version constant: its size and a version number */
#define VERSIONED(type, n) ((unsigned)sizeof(type) | (n) << 24)

typedef union {
    double real;
    unsigned uint;
    unsigned long ulong;
    u64 ull;
    long long sll;
    int sint;
} Value;

typedef struct {
    u64 total, free, used;
} Memory;

typedef struct {
    unsigned version;
    u64 total, reserved, free, used;
} MemoryV2;

typedef struct {
    u64 total, free, used;
} Bar1;

typedef struct {
    unsigned gpu, memory;
} Utilization;

typedef struct {
    u64 time_us;
    Value value;
} Sample;

typedef struct {
    u64 reference_us, violation_ns;
} Violation;

typedef struct {
    uint32_t id, scope;
    int64_t time_us, latency_us;
    unsigned type;
    int rc;
    Value value;
} FieldValue;

typedef struct {
    unsigned pid;
    u64 bytes;
} ProcessV1;

typedef struct {
    unsigned pid;
    u64 bytes;
    unsigned gpu_instance, compute_instance;
} ProcessV2;

typedef struct {
    unsigned pid;
    u64 time_us;
    unsigned sm, mem, enc, dec;
} ProcessSample;

typedef struct {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo;

typedef struct {
    unsigned version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
    char bus_id[32];
} PciInfoExt;

typedef struct {
    unsigned version, sensor;
    int celsius;
} TemperatureV1;

typedef struct {
    unsigned version;
    int celsius;
} MarginV1;

typedef struct {
    unsigned version, fan, rpm;
} FanSpeedV1;

typedef struct {
    unsigned max, high, partial, low, none;
} Histogram;

typedef struct {
    unsigned sms, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    u64 memory_mib;
} Attributes;

typedef struct {
    void *device;
    u64 type, data;
    unsigned gpu_instance, compute_instance;
} EventData;

typedef struct {
    unsigned version, supported;
} GpmSupport;

typedef struct {
    unsigned id;
    int rc;
    double value;
    const char *short_name, *long_name, *unit;
} GpmMetric;

typedef struct {
    unsigned version, count;
    void *first, *second;
    GpmMetric metrics[];
} GpmRequest;

#endif
