/* Receives trigger datagrams. Their sequence numbers reveal losses; the core checks the numbers of the
 * triggers themselves. */
#include "data/trigger_input.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/util.h"
#include "data/network.h"
#include "data/socket_open.h"
#include "net/endpoint.h"
#include "protocol/sequence.h"

#define RECEIVE_BUFFER_BYTES (4u << 20)
/* Limits of one turn, so that a flood does not starve the rest of the DFM. */
#define BATCHES_MAX 16
#define DATAGRAMS_MAX 8 /* of a batch */
#define TRIGGERS_MAX 8192
/* Enough turns for all datagrams that the socket holds. Each of them needs more than 256 bytes of the buffer
 * that was requested: half of what the kernel counts. */
#define CATCH_UP_TURNS (RECEIVE_BUFFER_BYTES / 256 / (BATCHES_MAX * DATAGRAMS_MAX))
/* During this time, the network may repeat the first datagram of a sender, or deliver a datagram that the
 * first one overtook. Later, such a datagram means that the sender has restarted. */
#define RESTART_AFTER_NS NS_PER_S

struct trigger_input {
        struct dfm *core;
        struct node_stats *stats;
        struct loop *loop;
        struct loop_io io;
        struct endpoint *endpoint;
        bool ready;
        struct sequence sequence;
        uint32_t reset_sequence; /* sequence number of the datagram with the last reset */
        bool was_reset;
        uint64_t began_ns; /* when datagram 0 last arrived; 0: never */
        uint64_t first_ns; /* when the first datagram of the present sender arrived */
        /* Of the first trigger that this process received: its number, and the sequence number of the first
         * datagram up to it. */
        bool has_number, number_is_final, was_reset_before;
        uint64_t first_number;
        uint32_t first_sequence;
        uint64_t late, dropped; /* datagrams that this process counted; the counters include those of previous
                                   DFMs */
        /* Digests of the newest datagrams, by sequence number. A repeated datagram has the same triggers. */
        uint64_t digests[SEQUENCE_WINDOW];
        /* When such datagrams last arrived; 0: never. */
        uint64_t other_run_ns, repeated_ns, late_ns, restarted_ns, unusable_ns;
};

int trigger_input_new(struct trigger_input **ret, const struct data_context *c, struct dfm *core)
{
        struct udp_config config = {.receive_buffer_bytes = RECEIVE_BUFFER_BYTES};
        struct trigger_input *t = calloc(1, sizeof *t);
        char text[NET_ADDRESS_TEXT_MAX];
        struct net_address group;
        int r;

        if (!t)
                return log_error_errno(ENOMEM, "trigger: %m");
        *t = (struct trigger_input){.core = core, .stats = c->stats, .loop = c->loop};
        r = network_node_address(&config.local, c->self, c->scenario->trigger.port);
        if (network_trigger_group(&group, c->scenario) >= 0)
                config.group = &group;
        if (r >= 0)
                r = socket_open_udp(&t->endpoint, &config, "triggers");
        if (r >= 0) {
                socket_log_buffer(SOCKET_RECEIVE, "triggers", true, config.receive_buffer_bytes,
                                  t->endpoint->granted_receive_bytes);
                t->io = (struct loop_io){
                        .fd = t->endpoint->fd, .events = EPOLLIN, .ready = loop_set_flag, .ctx = &t->ready};
                r = loop_add(t->loop, &t->io);
        }
        if (r < 0) {
                trigger_input_free(t);
                return r;
        }
        log_info("expecting triggers at %s", net_address_format(config.group ?: &config.local, text));
        *ret = t;
        return 0;
}

struct trigger_input *trigger_input_free(struct trigger_input *t)
{
        if (t)
                endpoint_free(t->endpoint);
        free(t);
        return NULL;
}

static void log_repeated(struct trigger_input *t, uint64_t now_ns, const struct trigger_entry *e)
{
        if (log_is_new_fault(&t->repeated_ns, now_ns))
                log_error("trigger %" PRIu64
                          " came before, or the numbers went back without a counter reset (flag 4); it "
                          "counts as repeated and makes no event, as frames could belong to either trigger",
                          e->number);
}

static void offer(struct trigger_input *t, uint64_t now_ns, const struct trigger_packet *p, bool is_overtaken)
{
        for (unsigned k = 0; k < p->n; k++) {
                struct trigger_entry e = trigger_packet_entry(p, k);
                enum dfm_offer verdict;

                if (e.flags & TRIGGER_RESET) {
                        t->reset_sequence = p->sequence;
                        t->was_reset = true;
                }
                verdict = is_overtaken ? dfm_offer_overtaken(t->core, now_ns, &e)
                                       : dfm_offer(t->core, now_ns, &e);
                if (verdict == OFFER_REPEATED)
                        log_repeated(t, now_ns, &e);
        }
}

