/* What the parts of the fake driver share: the state, the gate every call passes, the answers. */
#ifndef FAKE_H
#define FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "nvml.h"

enum { MAX_GPUS = 64, MAX_MIGS = 8, MAX_LINKS = 36, MAX_TENANTS = 64 };
enum { EVERY = -1, NONE = -2 }; /* in place of a GPU: any of them; a call or line that names none */

typedef struct {
    int gpu, mig; /* mig is NONE for the GPU itself */
} Dev;

typedef struct {
    const char *text; /* NULL: unsupported */
    double step;      /* to add for this device */
    bool builtin;     /* from the table, so placeholders are filled in */
} Found;

typedef struct {
    int gpu;
    unsigned pid, gi, ci;
    u64 bytes;
    char type; /* c, g or m */
    int sm, mem, enc, dec;
} Process;

typedef struct {
    int gpu;
    unsigned code;
    u64 sequence;
} Xid;

typedef struct {
    int gpu, line;
    char *name, *value;
} Entry;

typedef struct {
    int gpu; /* NONE, EVERY or a GPU */
    const char *kind, *function;
    char *written; /* a rule that stays keeps its hits */
    double value;
    long after, times, hits;
} Rule;

typedef struct {
    char *text;
    Entry *entries;
    Process *processes;
    Xid *xids;
    Rule *rules;
    size_t n_entries, n_processes, n_xids, n_rules;
} State;

extern State state;          /* guarded by lock */
extern pthread_mutex_t lock; /* held while a call reads the state, never while it sleeps */
extern int users;            /* nvmlInit minus nvmlShutdown */

/* state.c */
void refresh(void);
double now_s(void);
double ticking_s(void);
u64 now_us(void);
void nap(double seconds);

/* parse.c */
State parse(char *text);
void discard(State *s);

/* values.c */
Found find(Dev dev, const char *name, const char *family);
Found key(Dev dev, const char *name);
double global(const char *name);
bool number(Found found, double *out);
int refusal(Found found);
bool mean(Found found, double from, double to, double *out);
int text(Dev dev, Found found, char *out, size_t size);
unsigned to_uint(double v);
u64 to_u64(double v);
int put_uint(Dev dev, const char *name, unsigned *out);
int put_u64(Dev dev, const char *name, u64 *out);
int put_text(Dev dev, const char *name, char *out, unsigned size);
bool listed_in(Dev dev, const char *name, unsigned wanted);
void driver_release(int *branch, int *release);

/* gate.c, counts.c, rules.c */
typedef struct Slot Slot;
int enter(const char *function, Slot **slot, Dev dev, bool needs_init);
void leave(bool *entered);
void spend(int gpu, double seconds);
void count(Slot **slot, const char *function, int gpu, int by);
Rule *match(const char *kind, const char *function, int gpu, bool hit);
void keep_hits(State *old, State *fresh);

/* system.c */
Dev device_of(const void *handle);
void *handle_of(Dev dev);
bool visible(int gpu);
int visible_count(void);

/* account.c */
bool told(const char *value, double from, double to, double *out);
size_t tenants(Dev dev, double from, double to, Process *out);

/* samples.c, counters.c */
void advance_samples(void);
void advance_counters(void);
int counter(Dev dev, const char *name, double *out);

#define EXPORT __attribute__((visibility("default"))) int

#define GATE_(where, needs_init)                                            \
    static Slot *slot_;                                                     \
    Dev dev = (where);                                                      \
    int entered_rc_ = enter(__func__, &slot_, dev, needs_init);             \
    if (entered_rc_ != OK)                                                  \
        return entered_rc_;                                                 \
    bool entered_ __attribute__((cleanup(leave), unused)) = true

/* a call on the whole driver, on a GPU known by number, on a handle; each holds the lock until it returns */
#define SYSTEM_CALL() GATE_(((Dev){NONE, NONE}), true)
#define GPU_CALL(gpu) GATE_(((Dev){(gpu), NONE}), true)
#define DEVICE_CALL(handle)         \
    GATE_(device_of(handle), true); \
    if (dev.gpu == NONE)            \
        return INVALID_ARGUMENT;    \
    if (!visible(dev.gpu))          \
    return GPU_IS_LOST

#endif
