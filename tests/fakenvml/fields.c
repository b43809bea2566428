/* nvmlDeviceGetFieldValues: which key each field id reads, its type, and what its scope chooses. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { PLAIN, LINK, LINK_KIB, LINK_5, POWER, PCIE, SLOWED_575, SLOWED_580_82 };

static const struct {
    unsigned id, kind, type;
    const char *name;
} FIELDS[] = {
    {1, PLAIN, T_UINT, "ecc_mode"},
    {2, PLAIN, T_UINT, "ecc_mode_pending"},
    {3, PLAIN, T_ULL, "ecc_corrected"},
    {4, PLAIN, T_ULL, "ecc_uncorrected"},
    {5, PLAIN, T_ULL, "ecc_corrected_total"},
    {6, PLAIN, T_ULL, "ecc_uncorrected_total"},
    {29, PLAIN, T_UINT, "retired_single"},
    {30, PLAIN, T_UINT, "retired_double"},
    {31, PLAIN, T_UINT, "retired_pending"},
    {74, PLAIN, T_ULL, "sw_power_cap_ns"},
    {75, PLAIN, T_ULL, "thermal_ns"},
    {76, PLAIN, T_ULL, "sync_boost_ns"},
    {77, PLAIN, T_ULL, "board_limit_ns"},
    {78, PLAIN, T_ULL, "low_utilization_ns"},
    {79, PLAIN, T_ULL, "reliability_ns"},
    {80, PLAIN, T_ULL, "app_clocks_ns"},
    {81, PLAIN, T_ULL, "base_clocks_ns"},
    {82, PLAIN, T_UINT, "memory_temperature"},
    {83, PLAIN, T_ULL, "energy_mj"},
    {91, PLAIN, T_UINT, "nvlink_count"},
    {94, PLAIN, T_ULL, "pcie_replays"},
    {95, PLAIN, T_ULL, "pcie_replay_rollovers"},
    {138, LINK_KIB, T_ULL, "tx_bytes"},
    {139, LINK_KIB, T_ULL, "rx_bytes"},
    {142, PLAIN, T_UINT, "remapped_corrected"},
    {143, PLAIN, T_UINT, "remapped_uncorrected"},
    {144, PLAIN, T_UINT, "remapped_pending"},
    {145, PLAIN, T_UINT, "remapped_failure"},
    {161, LINK, T_ULL, "replay_errors"},
    {162, LINK, T_ULL, "recovery_errors"},
    {163, LINK, T_ULL, "crc_errors"},
    {164, LINK, T_UINT, "speed"},
    {165, LINK, T_UINT, "state"},
    {169, PLAIN, T_UINT, "pcie_l0_to_recovery"},
    {173, PLAIN, T_UINT, "pcie_correctable_errors"},
    {174, PLAIN, T_UINT, "pcie_naks_received"},
    {175, PLAIN, T_UINT, "pcie_receiver_errors"},
    {176, PLAIN, T_UINT, "pcie_bad_tlp"},
    {177, PLAIN, T_UINT, "pcie_naks_sent"},
    {178, PLAIN, T_UINT, "pcie_bad_dllp"},
    {179, PLAIN, T_UINT, "pcie_non_fatal_errors"},
    {180, PLAIN, T_UINT, "pcie_fatal_errors"},
    {181, PLAIN, T_UINT, "pcie_unsupported_requests"},
    {182, PLAIN, T_UINT, "pcie_lcrc_errors"},
    {183, PLAIN, T_UINT, "pcie_lane_errors"},
    {185, POWER, T_UINT, "power_average"},
    {186, POWER, T_UINT, "power_instant"},
    {187, PLAIN, T_UINT, "power_limit_min_mw"},
    {188, PLAIN, T_UINT, "power_limit_max_mw"},
    {189, PLAIN, T_UINT, "power_limit_default_mw"},
    {190, PLAIN, T_UINT, "power_limit_enforced_mw"},
    {191, PLAIN, T_ULL, "energy_mj"},
    {192, PLAIN, T_UINT, "power_limit_requested_mw"},
    {193, PLAIN, T_INT, "shutdown_tlimit"},
    {194, PLAIN, T_INT, "slowdown_tlimit"},
    {195, PLAIN, T_INT, "memory_max_tlimit"},
    {196, PLAIN, T_INT, "gpu_max_tlimit"},
    {197, PCIE, T_ULL, "pcie_tx_bytes"},
    {198, PCIE, T_ULL, "pcie_rx_bytes"},
    {202, LINK_5, T_ULL, "tx_bytes"},
    {204, LINK_5, T_ULL, "rx_bytes"},
    {213, LINK, T_ULL, "recovery_ok"},
    {214, LINK, T_ULL, "recovery_failed"},
    {215, LINK, T_ULL, "recovery_events"},
    {219, LINK, T_ULL, "effective_errors"},
    {220, LINK, T_ULL, "effective_ber"},
    {221, LINK, T_ULL, "symbol_errors"},
    {222, LINK, T_ULL, "symbol_ber"},
    {230, PLAIN, T_UINT, "recovery_action"},
    {251, SLOWED_575, T_ULL, "sw_thermal_ns"},
    {252, SLOWED_575, T_ULL, "hw_thermal_ns"},
    {253, SLOWED_575, T_ULL, "hw_power_brake_ns"},
    {269, SLOWED_580_82, T_ULL, "sw_thermal_ns"},
    {270, SLOWED_580_82, T_ULL, "hw_thermal_ns"},
    {271, SLOWED_580_82, T_ULL, "hw_power_brake_ns"},
    {297, PLAIN, T_UINT, "mma_stall_percent"},
};

static int put(FieldValue *field, unsigned type, double v)
{
    field->type = type;
    field->value = (Value){.ull = 0};
    if (type == T_DOUBLE)
        field->value.real = v;
    else if (type == T_UINT || type == T_INT)
        field->value.uint = to_uint(v);
    else
        field->value.ull = to_u64(v);
    return OK;
}

/* field.ID or field.ID.SCOPE of the state goes before every table. */
static bool overridden(Dev dev, FieldValue *field)
{
    char exact[32], plain[32];
    double v;
    snprintf(exact, sizeof exact, "field.%u.%u", field->id, field->scope);
    snprintf(plain, sizeof plain, "field.%u", field->id);
    Found found = find(dev, exact, plain);
    if (found.builtin)
        return false;
    field->rc = refusal(found);
    if (number(found, &v))
        field->rc = put(field, strchr(found.text, '.') ? T_DOUBLE : v < 0 ? T_SLL : T_ULL, v);
    return true;
}