static uint64_t add_digest(uint64_t d, uint64_t value)
{
        d = (d ^ value) * UINT64_C(0x9E3779B97F4A7C15);
        return d ^ d >> 32;
}

/* Returns a digest of the members that identify its triggers. A board that sends a datagram twice may change
 * their times. */
static uint64_t digest(const struct trigger_packet *p)
{
        uint64_t d = add_digest(1, p->sequence);

        for (unsigned k = 0; k < p->n; k++) {
                struct trigger_entry e = trigger_packet_entry(p, k);

                d = add_digest(add_digest(d, e.number), (uint64_t)e.type << 32 | e.flags);
        }
        return d | 1;
}

/* A restarted sender begins with datagram 0, and resets the counters. */
static bool begins_again(const struct trigger_input *t, uint64_t now_ns, const struct trigger_packet *p,
                         bool is_known)
{
        return p->sequence == 0 && p->n > 0 && trigger_packet_entry(p, 0).flags & TRIGGER_RESET &&
               t->sequence.started &&
               (!is_known || t->began_ns == 0 || now_ns - t->began_ns >= RESTART_AFTER_NS);
}

static void begin(struct trigger_input *t, uint64_t now_ns, uint32_t sequence)
{
        sequence_begin(&t->sequence, sequence);
        t->first_ns = now_ns;
        t->was_reset = false;
        t->number_is_final = t->has_number;
}

/* The sequence number was used before, with other triggers, so the sender has restarted and continues the
 * triggers. */
static enum sequence_verdict follow(struct trigger_input *t, uint64_t now_ns, uint32_t sequence)
{
        if (log_is_new_fault(&t->restarted_ns, now_ns))
                log_warning("the trigger box counts its datagrams from %u again; its triggers are taken if "
                            "their numbers go on",
                            sequence);
        begin(t, now_ns, sequence);
        return sequence_receive(&t->sequence, sequence);
}

static bool is_of_run(struct trigger_input *t, uint64_t now_ns, const struct trigger_packet *p)
{
        if (p->run == 0 || p->run == dfm_run(t->core))
                return true;
        stats_add(&t->stats->trigger_datagrams_other_run, 1);
        if (log_is_new_fault(&t->other_run_ns, now_ns))
                log_warning("triggers of run %u are ignored, as this is run %u", p->run, dfm_run(t->core));
        return false;
}

static void drop_late(struct trigger_input *t, uint64_t now_ns, const struct trigger_packet *p)
{
        stats_add(&t->stats->trigger_datagrams_late, 1);
        t->late++;
        if (log_is_new_fault(&t->late_ns, now_ns))
                log_error("datagram %u with %u triggers came after the counter reset that was sent behind "
                          "it; its triggers make no events",
                          p->sequence, p->n);
}

/* Whether a reset overtook the datagram, so that the numbers of the datagram are from before the reset. */
static bool is_overtaken_by_reset(const struct trigger_input *t, enum sequence_verdict verdict,
                                  uint32_t sequence)
{
        return verdict == SEQUENCE_LATE && t->was_reset && (int32_t)(sequence - t->reset_sequence) < 0;
}

/* Whether the datagram has a trigger after the first one, so the first datagram did not overtake it: the
 * sender has restarted, and continues the numbers. */
static bool continues(const struct trigger_input *t, const struct trigger_packet *p)
{
        for (unsigned k = 0; k < p->n && t->has_number && !t->number_is_final && !t->was_reset; k++) {
                struct trigger_entry e = trigger_packet_entry(p, k);

                if (!(e.flags & TRIGGER_MARKER))
                        return e.number > t->first_number;
        }
        return false;
}

/* Accepts a datagram that the first one overtook. False: the datagram is too late, or was not overtaken. */
static bool accept_preceding(struct trigger_input *t, uint64_t now_ns, const struct trigger_packet *p)
{
        if (now_ns - t->first_ns >= RESTART_AFTER_NS || continues(t, p) ||
            !sequence_precede(&t->sequence, p->sequence))
                return false;
        if (t->was_reset)
                drop_late(t, now_ns, p);
        else
                offer(t, now_ns, p, true);
        return true;
}

