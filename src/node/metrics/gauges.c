/* The table of gauges, and the table of figures for each pair of nodes. */
#include "openmetrics.h"

#include <string.h>

#define DFM COUNTER_ROLE(ROLE_DFM)
#define ROS COUNTER_ROLE(ROLE_ROS)
#define SFI COUNTER_ROLE(ROLE_SFI)

#define SHARED(member)                                                                                       \
        static uint64_t read_##member(const struct metrics_view *v)                                          \
        {                                                                                                    \
                return v->shared->member;                                                                    \
        }
SHARED(open_events)
SHARED(busy)
SHARED(waiting_triggers)
SHARED(credits)
SHARED(unwritten_events)
SHARED(rate_permille)
SHARED(held_fragments)
SHARED(mtu_failed_paths)
SHARED(buffer_used_bytes)
SHARED(shaped)
SHARED(board_ahead_ns)
SHARED(board_drift_ppb)

static uint64_t read_front_end_missing(const struct metrics_view *v)
{
        return v->shared->front_end == REASON_NO_FRONT_END;
}

static uint64_t read_front_end_silent(const struct metrics_view *v)
{
        return v->shared->front_end == REASON_SILENT;
}

static uint64_t read_front_end_out_of_step(const struct metrics_view *v)
{
        return v->shared->front_end == REASON_OUT_OF_STEP;
}

static uint64_t read_buffer_size(const struct metrics_view *v)
{
        return v->self->role == ROLE_ROS ? v->scenario->ros.buffer_size_bytes
                                         : v->scenario->sfi.buffer_size_bytes;
}

static uint64_t read_shaping_expected(const struct metrics_view *v)
{
        return v->scenario->qos.backend != QOS_NONE;
}

static bool has_rate(const struct metrics_view *v)
{
        return v->shared->rate_permille > 0;
}

static bool has_board_clock(const struct metrics_view *v)
{
        return v->shared->board_clock_known;
}

static uint64_t read_disk_free(const struct metrics_view *v)
{
        return v->disk.free_bytes;
}

static uint64_t read_disk_size(const struct metrics_view *v)
{
        return v->disk.size_bytes;
}

static bool has_disk(const struct metrics_view *v)
{
        return v->disk.known;
}

static uint64_t read_disk_left(const struct metrics_view *v)
{
        return v->disk_left_s;
}

static bool has_disk_left(const struct metrics_view *v)
{
        return v->disk_left_s > 0;
}

bool gauges_is_shaped_by_plan(const struct metrics_view *v)
{
        return v->self->role == ROLE_ROS && v->scenario->qos.backend != QOS_NONE;
}

const struct gauge gauges[GAUGES] = {
        {"open_events", NULL, NULL, "events that have begun and not ended", DFM | SFI,
         .read = read_open_events},
        {"busy", NULL, NULL, "1 while triggers are held back, otherwise 0", DFM, true, read_busy},
        {"waiting_triggers", NULL, NULL, "triggers that wait for a free credit", DFM,
         .read = read_waiting_triggers},
        {"credits", NULL, NULL, "events that the SFI can take at a time", SFI, .read = read_credits},
        {"unwritten_events", NULL, NULL, "built events that wait until they are written", SFI,
         .read = read_unwritten_events},
        {"rate_permille", NULL, NULL,
         "share of the planned rate at which ROSs send to the SFI, in thousandths", SFI, false,
         read_rate_permille, has_rate},
        {"held_fragments", NULL, NULL, "fragments in the buffer that are not cleared", ROS,
         .read = read_held_fragments},
        {"mtu_failed_paths", NULL, NULL, "nodes that packets of network.mtu do not reach, but short ones do",
         ROS, .read = read_mtu_failed_paths},
        {"front_end_missing", NULL, NULL, "1 while the front-end is not connected, otherwise 0", ROS, true,
         read_front_end_missing},
        {"front_end_silent", NULL, NULL, "1 while events wait and the front-end sends nothing, otherwise 0",
         ROS, true, read_front_end_silent},
        {"front_end_out_of_step", NULL, NULL,
         "1 while the numbers of the front-end do not follow the triggers, otherwise 0", ROS, true,
         read_front_end_out_of_step},
        {"board_ahead_ns", "board_ahead_seconds", "seconds",
         "time by which the clock of the board is ahead of UTC as this machine has it", ROS, false,
         read_board_ahead_ns, has_board_clock, true},
        {"board_drift_ppb", "board_drift_ratio", "ratio",
         "time that the clock of the board gains in a second of this machine's", ROS, false,
         read_board_drift_ppb, has_board_clock, true},
        {"buffer_size_bytes", NULL, "bytes", "memory for fragments", ROS | SFI, .read = read_buffer_size},
        {"buffer_used_bytes", NULL, "bytes", "memory that fragments use", ROS | SFI,
         .read = read_buffer_used_bytes},
        {NULL, "shaping_expected", NULL, "1 if the scenario asks for shaping, otherwise 0", ROS, true,
         read_shaping_expected},
        {"shaped", "shaping_installed", NULL, "1 if the shaping is in the kernel as planned, otherwise 0",
         ROS, true, read_shaped, gauges_is_shaped_by_plan},
        {"output_free_bytes", NULL, "bytes", "free bytes of the file system of sfi.directory, for this user",
         SFI, false, read_disk_free, has_disk},
        {"output_size_bytes", NULL, "bytes", "size of the file system of sfi.directory", SFI, false,
         read_disk_size, has_disk},
        {"output_left_seconds", NULL, "seconds",
         "time until the file system of sfi.directory is full at the present rate", SFI, false,
         read_disk_left, has_disk_left},
};

