/* A stand-in for a level-2 farm. It reads undecided events from the DFM's core, requests fragments of some of
 * them from the ROSs' cores, and decides. Its connections are reliable, like TCP, and have a latency but no
 * bandwidth limit. A connection that breaks, which happens occasionally, is made again, and unanswered
 * requests are repeated. The caller provides the clock and the nodes. One thread. */
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
        uint64_t decide_ns; /* an event is decided at the latest after twice this time */
        uint32_t regions;   /* number of fragments of each event that the farm requests first; at most
                               SIM_FARM_REGIONS_MAX */
        uint32_t n_ros;
        uint64_t latency_ns; /* of each request, and of each answer */
        uint64_t seed;       /* determines which events are accepted */
        struct random *random;
        /* Returns the core of a ROS; NULL: its process does not run. */
        struct ros *(*ros)(void *ctx, uint32_t ros);
        /* Plans a turn of a node at this time, because it has work for the farm. */
        void (*wake)(void *ctx, enum node_role role, uint32_t index, uint64_t at_ns);
        void *ctx;
};

struct sim_farm {
        struct sim_farm_config config;
        uint64_t cursor;
        struct sim_waiting {
                uint64_t event, due_ns;
                uint32_t resets;
                uint32_t left; /* bit k: the fragment of the event's k-th ROS has not arrived yet */
        } * waiting;           /* received, undecided events */
        size_t n;
};

int sim_farm_init(struct sim_farm *f, const struct sim_farm_config *config); /* -ENOMEM */
void sim_farm_fini(struct sim_farm *f);
/* Another DFM has started, and lists all undecided events again. */
void sim_farm_begin(struct sim_farm *f);
/* Call this in the DFM's turn, after its core's messages. True: the core has received new decisions. */
bool sim_farm_turn(struct sim_farm *f, struct dfm *dfm, uint64_t now_ns, uint64_t *ret_deadline_ns);
/* Call this in a ROS's turn: returns the next answer to the farm. Call sim_farm_answered() after the answer
 * was used. */
bool sim_farm_answer(const struct sim_farm *f, uint32_t ros, struct ros_job *ret);
void sim_farm_answered(struct sim_farm *f, uint32_t ros, uint64_t event, uint64_t now_ns);
/* The connection to a ROS broke, or another process of the ROS has started. */
void sim_farm_reconnect(struct sim_farm *f, uint32_t ros, uint64_t now_ns);
/* Returns the farm's decision about an event, at any time. */
bool sim_farm_accepts(const struct sim_farm *f, uint64_t event);
