/* Sets the parameters of the simulation model by name. */
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/util.h"
#include "sim/sim.h"

/* Maximum time per packet; a slower process would never keep up. */
#define TIME_MOST_NS NS_PER_S

/* Round figures for an idle machine, assumed rather than measured; docs/sim.md describes their effects. */
const struct sim_model sim_model_usual = {
        .wake_ns = 10 * NS_PER_US,
        .packet_ns = 1 * NS_PER_US,
        .send_ns = 1 * NS_PER_US,
        .fragment_ns = 250,
        .propagation_ns = 5 * NS_PER_US,
};

static const struct {
        const char *name;
        size_t offset;
} times[] = {
        {"wake-time", offsetof(struct sim_model, wake_ns)},
        {"packet-time", offsetof(struct sim_model, packet_ns)},
        {"send-time", offsetof(struct sim_model, send_ns)},
        {"fragment-time", offsetof(struct sim_model, fragment_ns)},
        {"propagation", offsetof(struct sim_model, propagation_ns)},
        {"timer-time", offsetof(struct sim_model, timer_ns)},
};

static const char *set_time(uint64_t *to, const char *text)
{
        uint64_t ns;

        if (quantity_parse_time(text, &ns) < 0 || ns > TIME_MOST_NS)
                return "a time up to 1s, e.g. 10us";
        *to = ns;
        return NULL;
}

static const char *set_number(uint32_t *to, const char *text)
{
        char *end;
        unsigned long n = strtoul(text, &end, 10);

        if (text[0] < '0' || text[0] > '9' || *end || n > SIM_PROCESSORS_MAX)
                return "up to 64 of them, or 0";
        *to = (uint32_t)n;
        return NULL;
}

const char *sim_model_set(struct sim_model *m, const char *name, const char *text)
{
        if (strcmp(name, "processors") == 0)
                return set_number(&m->processors, text);
        if (strcmp(name, "uplinks") == 0)
                return set_number(&m->uplinks, text);
        for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
                if (strcmp(name, times[i].name) == 0)
                        return set_time((uint64_t *)((char *)m + times[i].offset), text);
        }
        return "a figure of the model";
}
