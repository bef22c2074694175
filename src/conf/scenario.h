/* A scenario describes a run. It is read from an INI file and from settings of the command line by the table
 * of keys (conf/keys.h). Values are in bytes, nanoseconds and bits per second; members are named after their
 * keys. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "protocol/event.h"
#include "protocol/frame.h"
#include "protocol/number.h"

#define SCENARIO_TEXT_MAX 256
#define SCENARIO_SEQUENCE "_{sequence}" /* at the end of sfi.file-name */
#define SCENARIO_CPUS_MAX 16
#define SCENARIO_METADATA_MAX 12 /* an event file can contain 16, of which evb itself uses 4 */
#define SCENARIO_AUTO 0          /* `auto` as the value of a number */
#define SCENARIO_UNCHANGED UINT32_MAX
#define SCENARIO_UNBOUNDED UINT32_MAX /* sfi.retries = auto */
#define SCENARIO_MAX UINT64_MAX       /* trigger.rate = max */
#define SCENARIO_MTU_BYTES 1500       /* network.mtu = auto: of a path that is not known to carry more */
/* Size requested from the kernel if network.socket-buffer = auto. */
#define SCENARIO_SEND_BUFFER_BYTES (1u << 20)
#define SCENARIO_UNLIMITED 0 /* network.link-rate = unlimited */
#define SCENARIO_TOGETHER 1  /* test.pacing = together */
/* run.number = next. Its low 32 bits are 0, like `auto`: the DFM chooses. */
#define SCENARIO_NEXT (UINT64_C(1) << 32)

enum scenario_mode { MODE_PUSH, MODE_PULL };
enum scenario_transport { TRANSPORT_UDP, TRANSPORT_TCP };
enum scenario_output { OUTPUT_NULL, OUTPUT_FILE, OUTPUT_LIVE };
enum scenario_format { FORMAT_EFORMAT3, FORMAT_EFORMAT5 };
enum scenario_durability { DURABILITY_NONE, DURABILITY_WRITTEN, DURABILITY_SYNCED };
enum scenario_slow_disk { SLOW_DISK_WAIT, SLOW_DISK_DROP };
enum scenario_page_cache { PAGE_CACHE_DROP, PAGE_CACHE_KEEP, PAGE_CACHE_BYPASS };
/* In the order of the words of scenario.transport. */
enum scenario_congestion {
        CONGESTION_AUTO,
        CONGESTION_RENO,
        CONGESTION_CUBIC,
        CONGESTION_BBR,
        CONGESTION_DCTCP
};
enum { QOS_OFFLOAD_REQUIRED = 2 }; /* the last word of qos.offload */
enum scenario_qos { QOS_NONE, QOS_AUTO, QOS_HTB, QOS_HTB_TBF, QOS_CBQ_TBF, QOS_EDT, QOS_SOCKET };
enum scenario_trigger { TRIGGER_INTERNAL, TRIGGER_UDP, TRIGGER_CLOCK, TRIGGER_FRAMES };
enum scenario_metrics { METRICS_NONE, METRICS_TCP, METRICS_UNIX };
enum scenario_control { CONTROL_NONE, CONTROL_TCP, CONTROL_UNIX };
enum scenario_start { START_AUTO, START_MANUAL };
enum scenario_source { SOURCE_PATTERN, SOURCE_FILE, SOURCE_UDP, SOURCE_TCP };

/* The format of a board's frames. */
struct scenario_board {
        struct frame_rule frame;
        struct number_field number; /* 0 bits: frames are counted */
        struct number_field time;   /* 0 bits: frames carry no times */
        int64_t number_from;        /* the counter value of trigger number 0 */
        bool follows;               /* slices follow the drift of the board's clock */
        uint64_t time_window_ns;    /* frames match triggers whose time is so near; 0: they are in slices */
        uint64_t tick_ns;           /* duration of a unit of `time` */
        struct join_rule join;      /* which frames form a fragment */
};

