/* The ROS's entry points: creation, received messages, the next message to send. ros_request.c finds
 * requested fragments, ros_arrive.c accepts frames, ros_hold.c holds the fragments, ros_queue.c queues them
 * for sending. */
#include "core/ros.h"

#include <errno.h>
#include <string.h>

#include "ros_internal.h"

#define BLOCK_MIN_BYTES 256u
/* An SFI repeats a reduced share in each keep-alive interval. After this number of intervals without a
 * repetition, the share is discarded. */
#define RATE_KEEP_ALIVES 5
#define RATE_FULL 1000u
/* Minimum time between two Alive messages that report frames. A trigger is delayed by at most this time, and
 * a DFM with many ROSs and fast front-ends can still receive all messages. */
#define REPORT_PAUSE_NS NS_PER_MS

static int allocate(struct ros *r)
{
        const struct ros_config *c = &r->config;
        uint32_t items = c->entries + c->extra_items;
        int k;

        r->n_entries = c->entries + (c->describe ? 0 : c->expected_max);
        k = idmap_init(&r->by_event, r->n_entries);
        if (k >= 0 && !c->describe)
                k = ros_numbers_init(&r->numbers, c->number_period, c->number_from);
        if (k >= 0 && ros_is_numbered(r))
                k = idmap_init(&r->by_number, r->n_entries);
        if (k >= 0)
                k = ros_regions_init(r);
        if (k >= 0)
                k = arena_new(&r->arena, c->buffer_bytes, BLOCK_MIN_BYTES, EVB_FRAGMENT_MAX_BYTES);
        if (k >= 0)
                k = ros_announced_init(r);
        if (k < 0)
                return k;
        r->entries = calloc(r->n_entries, sizeof *r->entries);
        r->order = calloc(r->n_entries, sizeof *r->order);
        r->items = calloc(items, sizeof *r->items);
        r->queues = calloc(c->n_sfi, sizeof *r->queues);
        if (!r->entries || !r->order || !r->items || !r->queues)
                return -ENOMEM;
        r->share = items / 2 / c->n_sfi;
        r->common = items - r->share * c->n_sfi;
        for (uint32_t i = 0; i < c->n_sfi; i++)
                r->queues[i] = (struct ros_queue){.first = NO_ITEM, .last = NO_ITEM};
        return 0;
}

int ros_new(struct ros **ret, const struct ros_config *config, uint64_t now_ns)
{
        struct ros *r;
        int k;

        if ((config->announces &&
             (config->describe || config->number_period == 0 || config->message_bytes == 0)) ||
            config->n_sfi == 0 || config->n_sfi > EVB_SFI_MAX || config->index >= EVB_ROS_MAX ||
            config->entries == 0 || config->buffer_bytes < EVB_FRAGMENT_MAX_BYTES)
                return -EINVAL;
        r = calloc(1, sizeof *r);
        if (!r)
                return -ENOMEM;
        r->config = *config;
        r->config.extra_items = config->extra_items ?: ROS_EXTRA_ITEMS;
        r->config.expected_max = config->expected_max ?: ROS_EXPECTED_MAX;
        member_init(&r->member, &config->member, ROLE_ROS, config->index, now_ns);
        r->run_state = RUN_STARTING;
        r->state = RUN_RUNNING;
        r->keep_alive_due_ns = now_ns;
        r->arriving = r->leaper = UINT32_MAX;
        r->unproved = UINT64_MAX;
        r->waiting = r->early = (struct ros_list){NO_ITEM, NO_ITEM};
        budget_init(&r->budget, config->control.alive_bps, config->control.header_bytes);
        memset(r->sfi_live, 0xff, sizeof r->sfi_live);
        for (size_t i = 0; i < ARRAY_SIZE(r->sfi_permille); i++)
                r->sfi_permille[i] = RATE_FULL;
        k = allocate(r);
        if (k < 0) {
                ros_free(r);
                return k;
        }
        *ret = r;
        return 0;
}

struct ros *ros_free(struct ros *r)
{
        if (!r)
                return NULL;
        idmap_fini(&r->by_event);
        idmap_fini(&r->by_number);
        ros_numbers_fini(&r->numbers);
        ros_regions_fini(r);
        ros_announced_fini(r);
        arena_free(r->arena);
        free(r->entries);
        free(r->order);
        free(r->items);
        free(r->queues);
        free(r);
        return NULL;
}

/* Whether the event is from before a reset of the counters, or from after one that this ROS does not follow
 * yet. Then its number may be that of a frame of another trigger. */
static bool is_across_reset(const struct ros *r, uint32_t resets)
{
        return resets > 0 && resets != r->member.resets;
}

