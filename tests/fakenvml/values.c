/* A key's value for a device: the state's line, or the table's default; as a number, a mean over time, or a text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "keys.h"

enum { GLOBALS = sizeof GLOBAL_KEYS / sizeof *GLOBAL_KEYS, PER_GPU = sizeof GPU_KEYS / sizeof *GPU_KEYS };

static int by_name(const void *a, const void *b)
{
    return strcmp(((const Key *)a)->name, ((const Key *)b)->name);
}

static const Key *builtin(const char *name, bool of_gpu)
{
    static Key sorted[GLOBALS + PER_GPU];
    if (sorted[0].name == NULL) {
        memcpy(sorted, GLOBAL_KEYS, sizeof GLOBAL_KEYS);
        memcpy(sorted + GLOBALS, GPU_KEYS, sizeof GPU_KEYS);
        qsort(sorted, GLOBALS, sizeof *sorted, by_name);
        qsort(sorted + GLOBALS, PER_GPU, sizeof *sorted, by_name);
    }
    Key wanted = {.name = name};
    return of_gpu ? bsearch(&wanted, sorted + GLOBALS, PER_GPU, sizeof *sorted, by_name)
                  : bsearch(&wanted, sorted, GLOBALS, sizeof *sorted, by_name);
}

/* The last line with this key. */
static const char *written(int gpu, const char *name)
{
    size_t low = 0, high = state.n_entries;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const Entry *e = &state.entries[middle];
        if (e->gpu < gpu || (e->gpu == gpu && strcmp(e->name, name) <= 0))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || state.entries[low - 1].gpu != gpu || strcmp(state.entries[low - 1].name, name) != 0)
        return NULL;
    return state.entries[low - 1].value;
}

/* The value under a name, or under its family (a name with "*"), nearest first. */
Found find(Dev dev, const char *name, const char *family)
{
    const char *names[] = {name, family};
    for (int scope = 0; scope < 2; scope++)
        for (int i = 0; i < 2; i++) {
            int gpu = dev.gpu == NONE ? NONE : scope == 0 ? dev.gpu : EVERY;
            const char *value = names[i] ? written(gpu, names[i]) : NULL;
            if (value)
                return (Found){strcmp(value, "unsupported") ? value : NULL, 0, false};
        }
    const Key *known = builtin(name, dev.gpu != NONE);
    if (known == NULL && family)
        known = builtin(family, dev.gpu != NONE);
    if (known == NULL || strcmp(known->value, "unsupported") == 0)
        return (Found){NULL, 0, true};
    return (Found){known->value, known->step * (dev.mig == NONE ? dev.gpu % 8 : dev.mig), true};
}

/* A key of the tables; a MIG child has its own, under mig.M. */
Found key(Dev dev, const char *name)
{
    char own[80], family[80];
    if (dev.mig != NONE) {
        snprintf(own, sizeof own, "mig.%d.%s", dev.mig, name);
        snprintf(family, sizeof family, "mig.*.%s", name);
        return find(dev, own, family);
    }
    if (builtin(name, dev.gpu != NONE) == NULL) {
        fprintf(stderr, "fake NVML: no key \"%s\" in the tables\n", name);
        abort();
    }
    return find(dev, name, NULL);
}

double global(const char *name)
{
    double v = 0;
    number(key((Dev){NONE, NONE}, name), &v);
    return v;
}

typedef struct {
    double low, high, period, duty;
} Wave;

static bool wave(const char *value, Wave *w)
{
    return *value == 's' && sscanf(value, "square %lf %lf %lf %lf", &w->low, &w->high, &w->period, &w->duty) == 4 &&
           w->period > 0;
}

/* How long the wave was high until t. */
static double high_until(const Wave *w, double t)
{
    double whole = floor(t / w->period), rest = t - whole * w->period;
    return whole * w->period * w->duty + fmin(rest, w->period * w->duty);
}

bool number(Found found, double *out)
{
    Wave w;
    if (found.text == NULL || strncmp(found.text, "error ", 6) == 0)
        return false;
    if (told(found.text, now_s() - 1, now_s(), out)) /* what is read at once the driver averages over a second */
        return true;
    if (wave(found.text, &w))
        *out = fmod(now_s(), w.period) < w.period * w.duty ? w.high : w.low;
    else
        *out = strtod(found.text, NULL) + found.step;
    return true;
}