#define PEER(self, peer, key, type, metric, unit, help, member)                                              \
        {                                                                                                    \
                self, peer, key, type, metric, unit, help, offsetof(struct metrics_peer, member), false,     \
                        false                                                                                \
        }
#define LIVE(peer, key, member)                                                                              \
        {                                                                                                    \
                ROLE_DFM, peer, key, METRICS_GAUGE, NULL, NULL, NULL, offsetof(struct metrics_peer, member), \
                        false, true                                                                          \
        }
#define SHAPED(key, type, metric, unit, help, member)                                                        \
        {                                                                                                    \
                ROLE_ROS, ROLE_SFI, key, type, metric, unit, help, offsetof(struct metrics_shaped, member),  \
                        true, false                                                                          \
        }

const struct peer_figure peer_figures[PEER_FIGURES] = {
        LIVE(0, "live", live),
        LIVE(ROLE_ROS, "xoff", xoff),
        PEER(ROLE_DFM, ROLE_SFI, "free_credits", METRICS_GAUGE, "evb_free_credits", NULL,
             "events that the DFM can assign to an SFI now", free_credits),
        PEER(ROLE_DFM, ROLE_SFI, "held", METRICS_GAUGE, NULL, NULL, NULL, held),
        PEER(ROLE_ROS, ROLE_SFI, "fragments", METRICS_COUNTER, "evb_pair_fragments_sent", NULL,
             "fragments, and answers without one, that a ROS sent to an SFI", fragments),
        PEER(ROLE_ROS, ROLE_SFI, "bytes", METRICS_COUNTER, "evb_pair_sent_bytes", "bytes",
             "payload that a ROS sent to an SFI", bytes),
        PEER(ROLE_ROS, ROLE_SFI, "queued_bytes", METRICS_GAUGE, "evb_pair_queued_bytes", "bytes",
             "payload that waits in a ROS for an SFI", queued_bytes),
        PEER(ROLE_SFI, ROLE_ROS, "fragments", METRICS_COUNTER, "evb_pair_fragments_received", NULL,
             "fragments of a ROS that an SFI received for the ended events", fragments),
        PEER(ROLE_SFI, ROLE_ROS, "bytes", METRICS_COUNTER, "evb_pair_received_bytes", "bytes",
             "payload of the fragments of a ROS that an SFI received for the ended events", bytes),
        PEER(ROLE_SFI, ROLE_ROS, "fragments_lost", METRICS_COUNTER, "evb_pair_fragments_lost", NULL,
             "fragments of a ROS missing from the ended events", fragments_lost),
        PEER(ROLE_SFI, ROLE_ROS, "fragments_absent", METRICS_COUNTER, "evb_pair_fragments_optional", NULL,
             "fragments of an optional ROS that the ended events do without", fragments_absent),
        PEER(ROLE_SFI, ROLE_ROS, NULL, METRICS_COUNTER, "evb_pair_packets_received", NULL,
             "data datagrams of a ROS that an SFI received", packets),
        PEER(ROLE_SFI, ROLE_ROS, "packets_lost", METRICS_COUNTER, "evb_pair_packets_lost", NULL,
             "data datagrams of a ROS missing by their sequence numbers", packets_lost),
        SHAPED("rate_bps", METRICS_GAUGE, NULL, NULL, NULL, rate_bps),
        SHAPED("bytes", METRICS_COUNTER, "evb_shaping_sent_bytes", "bytes",
               "bytes to an SFI that the shaping let pass", bytes),
        SHAPED("packets", METRICS_COUNTER, "evb_shaping_packets_sent", NULL,
               "packets to an SFI that the shaping let pass", packets),
        SHAPED("drops", METRICS_COUNTER, "evb_shaping_packets_dropped", NULL,
               "packets to an SFI that the shaping dropped", drops),
        SHAPED(NULL, METRICS_COUNTER, "evb_shaping_overlimits", NULL,
               "times that packets to an SFI had to wait for the shaping", overlimits),
        SHAPED("backlog_bytes", METRICS_GAUGE, "evb_shaping_backlog_bytes", "bytes",
               "bytes in the shaping's queue to an SFI", backlog_bytes),
        SHAPED("limit_bytes", METRICS_GAUGE, "evb_shaping_limit_bytes", "bytes",
               "largest size of the shaping's queue to an SFI", limit_bytes),
};

uint64_t peer_figure_read(const struct peer_figure *f, const struct metrics_view *v, size_t node)
{
        const void *from = f->is_shaped ? (const void *)&v->shared->shapings[node] : &v->shared->peers[node];
        uint64_t value;

        if (f->is_flag)
                return *(const bool *)((const char *)from + f->offset);
        memcpy(&value, (const char *)from + f->offset, sizeof value);
        return value;
}