static bool receive_assign(struct ros *r, uint64_t now_ns, const struct message *m)
{
        if (m->header.sender_role != ROLE_DFM || !m->assign.announces)
                return false;
        if (is_across_reset(r, m->assign.resets))
                return true;
        for (size_t k = 0; k < m->n; k++) {
                const struct assign_entry *a = &m->assign.entries[k];

                if (a->flags & ASSIGN_VOID)
                        continue;
                r->newest = MAX(r->newest, a->event + 1);
                if (a->sfi < r->config.n_sfi)
                        ros_send_to(r, now_ns, a->sfi,
                                    &(struct request_entry){
                                            .event = a->event, .l1_id = a->l1_id, .to_bytes = UINT32_MAX});
        }
        ros_check_room(r);
        return true;
}

static bool receive_request(struct ros *r, uint64_t now_ns, const struct message *m)
{
        uint16_t sfi = m->header.sender_index;

        if (m->header.sender_role != ROLE_SFI || sfi >= r->config.n_sfi)
                return false;
        if (is_across_reset(r, m->request.resets))
                return true;
        for (size_t k = 0; k < m->n; k++)
                ros_send_to(r, now_ns, sfi, &m->request.entries[k]);
        ros_check_room(r);
        return true;
}

/* If the ROS does not follow the last reset, only the numbers of the events count. */
static bool receive_clear(struct ros *r, const struct message *m)
{
        bool follows = r->reset.resets == 0;

        if (m->header.sender_role != ROLE_DFM)
                return false;
        sequence_receive(&r->clears, m->header.transaction);
        if (m->clear.resets > 0 && m->clear.resets != (uint16_t)r->member.resets)
                follows = false;
        for (size_t k = 0; k < m->n; k++) {
                if (m->clear.with_l1_ids && follows)
                        ros_record_ended(r, m->clear.events[k], m->clear.l1_ids[k]);
                ros_clear(r, m->clear.events[k]);
        }
        ros_check_room(r);
        return true;
}

/* KeepAlive carries the number of Clears, which reveals that a Clear was lost, even the first one. */
static void follow_clears(struct ros *r, uint32_t next)
{
        if (!r->clears.started)
                sequence_begin(&r->clears, next);
        sequence_claim(&r->clears, next);
}

static bool receive_rate(struct ros *r, uint64_t now_ns, const struct message *m)
{
        uint16_t sfi = m->header.sender_index;

        if (m->header.sender_role != ROLE_SFI || sfi >= r->config.n_sfi)
                return false;
        r->demand_number += r->sfi_permille[sfi] != m->rate.permille;
        r->sfi_permille[sfi] = (uint16_t)m->rate.permille;
        r->rate_received_ns[sfi] = now_ns;
        return true;
}

/* Discards the shares of SFIs that left, or that no longer repeat them. */
static void forget_old_rates(struct ros *r, uint64_t now_ns)
{
        for (uint32_t i = 0; i < r->config.n_sfi; i++) {
                if (r->sfi_permille[i] == RATE_FULL ||
                    now_ns - r->rate_received_ns[i] < RATE_KEEP_ALIVES * r->config.keep_alive_ns)
                        continue;
                r->sfi_permille[i] = RATE_FULL;
                r->demand_number++;
        }
}

/* Records which ROSs share each SFI's port. This ROS sends even while the DFM reports it as absent. */
static void follow_live(struct ros *r, const struct message *m)
{
        uint16_t self = r->config.index;
        uint32_t n = !(m->keep_alive.ros_live[self / 64] >> self % 64 & 1);

        r->left_out = n > 0;
        for (size_t i = 0; i < ARRAY_SIZE(m->keep_alive.ros_live); i++)
                n += (uint32_t)__builtin_popcountll(m->keep_alive.ros_live[i]);
        r->demand_number +=
                n != r->sources || memcmp(r->sfi_live, m->keep_alive.sfi_live, sizeof r->sfi_live) != 0;
        r->sources = n;
        memcpy(r->sfi_live, m->keep_alive.sfi_live, sizeof r->sfi_live);
}

/* This ROS receives no further Clear: as in the SFIs, all events end, also those that only an earlier DFM
 * knew. */
static void end_run(struct ros *r)
{
        r->run_state = RUN_ENDED;
        ros_clear_below(r, r->newest);
        ros_end_frames(r);
        ros_check_room(r);
}