struct scenario_node {
        char name[32];
        enum node_role role;
        unsigned index;   /* index among the nodes of its role */
        char address[64]; /* "": not set yet */
        char device[32];
        unsigned cpus[SCENARIO_CPUS_MAX];
        size_t n_cpus;
        bool cpus_auto; /* the node's process sets the list above, see machine_share_processors() */
        unsigned line;
        bool has_role;
        /* For a ROS: its source of fragments. This is the source of [ros] unless the node sets its own
         * (has_source). */
        bool has_source;
        enum scenario_source source_kind;
        char source_at[SCENARIO_TEXT_MAX]; /* path; port, or host and port */
        uint32_t source_id;                /* ID in the event format; SCENARIO_AUTO: evb's own ID */
        bool required;                     /* events without its fragment are partial */
        uint64_t wait_ns;  /* how long an event may wait for its fragment; 0: until sfi.timeout */
        unsigned own_keys; /* keys of `board` that the node itself sets: bits of enum conf_node_key */
        struct scenario_board board; /* keys that the node does not set are from [ros] */
};

struct scenario {
        char path[SCENARIO_TEXT_MAX];
        struct {
                char name[SCENARIO_TEXT_MAX];
                bool is_named; /* by scenario.name; otherwise `name` is from the file's name */
                uint64_t mode, transport_choice, duration_ns;
                /* Derived from transport_choice: */
                enum scenario_transport transport;
                enum scenario_congestion congestion;
        } scenario;
        struct {
                uint64_t rate_millihertz, events, kind;
                char source[SCENARIO_TEXT_MAX];
                char busy_to[SCENARIO_TEXT_MAX]; /* "none", or address and port */
                /* Parsed from `source`: */
                enum scenario_trigger source_kind;
                uint16_t port;
                char group[64];                 /* "": the trigger box sends to the address of the DFM */
                char leader[SCENARIO_TEXT_MAX]; /* "any", or the name of a ROS */
                uint64_t slice_ns, overlap_ns, window_ns;
        } trigger;
        struct {
                uint64_t keep_alive_ns, node_timeout_ns;
                uint64_t start_timeout_ns; /* SCENARIO_AUTO: node_timeout_ns */
                /* Derived from sfi.timeout and node_timeout_ns: */
                uint64_t event_timeout_ns, lost_after_ns;
        } dfm;
        struct {
                char listen[SCENARIO_TEXT_MAX], stand_in[SCENARIO_TEXT_MAX];
                char regions[SCENARIO_TEXT_MAX], timeout[SCENARIO_TEXT_MAX];
                uint64_t timeout_ns;   /* from `timeout` */
                bool rejects;          /* from `timeout`: events without a decision are rejected */
                uint16_t port;         /* from `listen`; 0: no level 2 */
                uint16_t regions_port; /* from `regions`; 0: clients request no fragments */
        } level2;
        struct {
                uint64_t count, fragment_size_bytes, buffer_size_bytes, buffer_events, pacing;
                /* Derived from `pacing`: */
                uint64_t pacing_bps; /* 0: none */
                bool stagger;        /* each ROS starts its rounds at a different SFI */
                uint64_t wait_ns;    /* SCENARIO_AUTO: derived from sfi.timeout */
                char source[SCENARIO_TEXT_MAX];
                char fragment_size[SCENARIO_TEXT_MAX];
                char frame[SCENARIO_TEXT_MAX];
                char event_number[SCENARIO_TEXT_MAX];
                char number_from[SCENARIO_TEXT_MAX];
                char event_time[SCENARIO_TEXT_MAX];
                char fragments[SCENARIO_TEXT_MAX];
                uint64_t tick_ns;
                /* Parsed from the text values: */
                struct scenario_board board; /* for nodes that do not set these keys */
                enum scenario_source source_kind;
                char source_at[SCENARIO_TEXT_MAX]; /* path, port, or host and port */
                unsigned sizes_kind;               /* 0 fixed, 1 uniform, 2 lognormal */
                uint64_t sizes_least_bytes, sizes_most_bytes;
                double sizes_mean_bytes, sizes_sigma;
        } ros;
        struct {
                uint64_t count, output, file_events, file_size_bytes, format, credits, outstanding,
                        buffer_size_bytes;
                uint64_t timeout_ns, retries, durability, page_cache, slow_disk;
                char directory[SCENARIO_TEXT_MAX];
                char file_name[SCENARIO_TEXT_MAX]; /* "atlas", or a pattern that ends in SCENARIO_SEQUENCE */
        } sfi;
        struct {
                uint64_t link_rate_bps, mtu_bytes, switch_buffer_bytes, control_port;
                uint64_t socket_buffer_bytes;
                uint64_t busy_poll_ns; /* 0: no polling */
                double loss, reorder, duplicate;
                char control_group[SCENARIO_TEXT_MAX];
                char clients[SCENARIO_TEXT_MAX];
                char dscp[SCENARIO_TEXT_MAX];
                uint8_t control_dscp, data_dscp;  /* from `dscp`; 0: as the kernel sends without it */
                char key_file[SCENARIO_TEXT_MAX]; /* "": none */
        } network;
        struct {
                uint64_t backend_choice, rate_bps, burst_bytes, limit_bytes, control_rate_bps, overhead_bytes;
                uint64_t offload; /* as enum tc_offload */
                /* Derived from backend_choice: see scenario_set_backend(). */
                enum scenario_qos backend;
                bool required; /* a ROS that cannot shape refuses to run */
        } qos;
        struct {
                char listen[SCENARIO_TEXT_MAX];
                uint64_t all; /* whether consumers may use mode all */
        } live;
        struct {
                char listen[SCENARIO_TEXT_MAX];
                /* Parsed from `listen`: */
                enum scenario_metrics kind;
                uint16_t port;
        } metrics;
        struct {
                char listen[SCENARIO_TEXT_MAX];
                char token_file[SCENARIO_TEXT_MAX]; /* "": none */
                /* Parsed from `listen`: */
                enum scenario_control kind;
                uint16_t port;
        } control;
        struct {
                uint64_t number, seed, stop_timeout_ns, stall_timeout_ns, start; /* enum scenario_start */
        } run;
        struct {
                uint64_t level; /* enum log_level */
        } log;
        /* [metadata]: user-defined names and values for event files and the record of the run. */
        struct scenario_metadata {
                char name[64];
                char value[192]; /* so that NAME=VALUE fits into a record of an event file */
        } metadata[SCENARIO_METADATA_MAX];
        size_t n_metadata;
        /* From the counts, or from [node NAME] sections. Entries from index n_nodes are undefined. */
        struct scenario_node nodes[1 + EVB_ROS_MAX + EVB_SFI_MAX];
        size_t n_nodes;
};