static void accept_following(struct trigger_input *t, uint64_t now_ns, const struct trigger_packet *p,
                             bool is_known)
{
        const struct sequence *q = &t->sequence;
        enum sequence_verdict verdict;

        if (!q->started || begins_again(t, now_ns, p, is_known))
                begin(t, now_ns, p->sequence);
        verdict = sequence_receive(&t->sequence, p->sequence);
        if (verdict == SEQUENCE_REPEAT && !is_known && p->sequence - q->first < q->next - q->first)
                verdict = follow(t, now_ns, p->sequence);
        /* From here on, every late datagram was sent after the reset. */
        if (verdict == SEQUENCE_NEW && p->sequence - t->reset_sequence >= SEQUENCE_WINDOW)
                t->was_reset = false;
        if (p->sequence == 0 && verdict != SEQUENCE_REPEAT)
                t->began_ns = now_ns;
        if (is_known && (verdict == SEQUENCE_REPEAT || verdict == SEQUENCE_SUSPECT))
                stats_add(&t->stats->trigger_datagrams_repeated, 1);
        else if (is_overtaken_by_reset(t, verdict, p->sequence))
                drop_late(t, now_ns, p);
        else
                offer(t, now_ns, p, verdict == SEQUENCE_LATE);
}

/* The first datagrams may arrive in any order. */
static void follow_first_number(struct trigger_input *t, const struct trigger_packet *p)
{
        /* A jump of the sequence moves it ahead. */
        bool is_lower = (int32_t)(t->sequence.first - t->first_sequence) < 0;

        if (!t->number_is_final && (!t->has_number || is_lower))
                t->first_sequence = t->sequence.first;
        for (unsigned k = 0; k < p->n && !t->number_is_final; k++) {
                struct trigger_entry e = trigger_packet_entry(p, k);

                t->was_reset_before |= !t->has_number && e.flags & TRIGGER_RESET;
                if (e.flags & TRIGGER_MARKER)
                        continue;
                t->first_number = t->has_number ? MIN(t->first_number, e.number) : e.number;
                t->has_number = true;
        }
}

/* Returns how many datagrams came while no DFM ran and certainly had no trigger: the box may have reported a
 * spill there. A datagram has at least one of the triggers that were missed or became events, unless the box
 * also sends empty datagrams. */
static uint64_t count_lost_markers(const struct trigger_input *t)
{
        const struct dfm_came *c = dfm_previous_came(t->core);
        uint32_t datagrams;
        uint64_t triggers;

        if (!c || !c->numbered || !c->has_datagram || c->has_empty || !t->has_number || t->was_reset_before)
                return 0;
        datagrams = t->first_sequence - c->next_datagram;
        triggers = t->first_number - c->next;
        return datagrams <= SEQUENCE_GAP_MAX && triggers < datagrams ? datagrams - triggers : 0;
}

static void accept_packet(struct trigger_input *t, uint64_t now_ns, const struct trigger_packet *p)
{
        uint64_t *known, d = digest(p);

        if (!is_of_run(t, now_ns, p))
                return;
        known = &t->digests[p->sequence % SEQUENCE_WINDOW];
        stats_add(&t->stats->trigger_datagrams, 1);
        if (*known == d || !accept_preceding(t, now_ns, p))
                accept_following(t, now_ns, p, *known == d);
        *known = d;
        follow_first_number(t, p);
        dfm_count_datagrams(t->core, t->sequence.next, p->n == 0,
                            sequence_lost(&t->sequence) + t->late + count_lost_markers(t));
}

static void log_unusable(struct trigger_input *t, uint64_t now_ns, const struct datagram *d)
{
        char from[NET_ADDRESS_TEXT_MAX], why[160];

        if (!log_is_new_fault(&t->unusable_ns, now_ns))
                return;
        trigger_packet_explain(d->bytes, d->size_bytes, why, sizeof why);
        log_warning("ignored a datagram from %s that is not a trigger datagram: %s; further ones are only "
                    "counted until none comes for 10 s",
                    net_address_format(d->from, from), why);
}

/* Returns the number of triggers. */
static unsigned receive_datagram(struct trigger_input *t, uint64_t now_ns, const struct datagram *d)
{
        struct trigger_packet p;

        switch (trigger_packet_decode(&p, d->bytes, d->size_bytes)) {
        case TRIGGER_PACKET_OK:
                accept_packet(t, now_ns, &p);
                return p.n;
        case TRIGGER_PACKET_FOREIGN:
                log_unusable(t, now_ns, d);
                stats_add(&t->stats->packets_foreign, 1);
                break;
        case TRIGGER_PACKET_MALFORMED:
                log_unusable(t, now_ns, d);
                stats_add(&t->stats->packets_malformed, 1);
                break;
        }
        return 0;
}

