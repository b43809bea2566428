/* Counters the clock moves: energy, bytes, time throttled; each starts at its key and grows at its rate. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static const char *const NAMES[] = {
    "energy_mj",      "pcie_tx_bytes",  "pcie_rx_bytes", "sw_power_cap_ns", "thermal_ns",
    "sync_boost_ns",  "board_limit_ns", "low_utilization_ns", "reliability_ns", "app_clocks_ns",
    "base_clocks_ns", "sw_thermal_ns",  "hw_thermal_ns", "hw_power_brake_ns",
};

enum { PLAIN = sizeof NAMES / sizeof *NAMES, COUNTERS = PLAIN + 2 * MAX_LINKS };

typedef struct {
    double since, grown; /* since 0: not read yet */
} Counter;

static Counter counters[MAX_GPUS][COUNTERS];

/* Which counter a name is: the table's, then each link's TX and RX; -1 for a value that stands still. */
static int place(const char *name)
{
    if (strncmp(name, "nvlink.", 7) != 0) {
        for (int i = 0; i < PLAIN; i++)
            if (strcmp(NAMES[i], name) == 0)
                return i;
        return -1;
    }
    char *way;
    long link = strtol(name + 7, &way, 10);
    if (link < 0 || link >= MAX_LINKS || (strcmp(way, ".tx_bytes") != 0 && strcmp(way, ".rx_bytes") != 0))
        return -1;
    return PLAIN + 2 * (int)link + (way[1] == 'r');
}

static Found rate_of(Dev dev, int at)
{
    char name[48], family[48];
    if (at >= PLAIN) {
        const char *way = (at - PLAIN) % 2 ? "rx" : "tx";
        snprintf(name, sizeof name, "nvlink.%d.%s_bytes_per_s", (at - PLAIN) / 2, way);
        snprintf(family, sizeof family, "nvlink.*.%s_bytes_per_s", way);
        return find(dev, name, family);
    }
    snprintf(name, sizeof name, "%s_per_s", NAMES[at]);
    return at == 0 ? key(dev, "power_mw") : key(dev, name);
}

static double grow(Dev dev, int at)
{
    Counter *c = &counters[dev.gpu][at];
    double ticking = ticking_s(), wall = now_s(), passed = c->since > 0 ? ticking - c->since : 0, rate;
    if (passed > 0 && mean(rate_of(dev, at), wall - passed, wall, &rate))
        c->grown += rate * passed;
    c->since = ticking;
    return c->grown;
}

void advance_counters(void)
{
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        for (int at = 0; at < COUNTERS; at++)
            if (counters[gpu][at].since > 0)
                grow((Dev){gpu, NONE}, at);
}

/* A key's value now, whether a counter or not. */
int counter(Dev dev, const char *name, double *out)
{
    const char *family = strncmp(name, "nvlink.", 7) ? NULL : strchr(name + 7, '.');
    char every[48];
    if (family)
        snprintf(every, sizeof every, "nvlink.*%s", family);
    Found found = family ? find(dev, name, every) : key(dev, name);
    if (!number(found, out))
        return refusal(found);
    int at = dev.mig == NONE ? place(name) : -1;
    if (at >= 0)
        *out += grow(dev, at);
    return OK;
}

EXPORT nvmlDeviceGetTotalEnergyConsumption(void *handle, u64 *out)
{
    DEVICE_CALL(handle);
    double mj;
    int rc = counter(dev, "energy_mj", &mj);
    if (rc == OK)
        *out = to_u64(mj);
    return rc;
}

EXPORT nvmlDeviceGetViolationStatus(void *handle, unsigned policy, Violation *out)
{
    static const char *const POLICIES[] = {
        "sw_power_cap_ns", "thermal_ns", "sync_boost_ns", "board_limit_ns", "low_utilization_ns", "reliability_ns",
        NULL, NULL, NULL, NULL, "app_clocks_ns", "base_clocks_ns",
    };
    DEVICE_CALL(handle);
    double ns;
    if (policy >= sizeof POLICIES / sizeof *POLICIES || POLICIES[policy] == NULL)
        return INVALID_ARGUMENT;
    int rc = counter(dev, POLICIES[policy], &ns);
    if (rc == OK)
        *out = (Violation){now_us(), to_u64(ns)};
    return rc;
}
