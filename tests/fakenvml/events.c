/* Event sets: an Xid line in the state with a sequence higher than the last delivered is one event. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { XID_EVENT = 8, MAX_SETS = 64 };

typedef struct {
    bool used;
    u64 types[MAX_GPUS]; /* what was registered */
    u64 seen[MAX_GPUS];  /* the last sequence delivered */
} EventSet;

static EventSet sets[MAX_SETS];

static EventSet *set_of(void *handle)
{
    EventSet *set = handle;
    return set >= sets && set < sets + MAX_SETS && set->used ? set : NULL;
}

/* The oldest Xid of a GPU that was not delivered. */
static const Xid *next(const EventSet *set, int gpu)
{
    const Xid *oldest = NULL;
    for (size_t i = 0; i < state.n_xids; i++) {
        const Xid *xid = &state.xids[i];
        if (xid->gpu == gpu && xid->sequence > set->seen[gpu] && (!oldest || xid->sequence < oldest->sequence))
            oldest = xid;
    }
    return oldest;
}

EXPORT nvmlEventSetCreate(void **out)
{
    SYSTEM_CALL();
    for (EventSet *set = sets; set < sets + MAX_SETS; set++)
        if (!set->used) {
            memset(set, 0, sizeof *set);
            set->used = true;
            *out = set;
            return OK;
        }
    return NO_MEMORY;
}

EXPORT nvmlEventSetFree(void *handle)
{
    SYSTEM_CALL();
    EventSet *set = set_of(handle);
    if (set == NULL)
        return INVALID_ARGUMENT;
    set->used = false;
    return OK;
}

EXPORT nvmlDeviceGetSupportedEventTypes(void *handle, u64 *types)
{
    DEVICE_CALL(handle);
    return put_u64(dev, "event_types", types);
}

/* Only what happens from now on is an event. */
EXPORT nvmlDeviceRegisterEvents(void *handle, u64 types, void *events)
{
    DEVICE_CALL(handle);
    EventSet *set = set_of(events);
    u64 supported;
    if (set == NULL)
        return INVALID_ARGUMENT;
    if (put_u64(dev, "event_types", &supported) != OK || (types & ~supported))
        return NOT_SUPPORTED;
    set->types[dev.gpu] = types;
    for (const Xid *xid; (xid = next(set, dev.gpu)) != NULL;)
        set->seen[dev.gpu] = xid->sequence;
    return OK;
}

static bool deliver(EventSet *set, EventData *out)
{
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        const Xid *xid = set->types[gpu] & XID_EVENT ? next(set, gpu) : NULL;
        if (xid == NULL)
            continue;
        set->seen[gpu] = xid->sequence;
        *out = (EventData){handle_of((Dev){gpu, NONE}), XID_EVENT, xid->code, UINT32_MAX, UINT32_MAX};
        return true;
    }
    return false;
}

EXPORT nvmlEventSetWait_v2(void *handle, EventData *out, unsigned timeout_ms)
{
    SYSTEM_CALL();
    double end = ticking_s() + timeout_ms / 1000.0;
    while (users > 0) {
        EventSet *set = set_of(handle);
        if (set == NULL)
            return INVALID_ARGUMENT;
        if (deliver(set, out))
            return OK;
        double left = end - ticking_s();
        if (left <= 0)
            return TIMEOUT;
        pthread_mutex_unlock(&lock);
        nap(left < 0.2 ? left : 0.2);
        pthread_mutex_lock(&lock);
        refresh();
    }
    return UNINITIALIZED;
}
