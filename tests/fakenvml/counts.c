/* Calls counted by function and GPU, in a file other processes can read while this one runs.
 *
 * FAKE_NVML_COUNTERS names the file: SLOTS records of a name (64 bytes), a ready flag, the total, and one count a GPU.
 * "hanging" is no function: it is how many calls a rule holds at this moment (a process killed while it is held leaves
 * its one). "spent_us" is none either: the time that calls took by rules, in microseconds. Processes that share a file
 * add up.
 */
#include "fake.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOTS = 256, EMPTY = 0, CLAIMED = 1, READY = 2 };

struct Slot {
    char name[64];
    _Atomic u64 ready;
    _Atomic u64 total;
    _Atomic u64 gpu[MAX_GPUS];
};

static Slot *shared(void)
{
    const char *path = getenv("FAKE_NVML_COUNTERS");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    void *map = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, SLOTS * sizeof(Slot)) == 0)
        map = mmap(NULL, SLOTS * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    static Slot own[SLOTS];
    return map == MAP_FAILED ? own : map;
}

/* The record of a name; claimed by the first process that needs it. */
static Slot *record(const char *name)
{
    static Slot *slots;
    if (slots == NULL)
        slots = shared();
    for (Slot *slot = slots; slot < slots + SLOTS; slot++) {
        u64 empty = EMPTY;
        if (atomic_compare_exchange_strong(&slot->ready, &empty, CLAIMED)) {
            strncpy(slot->name, name, sizeof slot->name - 1);
            atomic_store(&slot->ready, READY);
        }
        while (atomic_load(&slot->ready) != READY)
            nap(0.0001);
        if (strcmp(slot->name, name) == 0)
            return slot;
    }
    abort();
}

void count(Slot **slot, const char *function, int gpu, int by)
{
    if (*slot == NULL)
        *slot = record(function);
    atomic_fetch_add(&(*slot)->total, (u64)(int64_t)by);
    if (gpu >= 0)
        atomic_fetch_add(&(*slot)->gpu[gpu], (u64)(int64_t)by);
}
