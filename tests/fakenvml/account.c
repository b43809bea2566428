/* What programs say themselves of their work on a GPU: a file they share, read whenever the driver is asked. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

enum { DEEP = 16384, MAX_ACCOUNTS = MAX_GPUS };

/* The layout is that of account.py. Times are of the wall clock; the end may lie ahead: what is queued is known. */
typedef struct {
    double start, end, busy_before, effort_before, effort;
    u64 pid;
} Work;

typedef struct {
    u64 pid, bytes; /* pid 0: a free place */
} Tenant;

typedef struct {
    u64 written; /* works so far; a work stands before it is counted */
    u64 unused;
    Tenant tenants[MAX_TENANTS];
    Work works[DEEP];
} Account;

static struct {
    char *path;
    const Account *account;
} opened[MAX_ACCOUNTS];

static const Account *account_at(const char *path)
{
    int at = 0;
    while (at < MAX_ACCOUNTS && opened[at].path && strcmp(opened[at].path, path) != 0)
        at++;
    if (at < MAX_ACCOUNTS && opened[at].path)
        return opened[at].account;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(Account), PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED || at == MAX_ACCOUNTS) {
        fprintf(stderr, "fake NVML: no account of work in \"%s\"\n", path);
        abort();
    }
    close(fd);
    opened[at].path = strdup(path);
    opened[at].account = map;
    return map;
}

static u64 oldest(u64 written)
{
    return written >= DEEP ? written - DEEP + 1 : 0; /* the place after the newest is being written */
}

/* How long there had been work until t, in seconds; the same times its effort. */
static double until(const Account *account, double t, bool effort)
{
    u64 high = __atomic_load_n(&account->written, __ATOMIC_ACQUIRE), low = oldest(high), first = low;
    while (low < high) {
        u64 middle = low + (high - low) / 2;
        if (account->works[middle % DEEP].start <= t)
            low = middle + 1;
        else
            high = middle;
    }
    const Work *w = &account->works[(low == first ? low : low - 1) % DEEP];
    if (low == first) /* nobody remembers what was before */
        return effort ? w->effort_before : w->busy_before;
    double here = fmin(t, w->end) - w->start;
    return effort ? w->effort_before + here * w->effort : w->busy_before + here;
}

/* The mean of a value "work", "effort" or "held" between two times; false: it is none of them. */
bool told(const char *value, double from, double to, double *out)
{
    double low, high;
    char kind[8] = "";
    int at = 0;
    if (*value < 'a') /* a number, as most are */
        return false;
    if (sscanf(value, "%7[a-z] %lf %lf %n", kind, &low, &high, &at) == 3 && at && value[at] &&
        (strcmp(kind, "work") == 0 || strcmp(kind, "effort") == 0)) {
        const Account *account = account_at(value + at);
        bool effort = kind[0] == 'e';
        double share = (until(account, to, effort) - until(account, from, effort)) / (to - from);
        *out = low + (high - low) * share;
        return true;
    }
    if (sscanf(value, "held %lf %n", &low, &at) == 1 && at && value[at]) {
        const Account *account = account_at(value + at);
        *out = low;
        for (int i = 0; i < MAX_TENANTS; i++)
            if (account->tenants[i].pid && !(kill((pid_t)account->tenants[i].pid, 0) != 0 && errno == ESRCH))
                *out += (double)account->tenants[i].bytes;
        return true;
    }
    return false;
}

/* The living programs that hold memory of a GPU, and how busy each kept it between two times; how many there are. */
size_t tenants(Dev dev, double from, double to, Process *out)
{
    const char *path = dev.mig == NONE ? key(dev, "tenants").text : NULL;
    size_t n = 0;
    if (path == NULL)
        return 0;
    const Account *account = account_at(path);
    u64 written = __atomic_load_n(&account->written, __ATOMIC_ACQUIRE);
    for (int i = 0; i < MAX_TENANTS; i++) {
        u64 pid = account->tenants[i].pid;
        if (pid == 0 || (kill((pid_t)pid, 0) != 0 && errno == ESRCH))
            continue;
        double busy = 0;
        for (u64 w = written; w > oldest(written) && account->works[(w - 1) % DEEP].end > from; w--) {
            const Work *work = &account->works[(w - 1) % DEEP];
            if (work->pid == pid)
                busy += fmax(0, fmin(to, work->end) - fmax(from, work->start));
        }
        int sm = to > from && busy > 0 ? (int)(busy / (to - from) * 100 + 0.5) : -1;
        out[n++] = (Process){.gpu = dev.gpu, .pid = (unsigned)pid, .gi = UINT32_MAX, .ci = UINT32_MAX,
                             .bytes = account->tenants[i].bytes, .type = 'c', .sm = sm, .mem = -1, .enc = -1, .dec = -1};
    }
    return n;
}
