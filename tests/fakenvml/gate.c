/* The gate every call passes: it is counted, then suffers what the state's rules say, then may read the state. */
#include "fake.h"

#include <signal.h>
#include <string.h>
#include <time.h>

typedef struct {
    double delay_s, burn_s, hang_s;
    bool crash;
    int rc;
} Fate;

static bool starts_like(const char *pattern, const char *function)
{
    size_t length = strlen(pattern);
    if (length && pattern[length - 1] == '*')
        return strncmp(pattern, function, length - 1) == 0;
    return strcmp(pattern, function) == 0;
}

/* The rule of a kind that decides for a call: the last that matches and is neither early nor used up. */
Rule *match(const char *kind, const char *function, int gpu, bool hit)
{
    for (size_t i = state.n_rules; i-- > 0;) {
        Rule *rule = &state.rules[i];
        bool here = rule->gpu == NONE || rule->gpu == gpu || (rule->gpu == EVERY && gpu >= 0);
        if (!here || strcmp(rule->kind, kind) != 0 || !starts_like(rule->function, function))
            continue;
        if (!hit)
            return rule;
        rule->hits++;
        if (rule->hits > rule->after && (rule->times == 0 || rule->hits <= rule->after + rule->times))
            return rule;
    }
    return NULL;
}

/* Rules that stand in both states go on counting. */
void keep_hits(State *old, State *fresh)
{
    for (size_t i = 0; i < fresh->n_rules; i++)
        for (size_t j = 0; j < old->n_rules; j++)
            if (fresh->rules[i].gpu == old->rules[j].gpu &&
                strcmp(fresh->rules[i].written, old->rules[j].written) == 0)
                fresh->rules[i].hits = old->rules[j].hits;
}

static double amount(const char *kind, const char *function, int gpu)
{
    Rule *rule = match(kind, function, gpu, true);
    return rule ? rule->value : 0;
}

static Fate fate(const char *function, int gpu)
{
    if (state.n_rules == 0)
        return (Fate){0};
    return (Fate){
        .delay_s = amount("delay_us", function, gpu) / 1e6,
        .burn_s = amount("burn_us", function, gpu) / 1e6,
        .hang_s = amount("hang", function, gpu),
        .crash = amount("crash", function, gpu) != 0,
        .rc = (int)amount("fail", function, gpu),
    };
}

static void burn(double seconds)
{
    struct timespec start, at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    while ((double)(at.tv_sec - start.tv_sec) + (double)(at.tv_nsec - start.tv_nsec) / 1e9 < seconds);
}

/* Holds the caller until the time is over or no rule hangs this call any more. */
static void hang(const char *function, int gpu, double seconds)
{
    static Slot *hanging;
    double end = ticking_s() + seconds;
    bool held = true;
    pthread_mutex_lock(&lock);
    count(&hanging, "hanging", gpu, 1);
    while (held && ticking_s() < end) {
        pthread_mutex_unlock(&lock);
        nap(0.01);
        pthread_mutex_lock(&lock);
        refresh();
        held = match("hang", function, gpu, false) != NULL;
    }
    count(&hanging, "hanging", gpu, -1);
    pthread_mutex_unlock(&lock);
}

/* The lock that a real driver holds during a call, whatever GPU it is about: who comes meanwhile waits. */
static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static __thread bool holds_driver;

static void hold_driver(void)
{
    pthread_mutex_lock(&driver);
    holds_driver = true;
}

static void let_go_of_driver(void)
{
    if (holds_driver)
        pthread_mutex_unlock(&driver);
    holds_driver = false;
}

/* Accounts the time that a call takes by a rule, with the lock held. */
static void account_time(int gpu, double seconds)
{
    static Slot *spent;
    count(&spent, "spent_us", gpu, (int)(seconds * 1e6 + 0.5));
}

/* Takes so long inside a call; the state may change meanwhile. */
void spend(int gpu, double seconds)
{
    if (seconds <= 0)
        return;
    account_time(gpu, seconds);
    pthread_mutex_unlock(&lock);
    nap(seconds);
    pthread_mutex_lock(&lock);
    refresh();
}

/* Returns OK with the lock held, or the error the call must return, without. */
int enter(const char *function, Slot **slot, Dev dev, bool needs_init)
{
    pthread_mutex_lock(&lock);
    refresh();
    count(slot, function, dev.gpu, 1);
    Fate it = fate(function, dev.gpu);
    if (it.delay_s + it.burn_s > 0)
        account_time(dev.gpu, it.delay_s + it.burn_s);
    bool one_lock = global("one_lock") != 0 && strcmp(function, "nvmlEventSetWait_v2") != 0;
    pthread_mutex_unlock(&lock);
    if (one_lock)
        hold_driver();
    if (it.crash)
        raise(SIGSEGV);
    if (it.delay_s > 0)
        nap(it.delay_s);
    if (it.burn_s > 0)
        burn(it.burn_s);
    if (it.hang_s > 0) {
        let_go_of_driver(); /* or nobody could tell which GPU it is that does not answer */
        hang(function, dev.gpu, it.hang_s);
    }
    if (it.rc != OK) {
        let_go_of_driver();
        return it.rc;
    }
    pthread_mutex_lock(&lock);
    if (it.delay_s > 0 || it.hang_s > 0)
        refresh();
    if (needs_init && users == 0) {
        pthread_mutex_unlock(&lock);
        let_go_of_driver();
        return UNINITIALIZED;
    }
    return OK;
}

void leave(bool *entered)
{
    if (*entered) {
        pthread_mutex_unlock(&lock);
        let_go_of_driver();
    }
}
