/* A stand-in for a level-2 farm. It learns of undecided events from the DFM's core, requests fragments of
 * some of them from the ROSs' cores, and decides. Its connections are reliable, as TCP is, and take a latency
 * but no bandwidth; one that breaks now and then is made again, and requests again what was not answered. The
 * caller has the clock and the nodes. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "core/dfm.h"
#include "core/ros.h"
#include "core/ros_regions.h"

#define SIM_FARM_REGIONS_MAX 32u

struct sim_farm_config {
        uint32_t accept_percent;
        uint64_t decide_ns; /* it decides after at most twice this */
        /* It is away in this interval, and then knows nothing. */
        uint64_t away_from_ns, away_until_ns;
        uint32_t regions; /* fragments of each event that it requests first; at most SIM_FARM_REGIONS_MAX */
        uint32_t n_ros;
        uint64_t latency_ns; /* of a request, and of its answer */
        uint64_t seed;       /* decides which events it accepts */
        struct random *random;
        /* The core of a ROS; NULL: its process does not run. */
        struct ros *(*ros)(void *ctx, uint32_t ros);
        /* A node has something to do for the farm at this time. */
        void (*wake)(void *ctx, enum node_role role, uint32_t index, uint64_t at_ns);
        void *ctx;
};

struct sim_farm {
        struct sim_farm_config config;
        uint64_t cursor;
        struct sim_waiting {
                uint64_t event, due_ns;
                uint32_t left; /* bit k: the fragment of its k-th ROS is still to come */
        } * waiting;           /* events that it has received and not decided */
        size_t n;
};

int sim_farm_init(struct sim_farm *f, const struct sim_farm_config *config); /* -ENOMEM */
void sim_farm_fini(struct sim_farm *f);
/* Another DFM begins: it lists all undecided events again. */
void sim_farm_begin(struct sim_farm *f);
/* The turn of the DFM, after its core's messages. True: the core has decisions to follow. */
bool sim_farm_turn(struct sim_farm *f, struct dfm *dfm, uint64_t now_ns, uint64_t *ret_deadline_ns);
/* The turn of a ROS: the next answer to the farm. Look at it, and then call sim_farm_answered(). */
bool sim_farm_answer(const struct sim_farm *f, uint32_t ros, struct ros_job *ret);
void sim_farm_answered(struct sim_farm *f, uint32_t ros, uint64_t event, uint64_t now_ns);
/* The connection to a ROS broke, or its process is another one. */
void sim_farm_reconnect(struct sim_farm *f, uint32_t ros, uint64_t now_ns);
/* The farm's decision about an event, at any time. */
bool sim_farm_accepts(const struct sim_farm *f, uint64_t event);
