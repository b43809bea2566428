/* Lists of processes on a GPU, in the three layouts the driver has had, and how busy each process is. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { MAX_STRIDE = 256 };

static bool listed(const Process *p, Dev dev, char type)
{
    unsigned gi, ci;
    if (p->gpu != dev.gpu || (type && p->type != type))
        return false;
    return dev.mig == NONE || (put_uint(dev, "gpu_instance_id", &gi) == OK && p->gi == gi &&
                               put_uint(dev, "compute_instance_id", &ci) == OK && p->ci == ci);
}

/* Writes one entry; a stride other than the layout's own is the fault of a driver newer than its reader. */
static void write_entry(char *at, size_t stride, const ProcessV2 *entry)
{
    unsigned char bytes[MAX_STRIDE] = {0}; /* the gap after the PID is zero too */
    memcpy(bytes, &entry->pid, sizeof entry->pid);
    memcpy(bytes + offsetof(ProcessV2, bytes), &entry->bytes, sizeof *entry - offsetof(ProcessV2, bytes));
    memcpy(at, bytes, stride);
}

/* Processes nobody knows: more at each call, until the rule's "times" are over. */
static unsigned growth(const char *function, int gpu)
{
    Rule *rule = match("grow", function, gpu, false);
    if (rule == NULL)
        return 0;
    long calls = ++rule->hits - rule->after;
    if (rule->times && calls > rule->times)
        calls = rule->times;
    return calls > 0 ? (unsigned)calls * (unsigned)rule->value : 0;
}

/* Those of the state and, behind them, those who say themselves that they are there. */
typedef struct {
    size_t count;
    Process guests[MAX_TENANTS];
} Everybody;

static void gather(Dev dev, double from, double to, Everybody *all)
{
    all->count = state.n_processes + tenants(dev, from, to, all->guests);
}

static const Process *nth(const Everybody *all, size_t i)
{
    return i < state.n_processes ? &state.processes[i] : &all->guests[i - state.n_processes];
}

static int list(Dev dev, const char *function, char type, size_t layout, unsigned *n, char *out)
{
    unsigned strangers = growth(function, dev.gpu);
    unsigned room = *n, have = strangers, at = 0, stride = (unsigned)layout;
    Everybody all;
    gather(dev, 0, 0, &all);
    for (size_t i = 0; i < all.count; i++)
        have += listed(nth(&all, i), dev, type);
    *n = have;
    if (have == 0)
        return OK;
    if (room < have || out == NULL)
        return INSUFFICIENT_SIZE;
    if (layout == sizeof(ProcessV2))
        put_uint((Dev){dev.gpu, NONE}, "process_stride", &stride);
    if (stride > MAX_STRIDE)
        stride = MAX_STRIDE;
    for (size_t i = 0; i < all.count + strangers; i++) {
        ProcessV2 entry = {(unsigned)(4194304 + i), 1048576, UINT32_MAX, UINT32_MAX};
        const Process *p = i < all.count ? nth(&all, i) : NULL;
        if (p && !listed(p, dev, type))
            continue;
        if (p)
            entry = (ProcessV2){p->pid, p->bytes, p->gi, p->ci};
        write_entry(out + (size_t)at * stride, stride, &entry);
        at++;
    }
    return OK;
}

#define LIST(function, type, layout)                           \
    EXPORT function(void *handle, unsigned *n, void *out)      \
    {                                                          \
        DEVICE_CALL(handle);                                   \
        return list(dev, __func__, type, sizeof(layout), n, out); \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, 'c', ProcessV1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, 'c', ProcessV2)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, 'c', ProcessV2)
LIST(nvmlDeviceGetGraphicsRunningProcesses, 'g', ProcessV1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, 'g', ProcessV2)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 'g', ProcessV2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, 'm', ProcessV1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, 'm', ProcessV2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 'm', ProcessV2)

static unsigned percent(int set)
{
    return set < 0 ? 0 : (unsigned)set;
}

static bool busy(const Process *p, Dev dev)
{
    return listed(p, dev, '\0') && (p->sm >= 0 || p->mem >= 0 || p->enc >= 0 || p->dec >= 0);
}

/* One record of each process that worked since the caller's last time stamp. */
EXPORT nvmlDeviceGetProcessUtilization(void *handle, ProcessSample *out, unsigned *n, u64 after_us)
{
    DEVICE_CALL(handle);
    unsigned room = *n, have = 0, mig = 0, at = 0;
    double hz = global("sample_hz");
    u64 newest = hz > 0 ? (u64)((double)(u64)(now_s() * hz) / hz * 1e6) : now_us();
    if (dev.mig != NONE || (put_uint(dev, "mig_mode", &mig) == OK && mig))
        return NOT_SUPPORTED;
    double to = (double)newest / 1e6, from = (double)after_us / 1e6;
    Everybody all;
    gather(dev, from > to - 1 ? from : to - 1, to, &all);
    for (size_t i = 0; i < all.count; i++)
        have += busy(nth(&all, i), dev);
    if (have == 0 || newest <= after_us)
        return NOT_FOUND;
    unsigned wanted = have;
    put_uint((Dev){NONE, NONE}, "process_samples", &wanted);
    *n = wanted > have ? wanted : have;
    if (room < *n || out == NULL)
        return INSUFFICIENT_SIZE;
    *n = have;
    for (size_t i = 0; i < all.count; i++) {
        const Process *p = nth(&all, i);
        if (busy(p, dev))
            out[at++] = (ProcessSample){p->pid, newest, percent(p->sm), percent(p->mem), percent(p->enc), percent(p->dec)};
    }
    return OK;
}
