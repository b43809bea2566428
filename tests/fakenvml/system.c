/* Init and shutdown, versions, and how a GPU is found: by index, UUID, serial or bus. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fake.h"

/* A handle is an address in here: one for each GPU and each of its MIG children. */
static char handles[MAX_GPUS][MAX_MIGS + 1];

Dev device_of(const void *handle)
{
    const char *at = handle;
    if (at < handles[0] || at >= handles[0] + sizeof handles)
        return (Dev){NONE, NONE};
    int offset = (int)(at - handles[0]), mig = offset % (MAX_MIGS + 1);
    return (Dev){offset / (MAX_MIGS + 1), mig ? mig - 1 : NONE};
}

void *handle_of(Dev dev)
{
    return &handles[dev.gpu][dev.mig == NONE ? 0 : dev.mig + 1];
}

/* The physical GPUs in the order of their indexes. */
static int order(int gpus[MAX_GPUS])
{
    const char *at = key((Dev){NONE, NONE}, "order").text;
    int n = 0, gpu, length, count = (int)global("gpus");
    for (; at && n < MAX_GPUS && sscanf(at, "%d%n", &gpu, &length) == 1; at += length)
        if (gpu >= 0 && gpu < MAX_GPUS)
            gpus[n++] = gpu;
    if (n == 0)
        for (; n < count && n < MAX_GPUS; n++)
            gpus[n] = n;
    return n;
}

int visible_count(void)
{
    int gpus[MAX_GPUS];
    return order(gpus);
}

static int index_of(int gpu)
{
    int gpus[MAX_GPUS], n = order(gpus);
    for (int i = 0; i < n; i++)
        if (gpus[i] == gpu)
            return i;
    return -1;
}

bool visible(int gpu)
{
    return index_of(gpu) >= 0;
}

static int init(void)
{
    users++;
    return OK;
}

EXPORT nvmlInit(void)
{
    GATE_(((Dev){NONE, NONE}), false);
    return init();
}

EXPORT nvmlInit_v2(void)
{
    GATE_(((Dev){NONE, NONE}), false);
    return init();
}

EXPORT nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    GATE_(((Dev){NONE, NONE}), false);
    return init();
}

EXPORT nvmlShutdown(void)
{
    SYSTEM_CALL();
    users--;
    return OK;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int rc)
{
    static const char *const WORDS[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset", "The operating system has blocked the request",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory", "No data",
        "The requested vgpu operation is not available on target device", "Insufficient Resources",
        "The requested functionality is not supported on this device", "Argument version mismatch", "Deprecated",
        "Not Ready", "GPU Not Found",
    };
    return rc >= 0 && rc < (int)(sizeof WORDS / sizeof *WORDS) ? WORDS[rc] : "Unknown Error";
}

/* What is 550 and 54 of a driver 550.54.15. */
void driver_release(int *branch, int *release)
{
    Dev none = {NONE, NONE};
    char version[96] = "";
    *branch = *release = 0;
    put_text(none, "driver_version", version, sizeof version);
    sscanf(version, "%d.%d", branch, release);
}

EXPORT nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    SYSTEM_CALL();
    return put_text(dev, "driver_version", out, size);
}

/* Answers before nvmlInit, so that a program can say which library does not fit the driver. */
EXPORT nvmlSystemGetNVMLVersion(char *out, unsigned size)
{
    GATE_(((Dev){NONE, NONE}), false);
    return put_text(dev, "nvml_version", out, size);
}

EXPORT nvmlSystemGetCudaDriverVersion(unsigned *out)
{
    SYSTEM_CALL();
    return put_uint(dev, "cuda_version", out);
}

EXPORT nvmlSystemGetCudaDriverVersion_v2(unsigned *out)
{
    SYSTEM_CALL();
    return put_uint(dev, "cuda_version", out);
}

EXPORT nvmlDeviceGetCount(unsigned *out)
{
    SYSTEM_CALL();
    *out = (unsigned)visible_count();
    return OK;
}

EXPORT nvmlDeviceGetCount_v2(unsigned *out)
{
    SYSTEM_CALL();
    *out = (unsigned)visible_count();
    return OK;
}

/* Which GPU a caller means; NONE when there is no such one. The rules of that GPU hold for the look-up too. */
typedef bool Fits(int gpu, const void *wanted);

static int search(Fits *fits, const void *wanted)
{
    int gpus[MAX_GPUS], found = NONE;
    pthread_mutex_lock(&lock);
    refresh();
    int n = order(gpus);
    for (int i = 0; i < n && found == NONE; i++)
        if (fits(gpus[i], wanted))
            found = gpus[i];
    pthread_mutex_unlock(&lock);
    return found;
}

static bool at_index(int gpu, const void *wanted)
{
    return index_of(gpu) == (int)*(const unsigned *)wanted;
}

static bool has_text(int gpu, const char *name, const char *wanted)
{
    char is[256];
    Dev dev = {gpu, NONE};
    return put_text(dev, name, is, sizeof is) == OK && strcmp(is, wanted) == 0;
}

static bool has_uuid(int gpu, const void *wanted)
{
    return has_text(gpu, "uuid", wanted);
}

static bool has_serial(int gpu, const void *wanted)
{
    return has_text(gpu, "serial", wanted);
}

static bool on_bus(int gpu, const void *wanted)
{
    char is[64];
    unsigned a[3], b[3];
    Dev dev = {gpu, NONE};
    return put_text(dev, "pci_bus_id", is, sizeof is) == OK && sscanf(is, "%x:%x:%x", a, a + 1, a + 2) == 3 &&
           sscanf(wanted, "%x:%x:%x", b, b + 1, b + 2) == 3 && memcmp(a, b, sizeof a) == 0;
}

#define LOOKUP(function, type, fits, wanted, missing) \
    EXPORT function(type sought, void **out)          \
    {                                                 \
        GPU_CALL(search(fits, wanted));               \
        if (dev.gpu == NONE)                          \
            return missing;                           \
        *out = handle_of(dev);                        \
        return OK;                                    \
    }

LOOKUP(nvmlDeviceGetHandleByIndex, unsigned, at_index, &sought, INVALID_ARGUMENT)
LOOKUP(nvmlDeviceGetHandleByIndex_v2, unsigned, at_index, &sought, INVALID_ARGUMENT)
LOOKUP(nvmlDeviceGetHandleByUUID, const char *, has_uuid, sought, NOT_FOUND)
LOOKUP(nvmlDeviceGetHandleBySerial, const char *, has_serial, sought, NOT_FOUND)
LOOKUP(nvmlDeviceGetHandleByPciBusId, const char *, on_bus, sought, NOT_FOUND)
LOOKUP(nvmlDeviceGetHandleByPciBusId_v2, const char *, on_bus, sought, NOT_FOUND)

EXPORT nvmlDeviceGetIndex(void *handle, unsigned *out)
{
    DEVICE_CALL(handle);
    *out = (unsigned)(dev.mig == NONE ? index_of(dev.gpu) : dev.mig);
    return OK;
}
