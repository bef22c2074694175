/* The two ends of a stream, and the one who watches the wire: what each has to know, and what it does in a
 * process of its own, writing into a shared counters. */
#pragma once

#include <jansson.h>
#include <stdatomic.h>

#include "evb/traffic/flows.h"

#define FLOW_ENDS_MAX (FLOWS_MAX * (FLOW_RECEIVERS_MAX + 2))

enum flow_role { FLOW_SENDER, FLOW_RECEIVER, FLOW_WATCHER };

/* What one end of a flow has to know. Plain data: it goes to other machines too. */
struct flow_part {
        enum flow_role role;
        enum flow_kind kind;
        unsigned flow, which;          /* of all flows; of its receivers */
        char from[64], to[64], at[64]; /* sender; receiver or group; where this end is */
        uint16_t port;
        uint32_t message_bytes, buffer_bytes;
        uint64_t messages_per_s, receiver_packets_per_s;
};

/* FLOW_WARM: what TCP sends before anything is counted. */
enum flow_state { FLOW_WAIT, FLOW_WARM, FLOW_GO, FLOW_STOP_SENDING, FLOW_END };

struct flow_end {
        uint64_t messages, bytes; /* written by its process alone, read when that has ended */
        uint64_t socket_drops;    /* datagrams that its socket's buffer had no room for */
        struct histogram gaps_ns;
};

struct flow_counters {
        _Atomic unsigned ready; /* ends that listen, or are connected */
        _Atomic unsigned quiet; /* senders that have stopped */
        _Atomic unsigned state, failed;
        struct flow_end ends[FLOW_ENDS_MAX];
};

/* The parts of a flow, in the order in which they are to be started; how many. */
unsigned flow_parts(const struct flow *f, unsigned flow, struct flow_part ret[static FLOW_RECEIVERS_MAX + 2]);
json_t *flow_part_to_json(const struct flow_part *p);
/* -EBADMSG: no such part, or numbers beyond what any measurement has. Addresses are for the caller to judge.
 */
int flow_part_from_json(struct flow_part *ret, const json_t *o);
/* Adds what an end has counted to its flow's result. */
void flow_result_add(struct flow_result *r, const struct flow_part *p, const struct flow_end *end,
                     double cpu_seconds, const struct histogram *cpu_shares);

/* Until the counters's state is FLOW_END. Does not return where it fails: counters->failed says why. */
void flow_end_run(const struct flow_part *p, struct flow_counters *counters, struct flow_end *end);
/* flow_echo.c: the ends of FLOW_ECHO. */
void flow_ask(const struct flow_part *p, struct flow_counters *counters, struct flow_end *end);
void flow_answer(const struct flow_part *p, struct flow_counters *counters);
/* For both files. */
enum flow_state flow_state(const struct flow_counters *counters);
_Noreturn void flow_fail(struct flow_counters *counters);
void flow_be_ready(struct flow_counters *counters);
/* Sets a socket's buffer as large as the kernel grants; false: less than requested. */
bool flow_set_buffer(int fd, bool send, uint32_t bytes);
/* The same, with a warning if it is less: the stream may then be slower than its point states. */
void flow_need_buffer(int fd, bool send, uint32_t bytes);
struct sockaddr_in flow_address(const char *text, uint16_t port);
