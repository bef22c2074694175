/* Turns a point of the catalogue into "KEY=VALUE" settings: a run reads them, results record them. */
#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/event_figures.h"

double setting_of(const struct lab_point *p, const char *key, double otherwise)
{
        size_t n = strlen(key);
        double value = otherwise;

        for (const char *at = p->settings; (at = strstr(at, key)); at += n) {
                if ((at == p->settings || at[-1] == ' ') && at[n] == '=')
                        value = strtod(at + n + 1, NULL);
        }
        return value;
}

void settings_drop(char *settings, const char *key)
{
        for (char *at = settings; (at = strstr(at, key));) {
                if (at != settings && at[-1] != ' ') {
                        at++;
                        continue;
                }
                memmove(at, at + strcspn(at, " "), strlen(at + strcspn(at, " ")) + 1);
        }
}

VARY(nothing)
{
        (void)p;
        (void)x;
        (void)size;
        to[0] = '\0';
}

VARY(message_bytes)
{
        (void)p;
        snprintf(to, size, " message=%.0f", x);
}

VARY(payload_bytes)
{
        (void)p;
        snprintf(to, size, " payload=%.0f", x);
}

VARY(row)
{
        (void)p;
        snprintf(to, size, " row=%.0f", x);
}

VARY(rate_mbps)
{
        (void)p;
        snprintf(to, size, " rate=%.0f", x * 1e6);
}

VARY(mtu_bytes)
{
        (void)p;
        snprintf(to, size, " mtu=%.0f", x);
}

/* Data at twice the link's rate fills the link. */
VARY(link_mbps)
{
        (void)p;
        snprintf(to, size, " link=%.0f rate=%.0f", x * 1e6, 2 * x * 1e6);
}

VARY(spacing_us)
{
        (void)p;
        snprintf(to, size, " spacing_ns=%.0f", x * 1e3);
}

VARY(rate_gbps)
{
        (void)p;
        snprintf(to, size, " rate_mbps=%.0f", x * 1e3);
}

VARY(stream_mbps)
{
        (void)p;
        snprintf(to, size, " rate_mbps=%.0f", x);
}

VARY(trigger_hz)
{
        (void)p;
        snprintf(to, size, " trigger.rate=%.0fHz", x);
}

static double link_bps(const struct lab_point *p)
{
        return p->bed && p->bed->scenario && p->bed->scenario->network.link_rate_bps > 0
                       ? (double)p->bed->scenario->network.link_rate_bps
                       : setting_of(p, "network.link-rate", 1) * 1e9;
}

static double mtu_of(const struct lab_point *p)
{
        return p->bed && p->bed->scenario ? (double)p->bed->scenario->network.mtu_bytes
                                          : setting_of(p, "network.mtu", 1500);
}

VARY(fragment_bytes)
{
        double sources = setting_of(p, "ros.count", 1), paced = setting_of(p, "paced", 0) / 100;
        double capacity = lab_payload_limit(link_bps(p), mtu_of(p), x) * setting_of(p, "sfi.count", 1);
        double offered = setting_of(p, "load", 100) / 100 * capacity;
        size_t n = (size_t)snprintf(to, size, " ros.fragment-size=%.0f trigger.rate=%.0fmHz", x,
                                    offered / (x * sources) * 1000);

        if (paced > 0 && n < size)
                snprintf(to + n, size - n, " ros.pacing=%.0fbit", paced * link_bps(p) / sources);
}

VARY(fragment_bytes_at_25_khz)
{
        (void)p;
        snprintf(to, size, " ros.fragment-size=%.0f trigger.rate=25kHz", x);
}

VARY(sources)
{
        double bytes = setting_of(p, "ros.fragment-size", 1024);
        double offered = setting_of(p, "load", 100) / 100 * lab_payload_limit(link_bps(p), mtu_of(p), bytes);

        snprintf(to, size, " ros.count=%.0f trigger.rate=%.0fmHz", x, offered / (bytes * x) * 1000);
}

VARY(accepted_percent)
{
        (void)p;
        to[0] = '\0';
        if (x < 100)
                snprintf(to, size, " level2.listen=tcp:26803 level2.window=2000 level2.stand-in=%g:5ms",
                         x / 100);
}
