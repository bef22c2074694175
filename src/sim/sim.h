/* Runs a scenario in virtual time: the cores of the daemons (dfm, ros, sfi) with their own configuration, and
 * a model of the network between them. Each node has a link of network.link-rate to a switch. The port of the
 * switch to each node has the same rate, and drops packets that exceed network.switch-buffer. A ROS shapes
 * its traffic by the plan that the daemon would install. Sockets and processors have limits, too. There is no
 * payload, only its size.  One seed is one history: the same scenario, seed and faults give the same digest
 * on every machine. No clock, socket or file is used. Memory is bounded by the sockets' buffers, the queues
 * of the shaping, and 16 MiB of frames in each link; docs/sim.md gives figures. One thread. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/fault.h"
#include "conf/scenario.h"
#include "data/stats.h"

/* Processing times of nodes, and times on their links. */
struct sim_model {
        uint64_t wake_ns; /* mean time from an arrival or a timer to the turn of a sleeping process; each such
                             time is drawn from half to one and a half times this mean */
        uint64_t packet_ns;      /* time in which a process receives a packet, or sends a control message */
        uint64_t send_ns;        /* time in which a ROS sends a data packet */
        uint64_t fragment_ns;    /* time in which an SFI processes a chunk of a fragment */
        uint64_t propagation_ns; /* time from node to node, in addition to the times of frames on the wire */
        uint64_t timer_ns; /* mean lateness of the kernel's timers for shaping; each lateness is drawn from 0
                              to twice this mean */
        uint32_t processors; /* number of processors that all nodes share; a turn occupies one of them until
                                its work is done. 0: each node has a processor of its own */
        /* Links between switches: what goes to SFI i first passes uplink i modulo `uplinks`, with the rate
         * and buffer of a port. 0: all nodes are at one switch. */
        uint32_t uplinks;
};

/* Limit of both numbers. */
#define SIM_PROCESSORS_MAX 64u

extern const struct sim_model sim_model_usual;
/* Sets the figure with this name, such as "wake-time". Returns NULL, or the expected value for an error
 * message; in the second case, *m is unchanged. */
const char *sim_model_set(struct sim_model *m, const char *name, const char *text);

enum sim_fault_kind { SIM_CRASH, SIM_PAUSE, SIM_RESTART };

/* A fault of a node. A crashed process loses its memory and its sockets; its kernel still sends the packets
 * that it has queued. A restart ends the current process, if any, and starts another. */
struct sim_fault {
        enum sim_fault_kind kind;
        uint32_t node; /* index in scenario.nodes */
        uint64_t at_ns, for_ns;
};

#define SIM_FAULTS_MAX 256

struct sim_config {
        const struct scenario *scenario; /* borrowed; see sim_check() */
        uint64_t seed;
        struct sim_model model;
        const struct sim_fault *faults; /* copied */
        size_t n_faults;
        bool chaos; /* adds faults of nodes and of the network, which are drawn from the seed */
        const volatile sig_atomic_t
                *stop; /* not 0: end now, even during the run; NULL: the run cannot be stopped */
        FILE *trace;   /* one line for each message, drop and change of state; NULL: none */
};

struct sim;

/* Changes keys that the model does not need: events are not written to files, and each node gets an address,
 * which only the shaping plan uses. */
void sim_prepare(struct scenario *s);
/* Whether the model covers the scenario. -EINVAL: it does not; the error names the key. */
int sim_check(const struct scenario *s, struct error *error);
/* -EINVAL: a plan for the shaping is impossible; -ENOMEM. */
int sim_new(struct sim **ret, const struct sim_config *config, struct error *error);
struct sim *sim_free(struct sim *s);

/* Continues until the run ends, an invariant is violated, or the simulation is stopped. */
void sim_run(struct sim *s);

/* How a node ended. */
struct sim_node_end {
        const struct node_stats *stats; /* as its daemon would publish them, summed over all its processes */
        bool is_dead;                   /* the node crashed, and was not restarted */
        uint32_t restarts;
};

struct sim_result {
        uint64_t end_ns;
        uint32_t run;      /* the run number */
        uint64_t digest;   /* digest of all delivered messages and all changes of state, with their times */
        uint64_t messages; /* delivered */
        uint64_t port_drops, link_drops;
        bool plan_fits;           /* the traffic is shaped, and the bursts of the plan fit a port's buffer */
        uint64_t port_most_bytes; /* maximum that a port to an SFI held at once */
        bool has_switch;
        const char *violation; /* text that begins with the name of the violated invariant; NULL: none */
        uint64_t violated_ns;
};

struct sim_result sim_result(const struct sim *s);
struct sim_node_end sim_node_end(const struct sim *s, uint32_t node);
/* Returns the faults of the history in the order of their times, including those drawn by `chaos`. The
 * history can be repeated without `chaos` by these faults, and these fractions as network.loss, reorder and
 * duplicate. */
size_t sim_faults(const struct sim *s, const struct sim_fault **ret, struct fault_config *ret_network);
