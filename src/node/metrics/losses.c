/* Sums losses by place. It keeps the counts of two times at least 5 s apart: losses since the older time are
 * recent. */
#include "losses.h"

#include <math.h>

#define DFM COUNTER_ROLE(ROLE_DFM)
#define ROS COUNTER_ROLE(ROLE_ROS)
#define SFI COUNTER_ROLE(ROLE_SFI)

const struct loss_place_text loss_places[LOSS_PLACES] = {
        [LOSS_TRIGGER_INPUT] = {"Trigger input", "trigger", DFM, NULL, NULL},
        [LOSS_FRAME_SOCKET] = {"ROS, socket for boards", "packet", ROS, NULL, NULL},
        [LOSS_FRAMES] = {"Front-end to ROS", "frame", ROS, NULL, NULL},
        [LOSS_SOURCE_QDISC] = {"ROS, shaping queue", "packet", ROS, "source_qdisc_packets", "source queue"},
        [LOSS_SEND_FAILED] = {"ROS, refused by the kernel", "packet", ROS, "send_failed_packets",
                              "refused by the kernel"},
        [LOSS_NETWORK] = {"Network and switch", "packet", SFI, "network_packets", "network"},
        [LOSS_SOCKET] = {"Receive socket", "packet", SFI, "socket_packets", "socket"},
        [LOSS_FOREIGN] = {"Foreign or malformed", "packet", DFM | ROS | SFI, NULL, NULL},
        [LOSS_MISSING] = {"SFI, fragment missing", "fragment", SFI, NULL, NULL},
        [LOSS_CORRUPT] = {"SFI, fragment corrupt", "fragment", SFI, NULL, NULL},
        [LOSS_DISK] = {"SFI, disk too slow", "event", SFI, NULL, NULL},
        [LOSS_PARTIAL] = {"Events partial", "event", DFM, NULL, NULL},
        [LOSS_LOST] = {"Events lost", "event", DFM, NULL, NULL},
};

/* In a ROS, the socket receives the boards' data. */
enum loss_place losses_place_of(const struct counter *c, enum node_role role)
{
        enum loss_place place = c->place == LOSS_SOCKET && role == ROLE_ROS ? LOSS_FRAME_SOCKET : c->place;

        return loss_places[place].roles & COUNTER_ROLE(role) ? place : LOSS_NOWHERE;
}

bool losses_are_events(const struct counter *c)
{
        return c->place == LOSS_DISK || c->place == LOSS_PARTIAL || c->place == LOSS_LOST;
}

void losses_begin(double total[static LOSS_PLACES])
{
        for (size_t i = 0; i < LOSS_PLACES; i++)
                total[i] = NAN;
}

/* An unknown value counts as 0, unless all are unknown. */
void losses_add(double total[static LOSS_PLACES], const double node[static LOSS_PLACES])
{
        for (size_t i = 0; i < LOSS_PLACES; i++) {
                if (!isnan(node[i]))
                        total[i] = isnan(total[i]) ? node[i] : total[i] + node[i];
        }
}

/* Subtracts the losses `others` from losses that include them. */
static double without(double from, double others)
{
        return isnan(others) ? from : others > from ? 0 : from - others;
}

/* Packets that the kernel of a ROS refused to send have sequence numbers, so an SFI counts them as lost in
 * the network. */
void losses_end(double total[static LOSS_PLACES])
{
        total[LOSS_NETWORK] = without(total[LOSS_NETWORK], total[LOSS_SEND_FAILED]);
}

void losses_of_node(const struct scenario *s, enum node_role role, const uint64_t counts[static COUNTERS],
                    double ret[static LOSS_PLACES])
{
        losses_begin(ret);
        for (size_t i = 0; i < COUNTERS; i++) {
                enum loss_place place = losses_place_of(&stats_table[i], role);

                if (place != LOSS_NOWHERE)
                        ret[place] = (isnan(ret[place]) ? 0 : ret[place]) + (double)counts[i];
        }
        ret[LOSS_NETWORK] =
                s->scenario.transport == TRANSPORT_UDP ? without(ret[LOSS_NETWORK], ret[LOSS_SOCKET]) : NAN;
        if (s->qos.backend == QOS_NONE)
                ret[LOSS_SOURCE_QDISC] = NAN;
}

static bool differs(const struct losses_sample *a, const struct losses_sample *b, size_t counter)
{
        return a->counts[counter] != b->counts[counter];
}

/* Whether events ended partial or lost between the samples. */
static bool has_bad(const struct losses_sample *a, const struct losses_sample *b)
{
        return differs(a, b, COUNTER_events_partial) || differs(a, b, COUNTER_events_lost);
}

/* If events are rare, the window is extended as long as all of them were bad, because nothing indicates that
 * the next events will be better. */
static bool keeps_window(const struct losses *l, const struct losses_sample *now)
{
        bool ended = differs(&l->newer, now, COUNTER_events_complete) || has_bad(&l->newer, now);

        return !ended && !differs(&l->older, now, COUNTER_events_complete) && has_bad(&l->older, now);
}

bool losses_record(struct losses *l, const struct losses_sample *now)
{
        bool due;

        if (l->newer.now_ns == 0)
                l->older.now_ns = l->newer.now_ns = now->now_ns;
        l->now = *now;
        due = now->now_ns - l->newer.now_ns >= LOSSES_STEP_NS && !keeps_window(l, now);
        if (due) {
                l->older = l->newer;
                l->newer = *now;
        }
        return due;
}

/* A count may decrease, because packets that were only late are no longer lost. */
static uint64_t gained(uint64_t before, uint64_t now)
{
        return now > before ? now - before : 0;
}

struct losses_sample losses_recent(const struct losses *l)
{
        struct losses_sample recent = {.now_ns = l->older.now_ns};

        for (size_t i = 0; i < COUNTERS; i++)
                recent.counts[i] = gained(l->older.counts[i], l->now.counts[i]);
        return recent;
}
