/* The driver's ring of time-stamped samples, and utilisation as the mean of its last window. */
#include <math.h>

#include "fake.h"

enum { DEPTH = 120 };

static const char *const NAMES[] = {
    "power_mw", "util", "mem_util", "encoder_util", "decoder_util", "sm_clock", "mem_clock",
    "power_average_module_mw", "jpeg_util", "ofa_util",
};

enum { KINDS = sizeof NAMES / sizeof *NAMES };

typedef struct {
    double until; /* the time of the newest sample; 0: nobody has asked yet */
    unsigned long written;
    Sample samples[DEPTH];
} Ring;

static Ring rings[MAX_GPUS][KINDS];

static unsigned depth(void)
{
    double d = global("sample_depth");
    return d < 1 ? 1 : d > DEPTH ? DEPTH : (unsigned)d;
}

/* Adds the samples that fell due since the last look; the first look finds a full ring. */
static void advance(Ring *ring, int gpu, int kind, double now)
{
    double hz = global("sample_hz"), v;
    Found value = key((Dev){gpu, NONE}, NAMES[kind]);
    if (hz <= 0)
        return;
    double last = floor(now * hz), first = floor(ring->until * hz + 0.5) + 1;
    if (first < last - depth() + 1)
        first = last - depth() + 1;
    for (double tick = first; tick <= last && mean(value, (tick - 1) / hz, tick / hz, &v); tick++)
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
    if (!of_parent(dev) || key(dev, NAMES[kind]).text == NULL)
        return NOT_SUPPORTED;
    *type = T_UINT;
    unsigned room = *n, found = 0;
    if (out == NULL) {
        *n = depth();
        return OK;
    }
    Ring *ring = &rings[dev.gpu][kind];
    advance(ring, dev.gpu, (int)kind, now_s());
    unsigned long have = ring->written < depth() ? ring->written : depth();
    for (unsigned long i = ring->written - have; i < ring->written && found < room; i++)
        if (ring->samples[i % DEPTH].time_us > after_us)
            out[found++] = ring->samples[i % DEPTH];
    *n = found;
    return found ? OK : NOT_FOUND;
}

/* The mean over the driver's window that ends now. */
static int windowed(Dev dev, const char *name, unsigned *out)
{
    double hz = global("sample_hz"), now = now_s(), v;
    if (!of_parent(dev) || !mean(key(dev, name), hz > 0 ? now - 1 / hz : now, now, &v))
        return NOT_SUPPORTED;
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