#define SCENARIO_ERRORS_MAX 20

#define SCENARIO_WARNINGS_MAX 20

struct scenario_errors {
        size_t n; /* all errors; only the first SCENARIO_ERRORS_MAX have a text */
        char text[SCENARIO_ERRORS_MAX][512];
        size_t n_warnings; /* e.g. for old names of keys */
        char warnings[SCENARIO_WARNINGS_MAX][512];
};

/* -EINVAL: *errors contains the errors, each as `FILE:LINE: SECTION.KEY: reason; expected ...`. Another
 * negative errno: the file cannot be read. Fills in the warnings in either case. A scenario is large, so
 * allocate it. */
int scenario_load(struct scenario *ret, const char *path, const char *const *settings, size_t n_settings,
                  struct scenario_errors *errors);
/* Checks the keys of a loaded scenario against each other again. -EINVAL or -ENOMEM, like scenario_load(). */
int scenario_check(struct scenario *s, struct scenario_errors *errors);
/* Sets qos.backend to a value of its key: an enum scenario_qos, or from QOS_SOCKET + 1 on those with
 * :optional. */
void scenario_set_backend(struct scenario *s, uint64_t choice);
/* Writes a file that loads as the same scenario. */
void scenario_write(const struct scenario *s, FILE *to);

const char *scenario_role_name(enum node_role role); /* "dfm", "ros", "sfi" */
#define SCENARIO_RUN_MAX 80
/* Returns the name of a run in messages: "run 42", or "run 42 of beam" if scenario.name is set. */
const char *scenario_run_name(const struct scenario *s, uint32_t run, char text[static SCENARIO_RUN_MAX]);
const struct scenario_node *scenario_find(const struct scenario *s, const char *name);
unsigned scenario_count(const struct scenario *s, enum node_role role);
/* The size of packets that each path must carry. */
static inline uint64_t scenario_mtu_bytes(const struct scenario *s)
{
        return s->network.mtu_bytes == SCENARIO_AUTO ? SCENARIO_MTU_BYTES : s->network.mtu_bytes;
}

/* The UDP or TCP port on which SFIs receive fragments. */
static inline uint16_t scenario_data_port(const struct scenario *s)
{
        return (uint16_t)(s->network.control_port + 1);
}
const struct scenario_node *scenario_node_of(const struct scenario *s, enum node_role role, unsigned index);
/* The parts of test.stand-in. False: the text is invalid. */
struct scenario_stand_in {
        char accept[32], latency[32], regions[32]; /* regions: may be empty */
};