/* One link by its number, or the sum of all with all ones. */
static int link_value(Dev dev, unsigned link, const char *name, double *out)
{
    char full[48];
    double one;
    unsigned links = 0;
    put_uint(dev, "nvlink_count", &links);
    if (links > MAX_LINKS)
        links = MAX_LINKS;
    if (links == 0)
        return NOT_SUPPORTED;
    if (link >= links && link != UINT32_MAX)
        return INVALID_ARGUMENT;
    *out = 0;
    for (unsigned i = link == UINT32_MAX ? 0 : link; i < (link == UINT32_MAX ? links : link + 1); i++) {
        snprintf(full, sizeof full, "nvlink.%u.%s", i, name);
        int rc = counter(dev, full, &one);
        if (rc != OK)
            return rc;
        *out += one;
    }
    return OK;
}

static int scoped_power(Dev dev, unsigned scope, const char *name, double *out)
{
    static const char *const SCOPES[] = {"", "_module", "_memory"};
    char full[48];
    if (scope >= sizeof SCOPES / sizeof *SCOPES)
        return INVALID_ARGUMENT;
    snprintf(full, sizeof full, "%s%s_mw", name, SCOPES[scope]);
    return counter(dev, full, out);
}

/* Under which numbers this driver counts time slowed: NONE before 575, with 580.82 they changed places. */
static unsigned slowed(void)
{
    int branch, release;
    driver_release(&branch, &release);
    if (branch < 575)
        return PLAIN;
    return branch > 580 || (branch == 580 && release >= 82) ? SLOWED_580_82 : SLOWED_575;
}

/* Its type; 297 is a double from driver 610 on. */
static unsigned type_of(const FieldValue *field, size_t i)
{
    int branch, release;
    driver_release(&branch, &release);
    return field->id == 297 && branch >= 610 ? T_DOUBLE : FIELDS[i].type;
}

/* A number of power smoothing, which grows like none of ours. */
static double smoothing(const FieldValue *field)
{
    return (double)field->id * 1e9 + (double)now_us() * 300;
}

static int answer(Dev dev, FieldValue *field, size_t i)
{
    double v = 0;
    int rc = OK;
    if ((FIELDS[i].kind == SLOWED_575 || FIELDS[i].kind == SLOWED_580_82) && FIELDS[i].kind != slowed())
        v = smoothing(field);
    else if (FIELDS[i].kind == PLAIN || FIELDS[i].kind >= PCIE)
        rc = counter(dev, FIELDS[i].name, &v);
    else if (FIELDS[i].kind == POWER)
        rc = scoped_power(dev, field->scope, FIELDS[i].name, &v);
    else if (FIELDS[i].kind == LINK_5 && key(dev, "nvlink_rcv_xmit_bytes").text == NULL)
        rc = NOT_SUPPORTED;
    else
        rc = link_value(dev, field->scope, FIELDS[i].name, &v);
    unsigned brief = 0;
    if (rc == OK && FIELDS[i].kind == PCIE && put_uint(dev, "pcie_bytes_short", &brief) == OK && brief)
        return put(field, brief == 1 ? T_UINT : T_ULL, fmod(floor(v), 4294967296.0));
    return rc ? rc : put(field, type_of(field, i), FIELDS[i].kind == LINK_KIB ? v / 1024 : v);
}

EXPORT nvmlDeviceGetFieldValues(void *handle, int n, FieldValue *fields)
{
    DEVICE_CALL(handle);
    double slowest_us = 0, us;
    char cost[32];
    for (FieldValue *field = fields; field < fields + n; field++) {
        snprintf(cost, sizeof cost, "field_us.%u", field->id);
        if (number(find(dev, cost, NULL), &us) && us > slowest_us)
            slowest_us = us;
    }
    spend(dev.gpu, slowest_us / 1e6); /* a batch takes about as long as its slowest member */
    for (FieldValue *field = fields; field < fields + n; field++) {
        if (listed_in(dev, "fields_untouched", field->id))
            continue;
        field->time_us = (int64_t)now_us();
        field->latency_us = 0;
        if (overridden(dev, field))
            continue;
        field->rc = NOT_SUPPORTED;
        for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++)
            if (FIELDS[i].id == field->id)
                field->rc = answer(dev, field, i);
        if (listed_in(dev, "fields_untyped", field->id))
            field->type = T_DOUBLE; /* zero: the value is still a whole number */
    }
    return OK;
}
