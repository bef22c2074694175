/* A whole system of cores under virtual time: one DFM, ROSs and SFIs, and a network that loses, doubles and
 * reorders by a seed. Every message goes through real bytes, and payload is real pattern bytes, checked where
 * events are written. Nothing here looks at a clock or a socket; the same seed gives the same run. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "evb/base/fault.h"
#include "evb/core/dfm.h"
#include "evb/core/ros.h"
#include "evb/core/sfi.h"

struct sim_config {
        uint32_t n_ros, n_sfi;
        bool push;
        uint64_t events;
        uint64_t rate_millihertz;
        uint32_t fragment_bytes; /* mean; sizes vary from 0 to twice that unless `fixed` */
        bool fixed;
        struct fault_config faults;
        uint64_t away_from_ns, away_until_ns; /* in this time all data are lost */
        uint64_t latency_ns;
        uint64_t shaped_bps; /* of a ROS's data to each SFI, which wait for their turn in a queue; 0: unshaped
                              */
        uint64_t write_ns;   /* an SFI writes an event in this time */
        uint64_t sfi_buffer_bytes;
        uint32_t sfi_slots, sfi_credits;
        uint32_t retries_max;
        uint64_t timeout_ns;
        enum policy_id policy;
        size_t mtu_bytes;
        struct dfm_former former; /* the former run, as the DFM knows it */
        bool arriving; /* fragments come from a front-end, at the trigger's rate times arrive_percent / 100 */
        uint32_t arrive_percent;
        bool arrive_stream;                     /* a frame without room waits; otherwise it is lost */
        uint64_t arrive_skew_ns;                /* delay of each ROS's front-end against the one before */
        uint32_t ros_entries;                   /* 0: plenty */
        uint64_t stall_from_ns, stall_until_ns; /* during this time no SFI writes */
};

/* What became of one event, as the SFIs wrote it. */
struct sim_event {
        uint16_t complete, partial; /* times written */
};

struct sim;

struct sim_config sim_standard(void);
struct sim *sim_new(const struct sim_config *config);
struct sim *sim_free(struct sim *s);

/* Runs until the DFM is done, or `until_ns`; true: done. */
bool sim_run(struct sim *s, uint64_t until_ns);
uint64_t sim_now_ns(const struct sim *s);

/* A node stops at once and for good, or begins anew with nothing (SFI). */
void sim_kill(struct sim *s, enum node_role role, uint32_t index);
void sim_restart_sfi(struct sim *s, uint32_t index);
/* Starts another DFM process in place of the killed one. */
void sim_restart_dfm(struct sim *s);
/* What was stopped goes on as if only its network had been away. */
void sim_revive(struct sim *s, enum node_role role, uint32_t index);
void sim_fail_writes(struct sim *s, uint32_t index);
/* Bytes as a datagram to a node, as if by a stranger. */
void sim_inject(struct sim *s, enum node_role role, uint32_t index, const void *bytes, size_t n);

struct dfm *sim_dfm(struct sim *s);
struct ros *sim_ros(struct sim *s, uint32_t index);
struct sfi *sim_sfi(struct sim *s, uint32_t index);
const struct sim_event *sim_event(const struct sim *s, uint64_t event);
uint64_t sim_wrong_bytes(const struct sim *s); /* fragments written whose bytes are not the pattern's */
uint32_t sim_most_open(const struct sim *s);   /* events open in any SFI at any time */
uint64_t sim_steps(const struct sim *s);       /* wake-ups of all nodes */
