/* The state file's lines, made into sorted entries, processes, Xids and fault rules. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

/* An array one longer; entries are only ever added, and all are freed together. */
static void *grown(void *array, size_t count, size_t size)
{
    if (count & (count - 1)) /* room for a power of two */
        return array;
    void *larger = realloc(array, (count ? count * 2 : 1) * size);
    if (larger == NULL)
        abort();
    return larger;
}

#define ADD(array, n) ((array) = grown((array), (n), sizeof *(array)), memset(&(array)[n], 0, sizeof *(array)), &(array)[(n)++])

/* Takes "gpu.N." or "gpu.*." off a key. */
static int scope(char **name)
{
    if (strncmp(*name, "gpu.", 4) != 0)
        return NONE;
    char *rest = *name + 4;
    int gpu = EVERY;
    if (*rest == '*')
        rest++;
    else
        gpu = (int)strtol(rest, &rest, 10);
    if (*rest != '.' || gpu >= MAX_GPUS)
        return NONE;
    *name = rest + 1;
    return gpu;
}

static int setting(const char *words, const char *name, int missing)
{
    size_t length = strlen(name);
    for (const char *at = words; (at = strstr(at, name)) != NULL; at += length)
        if (at[-1] == ' ')
            return (int)strtol(at + length, NULL, 10);
    return missing;
}

static void parse_process(State *s, int gpu, const char *value)
{
    char *rest;
    Process *p = ADD(s->processes, s->n_processes);
    p->gpu = gpu;
    p->pid = (unsigned)strtoul(value, &rest, 10);
    while (*rest == ' ')
        rest++;
    p->bytes = strncmp(rest, "na ", 3) == 0 ? UINT64_MAX : to_u64(strtod(rest, NULL));
    rest += strcspn(rest, " ");
    rest += strspn(rest, " ");
    p->type = *rest;
    p->gi = (unsigned)setting(rest, "gi=", -1);
    p->ci = (unsigned)setting(rest, "ci=", -1);
    p->sm = setting(rest, "sm=", -1);
    p->mem = setting(rest, "mem=", -1);
    p->enc = setting(rest, "enc=", -1);
    p->dec = setting(rest, "dec=", -1);
}

static void parse_xid(State *s, int gpu, const char *value)
{
    char *rest;
    Xid *xid = ADD(s->xids, s->n_xids);
    xid->gpu = gpu;
    xid->code = (unsigned)strtoul(value, &rest, 10);
    xid->sequence = strtoull(rest, NULL, 10);
}

static void parse_rule(State *s, int gpu, char *name)
{
    Rule *rule = ADD(s->rules, s->n_rules);
    rule->gpu = gpu;
    rule->written = strdup(name);
    rule->kind = name;
    rule->function = strchr(name, '.') + 1;
    name[strcspn(name, ".")] = '\0';
    char *value = (char *)rule->function + strcspn(rule->function, " ");
    if (*value)
        *value++ = '\0';
    rule->value = strncmp(value, "forever", 7) == 0 ? 1e18 : strtod(value, NULL);
    rule->after = setting(value, "after=", 0);
    rule->times = setting(value, "times=", 0);
}

static bool is_rule(const char *name)
{
    static const char *const KINDS[] = {"fail.", "hang.", "delay_us.", "burn_us.", "crash.", "grow."};
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (strncmp(name, KINDS[i], strlen(KINDS[i])) == 0)
            return true;
    return false;
}

static void parse_line(State *s, char *line, int at)
{
    char *name = line;
    int gpu = scope(&name);
    if (is_rule(name)) {
        parse_rule(s, gpu, name);
        return;
    }
    char *value = name + strcspn(name, " ");
    if (*value)
        *value++ = '\0';
    if (strcmp(name, "process") == 0) {
        parse_process(s, gpu, value);
    } else if (strcmp(name, "xid") == 0) {
        parse_xid(s, gpu, value);
    } else {
        Entry *entry = ADD(s->entries, s->n_entries);
        *entry = (Entry){gpu, at, name, value};
    }
}

static int by_key(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    if (x->gpu != y->gpu)
        return x->gpu < y->gpu ? -1 : 1;
    int order = strcmp(x->name, y->name);
    return order ? order : x->line - y->line;
}

State parse(char *content)
{
    State s = {.text = content};
    int at = 0;
    for (char *line = content, *next; line != NULL && *line; line = next, at++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        if (*line && *line != '#')
            parse_line(&s, line, at);
    }
    if (s.n_entries)
        qsort(s.entries, s.n_entries, sizeof *s.entries, by_key);
    return s;
}

void discard(State *s)
{
    for (size_t i = 0; i < s->n_rules; i++)
        free(s->rules[i].written);
    free(s->text);
    free(s->entries);
    free(s->processes);
    free(s->xids);
    free(s->rules);
}
