/* Whole nodes of a scenario in one process and in virtual time: the product's event loops, messages, cores
 * and data paths, with the sockets and the clock of tests/counts. The test takes part between the turns of
 * the nodes. Each seed repeats its run. Not here: the kernel, files and other threads of a node. */
#pragma once

#include <signal.h>

#include <jansson.h>

#include "../counts/counted.h"
#include "../unit/test.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "core/sfi.h"
#include "data/stats.h"
#include "protocol/event.h"

/* Begins a test: ends all that runs. No node runs then. Settings are "section.key=value", or sections of a
 * scenario that begin with "[", NULL-terminated. The DFM has address 127.0.0.1, ROSs have 127.0.0.10 onwards,
 * and SFIs 127.0.0.100 onwards. */
void bed_begin(uint64_t seed, const char *const *settings);
#define BED(seed, ...) bed_begin(seed, (const char *const[]){__VA_ARGS__, NULL})
/* Also starts all nodes. */
#define RUN(seed, ...) (BED(seed, __VA_ARGS__), bed_start_all())
static inline const char *bed_mode(int pull)
{
        return pull ? "scenario.mode=pull" : "scenario.mode=push";
}

/* Starts a node as `evb ROLE --node NAME` would, perhaps anew, with settings in addition. */
void bed_start_with(const char *node, const char *const *settings);
void bed_start(const char *node);
void bed_start_all(void);
/* Starts `evb level2` or `evb frontend` with these arguments, by any name. */
typedef int (*bed_command)(int argc, char **argv);
void bed_start_command(const char *name, bed_command command, const char *const *arguments);
#define FARM(name, ...) bed_start_command(name, cmd_level2, (const char *const[]){__VA_ARGS__, NULL})
#define FRONTEND(name, ...) bed_start_command(name, cmd_frontend, (const char *const[]){__VA_ARGS__, NULL})

/* Starts `evb ctl` with a command, by any name: "start", "set trigger.rate=2kHz". `wait` is its --wait; NULL:
 * none. The settings have CONTROL. Its report is its output. */
#define CONTROL "control.listen=unix:control.sock"
void bed_ctl_start(const char *name, const char *command, const char *wait);
/* Waits for its end, and returns its exit status; its name is "ctl". */
int bed_ctl(const char *command, const char *wait);
/* The DFM no longer answers. */
void bed_control_ends(void);

/* SIGKILL; SIGSTOP and SIGCONT; a signal that the node catches. */
void bed_kill(const char *name);
void bed_freeze(const char *name, bool frozen);
/* Kills the DFM `name` when it logs its next line with this text. */
void bed_die_at(const char *name, const char *text);
void bed_signal(const char *name, int number);

/* The node reads its settings again (SIGHUP): those of the test, and these. */
void bed_reload(const char *node, const char *const *settings);
#define RELOAD(node, ...) bed_reload(node, (const char *const[]){__VA_ARGS__, NULL})
/* The output of this SFI fails from its next event on: disk full. NULL: of none. */
void bed_fail_output(const char *sfi);
/* IP packets of more bytes no longer reach this node. */
void bed_cut_packets_above(const char *to, uint32_t mtu_bytes);
/* Only those to its data port. */
void bed_cut_data_above(const char *to, uint32_t mtu_bytes);
/* Datagrams of `from` no longer reach `to`. */
void bed_cut(const char *from, const char *to);
/* Multicast no longer reaches this node. */
void bed_cut_groups(const char *to);

void bed_pass(uint64_t ns);
/* Calls the function each millisecond, before the nodes continue, until the next bed_begin(). */
void bed_each_ms(void (*turn)(void *ctx), void *ctx);
/* Passes virtual time until the condition holds; fails the test after 10 minutes. */
#define bed_until(condition)                                                                                 \
        do {                                                                                                 \
                for (uint64_t _from_ns = turns_now_ns(); !(condition); bed_pass(NS_PER_MS))                  \
                        bed_check_limit(_from_ns, #condition);                                               \
        } while (0)
void bed_check_limit(uint64_t from_ns, const char *what);

bool bed_has_ended(const char *name);
/* Waits for the end of the process, and returns its exit status. */
int bed_status(const char *name);
/* Waits for the end of the process; fails the test with the log if its exit status is another one. */
void bed_ends(const char *name, int status);
/* All of them. */
void bed_all_end(int status);
/* Stops the node, which ends with this status. */
static inline void bed_stop(const char *name, int status)
{
        bed_signal(name, SIGTERM);
        bed_ends(name, status);
}
/* Stops the DFM, and with it the run: all processes end with this status. */
static inline void bed_stop_run(int status)
{
        bed_signal("dfm", SIGTERM);
        bed_all_end(status);
}
static inline void bed_restart(const char *node)
{
        bed_kill(node);
        bed_start(node);
}
/* Of the latest process with this name, also after its end. */
const struct node_stats *bed_stats(const char *node);
#define count_of(node, counter) stats_get(&bed_stats(node)->counter)
/* Sum over the nodes of a role. */
#define count_sum(role, counter)                                                                             \
        ({                                                                                                   \
                uint64_t _sum = 0;                                                                           \
                for (size_t _i = 0; bed_name(role, _i); _i++)                                                \
                        _sum += count_of(bed_name(role, _i), counter);                                       \
                _sum;                                                                                        \
        })
const struct scenario *bed_scenario(void);
/* The process whose turn it is, in a function that it calls. */
const char *bed_self(void);
/* NULL: the role has no such node. */
const char *bed_name(enum node_role role, size_t index);
/* What the process reported at its end: a node's or the farm's JSON. */
json_t *bed_report(const char *name);
/* Its report of one of several runs; NULL: it has reported fewer. */
json_t *bed_report_of_run(const char *name, size_t index);
/* A number of the report: "regions.sent". */
uint64_t bed_reported(const char *name, const char *field);
bool bed_has_reason(const char *node, const char *text);
/* How often processes of this name logged the text, and whether any did. */
unsigned bed_times_logged(const char *name, const char *text);
bool bed_logged(const char *name, const char *text);

/* How often SFIs wrote an event, by its number. */
unsigned bed_written(uint64_t event);
/* Number of different events that were written, and how often any was written again. */
uint64_t bed_events(void);
uint64_t bed_events_again(void);
/* As it was written last. */
const struct event_info *bed_event(uint64_t event);
/* Calls the function for each event that an SFI writes, until the next bed_begin(); payload lies in the
 * buffer. */
void bed_each_event(void (*look)(void *ctx, const struct sfi_built *built, const uint8_t *buffer), void *ctx);
/* Checks that each of the first n events was written once. */
void bed_check_written_once(uint64_t n);
/* Checks that each trigger ended once and each fragment is accounted for, as the summary of `evb run` does.
 */
void bed_check_accounts(void);
/* Also that all events are complete, and their bytes right. */
void bed_check_complete(void);
/* All processes end without a fault, and all events are complete. */
static inline void bed_ends_complete(void)
{
        bed_all_end(0);
        bed_check_complete();
}

/* A UDP socket of the test, at 127.0.1.1, and its next datagram: its size; -1: none. */
int bed_open_socket(uint16_t port);
ssize_t bed_receive(int fd, void *to, size_t n);
struct sockaddr_in bed_address(const char *node, uint16_t port);
/* The address as the farm's --connect takes it. */
const char *bed_address_text(const char *node, uint16_t port);
/* Sends a datagram from a foreign sender at 127.0.1.1. */
void bed_send_datagram(const char *node, uint16_t port, const void *bytes, size_t n);
