/* The driver's ring of time-stamped samples, and utilisation as the mean of its last window. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fake.h"

enum { DEPTH = 120 };

static const char *const NAMES[] = {
    "power_mw", "util", "mem_util", "encoder_util", "decoder_util", "sm_clock", "mem_clock",
    "power_average_module_mw", "jpeg_util", "ofa_util",
};

enum { UTIL = 1, KINDS = sizeof NAMES / sizeof *NAMES };

typedef struct {
    double until; /* the time of the newest sample; 0: nobody has asked yet */
    unsigned long written;
    Sample samples[DEPTH];
} Ring;

static Ring rings[MAX_GPUS][KINDS];

/* How a buffer is kept; depth 0: its size can be asked for, what is in it can not. */
typedef struct {
    double hz;
    unsigned depth;
    bool when_busy, when_changed;
} Keeping;

static Keeping keeping(Dev dev, int kind)
{
    char name[32], when[16] = "";
    double hz = global("sample_hz"), depth = global("sample_depth");
    snprintf(name, sizeof name, "samples.%d", kind);
    const char *how = find(dev, name, NULL).text;
    if (how && strcmp(how, "empty") == 0)
        return (Keeping){.hz = hz};
    if (how)
        sscanf(how, "%lf %lf %15s", &hz, &depth, when);
    return (Keeping){hz, depth < 1 ? 1 : depth > DEPTH ? DEPTH : (unsigned)depth, strcmp(when, "busy") == 0,
                     strcmp(when, "changes") == 0};
}

static bool stored(const Keeping *how, const Ring *ring, Dev dev, double from, double to, double v)
{
    double busy;
    if (how->when_changed && ring->written && ring->samples[(ring->written - 1) % DEPTH].value.ull == to_uint(v))
        return false;
    return !how->when_busy || !mean(key(dev, "util"), from, to, &busy) || busy > 0;
}

/* Adds the samples that fell due since the last look; the first look finds a full ring. */
static void advance(Ring *ring, int gpu, int kind, double now)
{
    Dev dev = {gpu, NONE};
    Keeping how = keeping(dev, kind);
    double hz = how.hz, v;
    Found value = key(dev, NAMES[kind]);
    if (hz <= 0 || how.depth == 0)
        return;
    double last = floor(now * hz), first = floor(ring->until * hz + 0.5) + 1;
    if (first < last - how.depth + 1)
        first = last - how.depth + 1;
    for (double tick = first; tick <= last && mean(value, (tick - 1) / hz, tick / hz, &v); tick++)
        if (stored(&how, ring, dev, (tick - 1) / hz, tick / hz, v))
            ring->samples[ring->written++ % DEPTH] = (Sample){(u64)(tick / hz * 1e6), {.ull = to_uint(v)}};
    ring->until = last / hz;
}

void advance_samples(void)
{
    double now = now_s();
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        for (int kind = 0; kind < KINDS; kind++)
            if (rings[gpu][kind].until > 0)
                advance(&rings[gpu][kind], gpu, kind, now);
}

static bool of_parent(Dev dev)
{
    unsigned mig = 0;
    return dev.mig == NONE && (put_uint(dev, "mig_mode", &mig) != OK || mig == 0);
}

EXPORT nvmlDeviceGetSamples(void *handle, unsigned kind, u64 after_us, unsigned *type, unsigned *n, Sample *out)
{
    DEVICE_CALL(handle);
    if (kind >= KINDS)
        return INVALID_ARGUMENT;
    double v;
    Found value = key(dev, NAMES[kind]);
    if (!of_parent(dev) || !number(value, &v))
        return of_parent(dev) ? refusal(value) : NOT_SUPPORTED;
    *type = T_UINT;
    Keeping how = keeping(dev, (int)kind);
    unsigned room = *n, found = 0;
    if (out == NULL) {
        *n = how.depth ? how.depth : DEPTH;
        return OK;
    }
    if (how.depth == 0)
        return NOT_SUPPORTED;
    Ring *ring = &rings[dev.gpu][kind];
    advance(ring, dev.gpu, (int)kind, now_s());
    unsigned long have = ring->written < how.depth ? ring->written : how.depth;
    for (unsigned long i = ring->written - have; i < ring->written && found < room; i++)
        if (ring->samples[i % DEPTH].time_us > after_us)
            out[found++] = ring->samples[i % DEPTH];
    *n = found;
    return found ? OK : NOT_FOUND;
}

/* The mean over the driver's window that ends now: that of one sample of utilisation. */
static int windowed(Dev dev, const char *name, unsigned *out)
{
    double hz = keeping(dev, UTIL).hz, now = now_s(), v;
    if (!of_parent(dev))
        return NOT_SUPPORTED;
    Found found = key(dev, name);
    if (!mean(found, hz > 0 ? now - 1 / hz : now, now, &v))
        return refusal(found);
    *out = to_uint(v);
    return OK;
}

EXPORT nvmlDeviceGetUtilizationRates(void *handle, Utilization *out)
{
    DEVICE_CALL(handle);
    int rc = windowed(dev, "util", &out->gpu);
    return rc ? rc : windowed(dev, "mem_util", &out->memory);
}

#define ENGINE(function, name)                                      \
    EXPORT function(void *handle, unsigned *util, unsigned *period) \
    {                                                               \
        DEVICE_CALL(handle);                                        \
        *period = 167000;                                           \
        return windowed(dev, name, util);                           \
    }

ENGINE(nvmlDeviceGetEncoderUtilization, "encoder_util")
ENGINE(nvmlDeviceGetDecoderUtilization, "decoder_util")
ENGINE(nvmlDeviceGetJpgUtilization, "jpeg_util")
ENGINE(nvmlDeviceGetOfaUtilization, "ofa_util")