static bool receive_keep_alive(struct ros *r, uint64_t now_ns, const struct message *m)
{
        if (m->header.sender_role != ROLE_DFM)
                return false;
        if (sequence_receive(&r->keep_alives, m->header.transaction) != SEQUENCE_NEW)
                return true;
        follow_clears(r, m->keep_alive.clear_next);
        /* A DFM that resumes a run does not know how many triggers it has had. */
        if (!(m->keep_alive.flags & KEEP_ALIVE_RESUMES))
                ros_numbers_join(&r->numbers, m->keep_alive.triggers);
        r->newest = MAX(r->newest, m->keep_alive.triggers);
        r->wanted = m->keep_alive.flags & KEEP_ALIVE_AWAITS_FRAMES ? m->keep_alive.triggers + 1 : 0;
        if (m->keep_alive.state > r->run_state)
                r->run_state = (enum run_state)m->keep_alive.state;
        /* At the latest now, clears all ended events here, even if their Clear was lost. */
        if (jump_is_believed(&r->oldest_jump, r->oldest, m->keep_alive.oldest, EVB_EVENT_WINDOW))
                ros_clear_below(r, m->keep_alive.oldest);
        ros_check_room(r);
        ros_record_reset(r, now_ns, m);
        if (ros_announced_closes(r, m))
                ros_end_wait_of_suspects(r);
        ros_announced_record_state(r, m);
        r->is_last = r->run_state == RUN_ENDED && !(m->keep_alive.flags & KEEP_ALIVE_FOLLOWED);
        if (r->run_state == RUN_ENDED)
                end_run(r);
        /* Before the run starts, or resumes under another DFM, not all SFIs have joined; after its end, they
         * leave. */
        if (r->run_state != RUN_ENDED && m->keep_alive.state >= RUN_RUNNING)
                follow_live(r, m);
        return true;
}

/* The DFM's streams restart. Fragments stay held, because their numbers identify them. An incomplete stop is
 * discarded. */
static void follow_new_dfm(struct ros *r, uint64_t now_ns)
{
        if (r->run_state == RUN_DRAINING)
                r->run_state = RUN_RUNNING;
        sequence_restart(&r->clears);
        sequence_restart(&r->keep_alives);
        r->xoff_sent = false;
        r->keep_alive_due_ns = now_ns;
        ros_announced_restart(r);
}

static bool receive_welcome(struct ros *r, uint64_t now_ns, const struct message *m)
{
        uint64_t run = r->member.cookie;

        switch (member_receive_welcome(&r->member, now_ns, m)) {
        case MEMBER_JOINED:
                r->keep_alive_due_ns = now_ns;
                break;
        case MEMBER_NEW_DFM:
                /* The DFM resumed this run after it had announced one of its own, which never began. */
                if (r->member.cookie != run)
                        r->numbers.joined = UINT64_MAX;
                follow_new_dfm(r, now_ns);
                break;
        case MEMBER_REFUSED:
                if (r->member.refusal == WELCOME_OVER)
                        end_run(r);
                break;
        case MEMBER_NOTHING:
                break;
        }
        return m->header.sender_role == ROLE_DFM;
}

bool ros_receive(struct ros *r, uint64_t now_ns, const struct message *m)
{
        if (m->header.type == MESSAGE_WELCOME)
                return receive_welcome(r, now_ns, m);
        if (!member_accepts(&r->member, now_ns, m) || r->member.refusal == WELCOME_OVER)
                return true;
        switch (m->header.type) {
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                return receive_assign(r, now_ns, m);
        case MESSAGE_REQUEST:
                return receive_request(r, now_ns, m);
        case MESSAGE_CLEAR:
                return receive_clear(r, m);
        case MESSAGE_KEEP_ALIVE:
                return receive_keep_alive(r, now_ns, m);
        case MESSAGE_RATE:
                return receive_rate(r, now_ns, m);
        case MESSAGE_NUMBERS_ACK:
                return ros_receive_numbers_ack(r, now_ns, m);
        }
        return false;
}

static bool is_a_count_behind(const struct ros *r)
{
        return ros_is_numbered(r) && !r->config.announces && r->is_last &&
               ros_numbers_are_a_count_behind(&r->numbers, r->last_number, ROS_AGREEING_MIN);
}

static bool is_unreliable(const struct ros *r)
{
        return r->unreliable || r->numbers.may_be_off || ros_offset(r, true) != 0 || ros_leap(r) > 0 ||
               ros_periods(r) > 0 || is_a_count_behind(r) ||
               (r->run_state == RUN_ENDED && ros_began_early(r));
}