void trigger_input_turn(struct trigger_input *t, uint64_t now_ns)
{
        struct datagram d[DATAGRAMS_MAX];
        unsigned triggers = 0;
        int n = 1;

        if (!t || !t->ready)
                return;
        for (int batch = 0; n > 0 && batch < BATCHES_MAX && triggers < TRIGGERS_MAX; batch++) {
                n = endpoint_receive(t->endpoint, d, ARRAY_SIZE(d));
                for (int i = 0; i < n; i++)
                        triggers += receive_datagram(t, now_ns, &d[i]);
                if (t->endpoint->drained)
                        n = 0;
        }
        t->ready = n > 0;
        stats_add(&t->stats->trigger_datagrams_dropped, endpoint_counts(t->endpoint)->dropped - t->dropped);
        t->dropped = endpoint_counts(t->endpoint)->dropped;
}

void trigger_input_catch_up(struct trigger_input *t, uint64_t now_ns)
{
        if (!t)
                return;
        t->ready = true;
        for (unsigned i = 0; t->ready && i < CATCH_UP_TURNS; i++)
                trigger_input_turn(t, now_ns);
}

uint64_t trigger_input_deadline_ns(const struct trigger_input *t)
{
        return t && t->ready ? 0 : NEVER_NS;
}

void trigger_input_publish(const struct dfm *core, struct node_stats *stats)
{
        const struct dfm_counts *c = dfm_counts(core);
        uint64_t late = stats_get(&stats->trigger_datagrams_late), lost = c->offered.datagrams_lost;

        stats_set(&stats->triggers_not_taken, c->offered.not_taken + c->not_taken);
        stats_set(&stats->trigger_datagrams_lost, lost - MIN(lost, late));
}

void trigger_input_reasons(const struct dfm *core, const struct scenario *scenario,
                           const struct node_stats *stats, struct reasons *to)
{
        const struct dfm_offered *c = &dfm_counts(core)->offered;
        bool counts_frames = scenario_counts_frames(scenario);
        uint64_t lost = c->datagrams_lost;
        uint64_t shifts = c->refused + c->repeated + c->implausible + lost + c->missed + c->unclear;

        if (c->refused > 0)
                reasons_add(to,
                            "%" PRIu64 " of %" PRIu64
                            " triggers were refused, because the queue of triggers was full: the trigger is "
                            "faster than the SFIs, and does not obey the busy signal",
                            c->refused, c->triggers);
        if (lost > 0)
                reasons_add(to,
                            "%" PRIu64 " datagrams with triggers are lost; %" PRIu64
                            " of them found the socket full",
                            lost, stats_get(&stats->trigger_datagrams_dropped));
        if (c->missed > 0)
                reasons_add(to,
                            "%" PRIu64
                            " triggers are missed: they waited in a DFM that ended, or came while none ran",
                            c->missed);
        if (c->unclear > 0)
                reasons_add(to, "another DFM resumed this run, and how many triggers were missed until then "
                                "is not known");
        if (dfm_counts(core)->abandoned > 0)
                reasons_add(to,
                            "%" PRIu64
                            " triggers that came before the stop became no event: ROSs or SFIs that they "
                            "need left, did not answer in time, or have no frames of them",
                            dfm_counts(core)->abandoned);
        if (dfm_counts(core)->announced.late > 0)
                reasons_add(to,
                            "%" PRIu64
                            " numbers of frames came too late, after higher ones, and made no event",
                            dfm_counts(core)->announced.late);
        if (counts_frames && shifts > 0)
                reasons_add(to, "the run is unreliable: ROSs count frames (ros.event-number = count), and "
                                "the frames of triggers that became no event are in later events; let the "
                                "frames carry the numbers of their triggers");
        if (c->in_pauses > 0 && counts_frames)
                reasons_add(to,
                            "%" PRIu64
                            " triggers came in a pause and were not taken; because ROSs count frames, later "
                            "events may mix triggers: the trigger box does not obey the busy signal",
                            c->in_pauses);
        if (c->repeated > 0)
                reasons_add(to,
                            "%" PRIu64 " of %" PRIu64 " triggers are repeated: their number came before, or "
                            "went back without a counter reset (flag 4)",
                            c->repeated, c->triggers);
        if (c->implausible > 0)
                reasons_add(to,
                            "%" PRIu64 " of %" PRIu64
                            " triggers are implausible: their number is too far from the earlier ones",
                            c->implausible, c->triggers);
}
