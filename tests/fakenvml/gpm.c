/* GPM: two samples taken at two times, and the mean of each metric between them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

typedef struct {
    Dev dev;
    double at; /* 0: allocated, never taken */
    double counted; /* when the counters in it were read: an H200 reads them anew after a tenth of a second */
} GpmSample;

enum { DRAM = 10 };

static bool supported(Dev dev)
{
    unsigned yes = 0;
    return put_uint(dev, "gpm_supported", &yes) == OK && yes;
}

EXPORT nvmlGpmQueryDeviceSupport(void *handle, GpmSupport *out)
{
    DEVICE_CALL(handle);
    if (out->version != 1)
        return VERSION_MISMATCH;
    if (dev.mig != NONE) /* as before 595 */
        return INVALID_ARGUMENT;
    out->supported = supported(dev);
    return OK;
}

EXPORT nvmlGpmSampleAlloc(void **out)
{
    SYSTEM_CALL();
    *out = calloc(1, sizeof(GpmSample));
    return *out ? OK : NO_MEMORY;
}

EXPORT nvmlGpmSampleFree(void *sample)
{
    SYSTEM_CALL();
    free(sample);
    return OK;
}

static int take(Dev dev, GpmSample *sample)
{
    if (sample == NULL)
        return INVALID_ARGUMENT;
    if (!supported(dev))
        return NOT_SUPPORTED;
    static double counted[MAX_GPUS][MAX_MIGS + 1];
    double at = now_s(), every_s = 0, *last = &counted[dev.gpu][dev.mig == NONE ? MAX_MIGS : dev.mig];
    number(find((Dev){dev.gpu, NONE}, "gpm_counted_s", NULL), &every_s);
    if (at - *last >= every_s)
        *last = at;
    *sample = (GpmSample){dev, at, *last};
    return OK;
}

EXPORT nvmlGpmSampleGet(void *handle, void *sample)
{
    DEVICE_CALL(handle);
    return take(dev, sample);
}

EXPORT nvmlGpmMigSampleGet(void *handle, unsigned gpu_instance, void *sample)
{
    DEVICE_CALL(handle);
    unsigned count = 0, id;
    put_uint(dev, "mig_count", &count);
    for (unsigned i = 0; i < count && i < MAX_MIGS; i++) {
        Dev child = {dev.gpu, (int)i};
        if (put_uint(child, "gpu_instance_id", &id) == OK && id == gpu_instance)
            return take(child, sample);
    }
    return INVALID_ARGUMENT;
}

static void answer(GpmMetric *metric, const GpmSample *first, const GpmSample *second)
{
    char own[32], family[32];
    Dev dev = second->dev;
    snprintf(own, sizeof own, "gpm.%u", metric->id);
    if (dev.mig != NONE) {
        snprintf(own, sizeof own, "mig.%d.gpm.%u", dev.mig, metric->id);
        snprintf(family, sizeof family, "mig.*.gpm.%u", metric->id);
    }
    Found found = find(dev, own, dev.mig == NONE ? NULL : family);
    metric->short_name = metric->long_name = metric->unit = "";
    metric->value = 0;
    metric->rc = mean(found, first->counted, second->counted, &metric->value) ? OK : refusal(found);
    if (metric->rc == OK && second->counted <= first->counted) /* nothing was counted between the two */
        metric->value = metric->id == DRAM ? NAN : 0;
}

/* Whether this driver has never heard of a metric. */
static bool unknown(Dev dev, unsigned id)
{
    unsigned below;
    return put_uint((Dev){dev.gpu, NONE}, "gpm_known_below", &below) == OK && id >= below;
}

EXPORT nvmlGpmMetricsGet(GpmRequest *request)
{
    SYSTEM_CALL();
    if (request->version != 1)
        return VERSION_MISMATCH;
    const GpmSample *first = request->first, *second = request->second;
    if (first == NULL || second == NULL || first->at <= 0 || second->at <= first->at ||
        memcmp(&first->dev, &second->dev, sizeof first->dev) != 0)
        return INVALID_ARGUMENT;
    Dev whole = {second->dev.gpu, NONE};
    unsigned code = OK;
    put_uint(whole, "gpm_refuses_all", &code);
    for (unsigned i = 0; code != OK && i < request->count; i++)
        if (unknown(whole, request->metrics[i].id))
            return (int)code;
    for (unsigned i = 0; i < request->count; i++) {
        GpmMetric *metric = &request->metrics[i];
        if (unknown(whole, metric->id))
            metric->rc = INVALID_ARGUMENT;
        else if (!listed_in(whole, "gpm_untouched", metric->id))
            answer(metric, first, second);
    }
    return OK;
}