static uint16_t alive_flags(const struct ros *r)
{
        return (uint16_t)((r->xoff ? ALIVE_XOFF : 0) | (is_unreliable(r) ? ALIVE_UNRELIABLE : 0) |
                          (ros_has_surplus(r) ? ALIVE_SURPLUS : 0) | (r->quiet ? ALIVE_QUIET : 0) |
                          (ros_counts_frames(r) ? ALIVE_COUNTS : 0) |
                          (r->out_of_step ? ALIVE_OUT_OF_STEP : 0) | (r->is_short ? ALIVE_SHORT : 0));
}

static void make_alive(struct ros *r, uint64_t now_ns, struct message *m)
{
        member_address(&r->member, m, MESSAGE_ALIVE);
        m->header.transaction = r->alive_sequence++;
        m->alive.incarnation = r->config.member.incarnation;
        m->alive.state = r->state;
        m->alive.flags = alive_flags(r);
        m->alive.frames = r->reported = r->arrived;
        m->alive.resets = r->member.resets;
        m->alive.room = r->room_sent = ros_room(r);
        member_report(m, now_ns, &r->obstacle);
        r->front_end_is_back = false;
        r->xoff_sent = r->xoff;
        r->report_ns = now_ns;
}

static void keep_alive(struct ros *r, uint64_t now_ns)
{
        r->keep_alive_due_ns = now_ns + r->config.keep_alive_ns;
        forget_old_rates(r, now_ns);
        for (uint32_t i = 0; i < r->config.n_sfi; i++)
                r->queues[i].totals_due = r->queues[i].transaction > 0;
}

/* Whether frames must be reported. The DFM accepts a trigger only if its counted frame was reported, so the
 * ROS reports again before triggers have used up the reported frames: as soon as there are at least as many
 * unreported frames as reported frames without a trigger. With level 2, the ROS learns of triggers too late
 * to judge this. Events omit an absent front-end, so its return must be reported at once. */
static bool has_news(const struct ros *r)
{
        uint64_t unused = r->config.level2 ? 0 : r->reported - MIN(r->reported, r->newest);

        return r->front_end_is_back || (ros_counts_frames(r) && r->run_state == RUN_RUNNING &&
                                        r->arrived > r->reported && r->arrived - r->reported >= unused);
}

static uint64_t news_due_ns(const struct ros *r)
{
        uint64_t paid_ns = r->budget.rate_bps > 0 ? budget_next_ns(&r->budget) : 0;

        return has_news(r) ? MAX(r->report_ns + REPORT_PAUSE_NS, paid_ns) : NEVER_NS;
}

static bool make_totals(struct ros *r, struct message_to *to, struct message *m)
{
        for (uint32_t i = 0; i < r->config.n_sfi; i++) {
                struct ros_queue *q = &r->queues[i];

                if (!q->totals_due)
                        continue;
                q->totals_due = false;
                *to = (struct message_to){ROLE_SFI, (uint16_t)i};
                member_address(&r->member, m, MESSAGE_TOTALS);
                m->totals.datagrams = q->transaction;
                m->totals.fragments = q->fragments;
                m->totals.dropped = (uint32_t)q->dropped;
                return true;
        }
        return false;
}

static bool make_message(struct ros *r, uint64_t now_ns, struct message_to *to, struct message *m)
{
        *to = (struct message_to){ROLE_DFM, 0};
        if (r->state != RUN_ENDED && r->run_state != RUN_ENDED &&
            member_make_join(&r->member, now_ns, r->run_state >= RUN_RUNNING || r->newest > 0, m)) {
                m->join.newest = r->newest;
                m->join.oldest = r->oldest;
                return true;
        }
        if (!member_is_joined(&r->member))
                return false;
        if (now_ns >= r->keep_alive_due_ns) {
                make_alive(r, now_ns, m);
                keep_alive(r, now_ns);
                return true;
        }
        if (now_ns >= news_due_ns(r)) {
                make_alive(r, now_ns, m);
                return true;
        }
        if (r->xoff != r->xoff_sent && budget_allows(&r->budget, now_ns)) {
                r->xoff_sent = r->xoff;
                member_address(&r->member, m, r->xoff ? MESSAGE_XOFF : MESSAGE_XON);
                m->header.transaction = r->alive_sequence++;
                m->xoff.incarnation = (uint32_t)r->config.member.incarnation;
                return true;
        }
        return ros_make_announcement(r, now_ns, m) || make_totals(r, to, m);
}

bool ros_step(struct ros *r, uint64_t now_ns, struct message_to *ret_to, struct message *ret)
{
        if (!make_message(r, now_ns, ret_to, ret))
                return false;
        if (ret_to->role == ROLE_DFM && r->budget.rate_bps > 0)
                budget_charge(&r->budget, now_ns, message_bytes(ret));
        return true;
}

