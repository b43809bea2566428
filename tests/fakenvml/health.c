/* Errors a GPU has counted, and where it sits in the machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

/* error type 0 corrected, 1 uncorrected; counter 0 volatile, 1 aggregate */
static int ecc(Dev dev, unsigned type, unsigned counter, u64 *out)
{
    static const char *const NAMES[2][2] = {
        {"ecc_corrected", "ecc_corrected_total"},
        {"ecc_uncorrected", "ecc_uncorrected_total"},
    };
    return type < 2 && counter < 2 ? put_u64(dev, NAMES[type][counter], out) : INVALID_ARGUMENT;
}

EXPORT nvmlDeviceGetTotalEccErrors(void *handle, unsigned type, unsigned counter, u64 *out)
{
    DEVICE_CALL(handle);
    return ecc(dev, type, counter, out);
}

/* All of them happened in the GPU's own memory (location 2). */
EXPORT nvmlDeviceGetMemoryErrorCounter(void *handle, unsigned type, unsigned counter, unsigned location, u64 *out)
{
    DEVICE_CALL(handle);
    int rc = ecc(dev, type, counter, out);
    if (rc == OK && location != 2)
        *out = 0;
    return location < 8 ? rc : INVALID_ARGUMENT;
}

EXPORT nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                 unsigned *failure)
{
    DEVICE_CALL(handle);
    int rc = put_uint(dev, "remapped_corrected", corrected);
    if (rc == OK)
        rc = put_uint(dev, "remapped_uncorrected", uncorrected);
    if (rc == OK)
        rc = put_uint(dev, "remapped_pending", pending);
    return rc ? rc : put_uint(dev, "remapped_failure", failure);
}

EXPORT nvmlDeviceGetRowRemapperHistogram(void *handle, Histogram *out)
{
    DEVICE_CALL(handle);
    int rc = put_uint(dev, "remap_banks_max", &out->max);
    if (rc == OK)
        rc = put_uint(dev, "remap_banks_high", &out->high);
    if (rc == OK)
        rc = put_uint(dev, "remap_banks_partial", &out->partial);
    if (rc == OK)
        rc = put_uint(dev, "remap_banks_low", &out->low);
    return rc ? rc : put_uint(dev, "remap_banks_none", &out->none);
}

/* Cause 0 single-bit errors, 1 double-bit; the pages' addresses are made up. */
static int retired(Dev dev, unsigned cause, unsigned *n, u64 *pages, u64 *times)
{
    unsigned have, room = *n;
    if (cause > 1)
        return INVALID_ARGUMENT;
    int rc = put_uint(dev, cause ? "retired_double" : "retired_single", &have);
    if (rc != OK)
        return rc;
    *n = have;
    if (have > room || (have && pages == NULL))
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < have; i++) {
        pages[i] = 0x1000000 * (cause + 1) + 0x1000 * i;
        if (times)
            times[i] = 1700000000 + i;
    }
    return OK;
}

EXPORT nvmlDeviceGetRetiredPages(void *handle, unsigned cause, unsigned *n, u64 *pages)
{
    DEVICE_CALL(handle);
    return retired(dev, cause, n, pages, NULL);
}

EXPORT nvmlDeviceGetRetiredPages_v2(void *handle, unsigned cause, unsigned *n, u64 *pages, u64 *times)
{
    DEVICE_CALL(handle);
    return retired(dev, cause, n, pages, times);
}

EXPORT nvmlDeviceGetRetiredPagesPendingStatus(void *handle, unsigned *out)
{
    DEVICE_CALL(handle);
    return put_uint(dev, "retired_pending", out);
}

static int between(Dev dev, Dev other, const char *what, unsigned missing, unsigned *out)
{
    char name[32];
    double v = missing;
    if (other.gpu == NONE)
        return INVALID_ARGUMENT;
    snprintf(name, sizeof name, "%s.%d", what, other.gpu);
    number(find(dev, name, NULL), &v);
    *out = to_uint(v);
    return OK;
}

EXPORT nvmlDeviceGetTopologyCommonAncestor(void *handle, void *peer, unsigned *level)
{
    DEVICE_CALL(handle);
    Dev other = device_of(peer);
    unsigned usual = other.gpu == dev.gpu ? 0 : other.gpu / 4 == dev.gpu / 4 ? 40 : 50;
    return between(dev, other, "topology", usual, level);
}

EXPORT nvmlDeviceGetP2PStatus(void *handle, void *peer, unsigned capability, unsigned *status)
{
    DEVICE_CALL(handle);
    return capability < 6 ? between(dev, device_of(peer), "p2p", 0, status) : INVALID_ARGUMENT;
}

/* A list such as "0-3,8" as a bit mask of 64-bit words. */
static int put_list(Dev dev, const char *name, unsigned words, u64 *mask)
{
    char list[256];
    int rc = text(dev, key(dev, name), list, sizeof list);
    if (rc != OK)
        return rc;
    memset(mask, 0, words * sizeof *mask);
    for (char *at = list; *at; at += *at == ',') {
        char *rest;
        unsigned long first = strtoul(at, &rest, 10), last = *rest == '-' ? strtoul(rest + 1, &rest, 10) : first;
        if (rest == at)
            return INVALID_ARGUMENT;
        for (unsigned long bit = first; bit <= last && bit < words * 64UL; bit++)
            mask[bit / 64] |= 1ULL << bit % 64;
        at = rest;
    }
    return OK;
}

EXPORT nvmlDeviceGetCpuAffinity(void *handle, unsigned words, u64 *mask)
{
    DEVICE_CALL(handle);
    return put_list(dev, "cpus", words, mask);
}

EXPORT nvmlDeviceGetCpuAffinityWithinScope(void *handle, unsigned words, u64 *mask, unsigned scope)
{
    DEVICE_CALL(handle);
    return scope < 2 ? put_list(dev, "cpus", words, mask) : INVALID_ARGUMENT;
}

EXPORT nvmlDeviceGetMemoryAffinity(void *handle, unsigned words, u64 *mask, unsigned scope)
{
    DEVICE_CALL(handle);
    return scope < 2 ? put_list(dev, "memory_nodes", words, mask) : INVALID_ARGUMENT;
}

EXPORT nvmlDeviceGetNumaNodeId(void *handle, int *node)
{
    DEVICE_CALL(handle);
    return put_uint(dev, "numa_node", (unsigned *)node);
}
