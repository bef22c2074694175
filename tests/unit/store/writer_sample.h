/* Shared by the tests of the event writer: its settings, and a record of the closed files. */
#pragma once

#include "store_sample.h"

#define CORE "data26_evb.00000012.physics_Main.daq.RAW._lb0000._SFI-1"

struct closed {
        unsigned n;
        uint64_t events, bytes;
        char last[PATH_MAX];
};

static inline void on_closed(void *userdata, const char *path, uint64_t events, uint64_t size_bytes)
{
        struct closed *c = userdata;

        c->n++;
        c->events += events;
        c->bytes += size_bytes;
        snprintf(c->last, sizeof c->last, "%s", path);
}

static inline struct event_writer_settings make_settings(const char *directory, struct closed *closed)
{
        *closed = (struct closed){0};
        return (struct event_writer_settings){
                .directory = directory,
                .core_name = CORE,
                .application = "SFI-1",
                .version = 2,
                .run = 12,
                .has_seed = true,
                .seed = 5,
                .closed = on_closed,
                .userdata = closed,
        };
}

static inline int setup(void **state)
{
        *state = sample_directory();
        return 0;
}

static inline int teardown(void **state)
{
        sample_remove(*state);
        return 0;
}