bool scenario_split_stand_in(const char *text, struct scenario_stand_in *ret);
/* Whether all ROSs have sources of this kind. */
bool scenario_all_from(const struct scenario *s, enum scenario_source kind);
/* Whether any ROS has a front-end. */
bool scenario_has_front_ends(const struct scenario *s);
bool scenario_has_front_end(const struct scenario_node *n);
/* How long an event waits for the frame of this ROS. */
uint64_t scenario_wait_ns(const struct scenario *s, const struct scenario_node *n);
/* Number of source IDs of a ROS: one, or as many as boards in its stream may have. */
uint32_t scenario_number_of_ids(const struct scenario_node *n);
/* Number of sources whose fragments an event may have: the ROSs, or the boards in the stream of a ROS. */
uint32_t scenario_sources(const struct scenario *s);
/* Whether frames with times are collected in slices, and the boards' times make the events. */
bool scenario_has_slices(const struct scenario *s);
/* Whether the frames of its board match triggers by their times. */
bool scenario_matches_times(const struct scenario_node *n);
/* Returns the period of the numbers that match the frames or slices of a ROS to events, at most
 * NUMBER_PERIOD_MAX; 0: frames are counted. If frames make the triggers, returns the common period of all
 * boards. */
uint64_t scenario_number_period(const struct scenario *s, const struct scenario_node *n);
/* Whether any ROS counts the frames of its board. */
bool scenario_counts_frames(const struct scenario *s);
/* Whether the ROS announces the numbers of its frames, from which the DFM makes events. */
bool scenario_leads(const struct scenario *s, const struct scenario_node *n);
/* The event file from which events get their headers: the file of the first ROS; NULL: not all ROSs replay
 * files. */
const char *scenario_replayed_file(const struct scenario *s);
/* Determines which source of the file a ROS replays: its rank among the ROSs that replay the same file. */
unsigned scenario_rank_in_file(const struct scenario *s, const struct scenario_node *n);
/* Formats the place at which a node serves its metrics: "HOST:PORT" or "unix:PATH". False: the node serves
 * none. */
bool scenario_metrics_place(const struct scenario *s, const struct scenario_node *n,
                            char text[static SCENARIO_TEXT_MAX]);
/* The value of metrics.listen for a node if all nodes share one machine. The DFM uses a host and port, or a
 * path that does not contain the node's name; the others use the next ports, or add their name as an
 * extension. False: there is no such port, or the path is too long. */
bool scenario_metrics_beside(const struct scenario *s, const struct scenario_node *n,
                             char text[static SCENARIO_TEXT_MAX]);
/* Formats the address of a node's metrics: the one at which the node serves them or, if only nodes of one
 * machine can share metrics.listen, that of scenario_metrics_beside(). False: there are no metrics, or only
 * evb run knows the address. */
bool scenario_metrics_reach(const struct scenario *s, const struct scenario_node *n,
                            char text[static SCENARIO_TEXT_MAX]);
/* Sets `name` to `value` in the list of *n entries, and appends it if the name is new. Returns NULL, or the
 * reason for a rejection: "invalid name; expected ...". */
const char *scenario_metadata_put(struct scenario_metadata list[static SCENARIO_METADATA_MAX], size_t *n,
                                  const char *name, const char *value);
/* Formats the place at which an SFI listens for consumers of live events: "HOST:PORT" or "unix:PATH". False:
 * there is none. */
bool scenario_live_place(const struct scenario *s, const struct scenario_node *n,
                         char text[static SCENARIO_TEXT_MAX]);
/* The value of live.listen for a node if all nodes share one machine: SFIs have consecutive ports. False:
 * there is no such port. */
bool scenario_live_beside(const struct scenario *s, const struct scenario_node *n,
                          char text[static SCENARIO_TEXT_MAX]);
/* Formats the place at which the DFM listens for run control: "HOST:PORT" or "unix:PATH". False: there is
 * none, or its address is unknown. */
bool scenario_control_place(const struct scenario *s, char text[static SCENARIO_TEXT_MAX]);
/* Formats the source in the syntax of the file; returns `text`. */
char *scenario_source_text(const struct scenario_node *n, char text[static SCENARIO_TEXT_MAX]);

/* A scenario with its effective values as JSON, for reports and records. */

/* Returns {SECTION: {KEY: "VALUE"}, "metadata": {NAME: "VALUE"}, "nodes": [...]}; the values are written as
 * in a file. */
json_t *scenario_to_json(const struct scenario *s);
json_t *scenario_metadata_to_json(const struct scenario_metadata *list, size_t n);