/* What a call answers whose value is none: the code that the state gives it, or that it is not supported. */
int refusal(Found found)
{
    int code;
    return found.text && sscanf(found.text, "error %d", &code) == 1 ? code : NOT_SUPPORTED;
}

/* The mean of a value between two times, in seconds of the wall clock. */
bool mean(Found found, double from, double to, double *out)
{
    Wave w;
    if (found.text && to > from && told(found.text, from, to, out))
        return true;
    if (found.text == NULL || !wave(found.text, &w) || to <= from)
        return number(found, out);
    double high = (high_until(&w, to) - high_until(&w, from)) / (to - from);
    *out = w.low + (w.high - w.low) * high;
    return true;
}

unsigned to_uint(double v)
{
    if (v < 0)
        return (unsigned)(int)v;
    return v >= 4294967295.0 ? UINT32_MAX : (unsigned)(v + 0.5);
}

u64 to_u64(double v)
{
    if (v < 0)
        return (u64)(int64_t)v;
    return v >= 18446744073709549568.0 ? UINT64_MAX : (u64)v;
}

int put_uint(Dev dev, const char *name, unsigned *out)
{
    double v;
    Found found = key(dev, name);
    if (!number(found, &v))
        return refusal(found);
    *out = to_uint(v);
    return OK;
}

int put_u64(Dev dev, const char *name, u64 *out)
{
    double v;
    Found found = key(dev, name);
    if (!number(found, &v))
        return refusal(found);
    *out = to_u64(v);
    return OK;
}

/* A default text: ## is the GPU ($$ in capitals), @@ the MIG child, | divides the machine's halves. */
static size_t fill_in(Dev dev, const char *from, char *out, size_t size)
{
    size_t n = 0;
    const char *half = strchr(from, '|');
    const char *end = half && dev.gpu / 4 % 2 == 0 ? half : from + strlen(from);
    for (const char *c = half && dev.gpu / 4 % 2 ? half + 1 : from; c < end && n + 3 < size; c++)
        if (strchr("#$@", *c) && c[1] == *c) {
            n += (size_t)snprintf(out + n, 3, *c == '$' ? "%02X" : "%02x",
                                  (unsigned)(*c == '@' ? dev.mig + 1 : dev.gpu + 0x1b));
            c++;
        } else {
            out[n++] = *c;
        }
    out[n] = '\0';
    return n;
}

static size_t unescape(const char *from, char *out, size_t size)
{
    size_t n = 0;
    for (const char *c = from; *c && n + 1 < size; c++) {
        unsigned byte = (unsigned char)*c;
        if (c[0] == '\\' && c[1] == 'x' && sscanf(c + 2, "%2x", &byte) == 1)
            c += 3;
        else if (c[0] == '\\' && c[1])
            byte = *++c == 'n' ? '\n' : (unsigned char)*c;
        out[n++] = (char)byte;
    }
    out[n] = '\0';
    return n;
}

/* Writes a text with its end, as the driver does: what does not fit is an error, or cut where the state says so. */
int text(Dev dev, Found found, char *out, size_t size)
{
    char whole[32768];
    if (found.text == NULL || strncmp(found.text, "error ", 6) == 0)
        return refusal(found);
    if (size == 0)
        return INSUFFICIENT_SIZE;
    size_t n = found.builtin ? fill_in(dev, found.text, whole, sizeof whole) : unescape(found.text, whole, sizeof whole);
    if (n >= size && global("text_cut") == 0)
        return INSUFFICIENT_SIZE;
    n = n < size ? n : size - 1;
    memcpy(out, whole, n);
    out[n] = '\0';
    return OK;
}

/* Whether a number stands in a list of numbers, which is the text of a key. */
bool listed_in(Dev dev, const char *name, unsigned wanted)
{
    const char *at = key(dev, name).text;
    unsigned one;
    int length;
    for (; at && sscanf(at, "%u%n", &one, &length) == 1; at += length)
        if (one == wanted)
            return true;
    return false;
}

int put_text(Dev dev, const char *name, char *out, unsigned size)
{
    return out ? text(dev, key(dev, name), out, size) : INVALID_ARGUMENT;
}