uint64_t ros_deadline_ns(const struct ros *r)
{
        uint64_t join_ns =
                r->state != RUN_ENDED && r->run_state != RUN_ENDED ? r->member.join_due_ns : NEVER_NS;

        if (!member_is_joined(&r->member))
                return join_ns;
        if (r->xoff != r->xoff_sent && r->budget.rate_bps > 0)
                join_ns = MIN(join_ns, budget_next_ns(&r->budget));
        join_ns = MIN(join_ns, MIN(ros_wait_deadline_ns(r), ros_regions_deadline_ns(r)));
        join_ns = MIN(join_ns, MIN(news_due_ns(r), ros_announced_deadline_ns(r)));
        return MIN(r->keep_alive_due_ns, join_ns);
}

void ros_stop(struct ros *r, uint64_t now_ns)
{
        if (r->state >= RUN_DRAINING)
                return;
        r->state = RUN_DRAINING;
        r->keep_alive_due_ns = now_ns;
}

bool ros_is_drained(const struct ros *r)
{
        if (r->run_state == RUN_ENDED)
                return true;
        return r->state >= RUN_DRAINING && r->n_triggered == 0 && r->n_items == 0;
}

void ros_set_ended(struct ros *r, uint64_t now_ns)
{
        r->state = RUN_ENDED;
        r->keep_alive_due_ns = now_ns;
}

void ros_forget_sfi(struct ros *r, uint32_t sfi)
{
        ros_empty_queue(r, sfi);
        ros_stop_waiting_for(r, sfi);
}

bool ros_has_all_triggers(const struct ros *r)
{
        return r->run_state == RUN_RUNNING && r->numbers.joined == 0;
}

bool ros_first_l1_id(const struct ros *r, uint32_t *ret)
{
        const struct ros_numbers *n = &r->numbers;

        if (!ros_is_numbered(r) || n->first_event > 0 || n->first_trigger == UINT64_MAX)
                return false;
        *ret = ros_numbers_l1_id(n, n->first_event, n->first_trigger);
        return true;
}

enum run_state ros_run_state(const struct ros *r)
{
        return r->run_state;
}

bool ros_saw_begin(const struct ros *r)
{
        return r->run_state >= RUN_RUNNING && r->numbers.joined == 0;
}

const uint64_t *ros_sfi_live(const struct ros *r)
{
        return r->sfi_live;
}

uint32_t ros_demand_number(const struct ros *r)
{
        return r->demand_number;
}

uint32_t ros_sources(const struct ros *r)
{
        return r->sources;
}

const uint16_t *ros_sfi_permille(const struct ros *r)
{
        return r->sfi_permille;
}

void ros_set_dropped(struct ros *r, uint32_t sfi, uint64_t packets)
{
        r->queues[sfi].dropped = packets;
}

const struct member *ros_member(const struct ros *r)
{
        return &r->member;
}

void ros_set_unreliable(struct ros *r)
{
        r->unreliable = true;
}

void ros_set_short(struct ros *r, bool is_short)
{
        r->is_short = is_short;
}

void ros_set_quiet(struct ros *r, bool quiet)
{
        r->quiet = quiet;
}

bool ros_is_stopped(const struct ros *r)
{
        return r->announced.stopping;
}

uint64_t ros_reads_first(const struct ros *r)
{
        return (uint64_t)r->reset.resets << 1 | r->announced.stopping;
}

void ros_set_reading(struct ros *r, bool reading)
{
        r->announced.reading = reading;
}

bool ros_is_stopping(const struct ros *r)
{
        return r->announced.stopping && !r->announced.reading;
}

void ros_set_collecting(struct ros *r, bool collecting)
{
        struct ros_announced *h = &r->announced;

        h->collecting = collecting;
        if (!collecting && h->stopping && h->active) {
                if (r->config.announces)
                        ros_end_wait_of_suspects(r);
                h->active = false;
                h->closing = true;
        }
}

static bool is_away(const struct node_obstacle *o)
{
        return o->reason == REASON_NO_FRONT_END || o->reason == REASON_SILENT;
}

void ros_set_obstacle(struct ros *r, const struct node_obstacle *o)
{
        if (is_away(o) != is_away(&r->obstacle))
                r->front_end_is_back = !is_away(o);
        r->obstacle = *o;
}

struct node_obstacle ros_obstacle(const struct ros *r)
{
        return r->obstacle;
}

const struct ros_counts *ros_counts(const struct ros *r)
{
        struct ros_counts *counts = (struct ros_counts *)&r->counts;

        counts->clear_gaps = sequence_lost(&r->clears);
        counts->clear_suspects = r->clears.suspects;
        counts->left_over = r->left_behind + r->n_frames + r->n_suspects;
        return counts;
}
