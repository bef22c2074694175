/* Parses the text values of [level2], and checks its keys against each other. */
#include <stdlib.h>
#include <string.h>

#include "conf_internal.h"
#include "base/quantity.h"
#include "base/util.h"

bool scenario_split_stand_in(const char *text, struct scenario_stand_in *ret)
{
        char *const parts[] = {ret->accept, ret->latency, ret->regions};

        *ret = (struct scenario_stand_in){};
        for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
                size_t n = strcspn(text, ":");

                if (n >= sizeof ret->accept)
                        return false;
                memcpy(parts[i], text, n);
                text += n;
                if (*text == '\0')
                        return i > 0;
                text++;
        }
        return false;
}

static bool is_stand_in(const char *text, uint64_t *ret_regions)
{
        struct scenario_stand_in s;
        uint64_t latency_ns;
        double fraction;

        *ret_regions = 0;
        return scenario_split_stand_in(text, &s) && quantity_parse_fraction(s.accept, &fraction) == 0 &&
               quantity_parse_time(s.latency, &latency_ns) == 0 &&
               (!s.regions[0] || quantity_parse_count(s.regions, ret_regions) == 0);
}

static uint16_t resolve_port(struct loading *l, const char *name, const char *text)
{
        if (strncmp(text, "tcp:", 4) == 0 && conf_is_port(text + 4))
                return (uint16_t)atoi(text + 4);
        if (strcmp(text, "none") != 0)
                conf_key_error(l, "level2", name, "invalid address \"%.100s\"; expected none or tcp:PORT",
                               text);
        return 0;
}

/* TIME or TIME:reject. */
static void resolve_timeout(struct loading *l)
{
        struct scenario *s = l->scenario;
        char *reject, text[SCENARIO_TEXT_MAX];

        strcpy(text, s->level2.timeout);
        reject = strchr(text, ':');
        s->level2.rejects = reject;
        if (reject)
                *reject++ = '\0';
        if (quantity_parse_time(text, &s->level2.timeout_ns) < 0 || s->level2.timeout_ns < NS_PER_MS ||
            s->level2.timeout_ns > 3600 * NS_PER_S || (reject && strcmp(reject, "reject") != 0))
                conf_key_error(l, "level2", "timeout",
                               "invalid time \"%.100s\"; expected a time from 1ms to 1h, and :reject to "
                               "reject events after it, e.g. 200ms:reject",
                               s->level2.timeout);
}

void conf_resolve_level2(struct loading *l)
{
        struct scenario *s = l->scenario;
        const char *farm = s->level2.stand_in;
        uint64_t regions;

        resolve_timeout(l);
        s->level2.port = resolve_port(l, "listen", s->level2.listen);
        s->level2.regions_port = resolve_port(l, "regions", s->level2.regions);
        if (strcmp(farm, "none") == 0)
                return;
        if (!is_stand_in(farm, &regions))
                conf_key_error(l, "test", "stand-in",
                               "invalid farm \"%.100s\"; expected none, FRACTION:TIME or FRACTION:TIME:N, "
                               "e.g. 0.1:5ms",
                               farm);
        else if (regions > 0 && s->level2.regions_port == 0)
                conf_key_error(l, "test", "stand-in", "has no ROSs to connect to; set level2.regions");
}

void conf_check_level2(struct loading *l)
{
        const struct scenario *s = l->scenario;

        if (s->level2.port == 0 && strcmp(s->level2.stand_in, "none") != 0)
                conf_key_error(l, "test", "stand-in", "has no DFM to connect to; set level2.listen");
        if (s->level2.port == 0 && s->level2.regions_port > 0)
                conf_key_error(l, "level2", "regions", "is only for level-2 clients; set level2.listen");
        if (s->level2.port > 0 && s->scenario.transport == TRANSPORT_TCP &&
            s->level2.port == scenario_data_port(s))
                conf_key_error(
                        l, "level2", "listen",
                        "equals the port after network.port, which SFIs use for tcp; expected another port");
}
