/* Runs cores as nodes of the simulated system, with packets and timers instead of the sockets and threads of
 * node/. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/pattern.h"
#include "base/util.h"
#include "data/front_end.h"
#include "sim_internal.h"
#include "sim_joins.h"
#include "sim_slices.h"

#define RUN 77
#define COOKIE UINT64_C(0x51A)
#define FULL_PAUSE_NS NS_PER_MS
/* How long a ROS reads frames that have come before a reset of the counters. */
#define READ_NS (100 * NS_PER_MS)
#define NODE_TIMEOUT_NS (10 * KEEP_ALIVE_NS)
#define ACKNOWLEDGE_NS (2 * NS_PER_S)
#define ROS_BUFFER_MAX_BYTES (64u << 20)

/* Frames that arrive by themselves make the triggers. */
static bool frames_lead(const struct sim_config *c)
{
        return c->boards.free > 0 || c->slices.slice_ns > 0;
}

static bool has_front_ends(const struct sim_config *c)
{
        return c->boards.bits > 0 || c->slices.slice_ns > 0;
}

static uint32_t node_of(const struct sim *s, enum node_role role, uint32_t index)
{
        return role == ROLE_DFM ? 0 : role == ROLE_ROS ? 1 + index : 1 + s->config.n_ros + index;
}

uint32_t sim_size_of(const struct sim_config *c, uint32_t ros, uint64_t event)
{
        return (uint32_t)(random_mix(pattern_key(SIM_SEED, ros, event)) % (2 * c->fragment_bytes + 1));
}

struct describe_ctx {
        const struct sim_config *config;
        uint32_t ros;
};

static void describe(void *ctx, uint64_t event, uint32_t l1_id, struct ros_fragment *ret)
{
        const struct describe_ctx *d = ctx;

        assert(l1_id == (uint32_t)event || d->config->outside);
        *ret = (struct ros_fragment){.bytes = sim_size_of(d->config, d->ros, event),
                                     .order = (uint16_t)d->ros};
}

/* Room for the fragments of all events, as no test here fills the buffer. Sanitizers mark each of its bytes.
 */
static uint64_t ros_buffer_bytes(const struct sim_config *c)
{
        uint32_t block_bytes = power_of_two_at_least(2 * c->fragment_bytes);

        if (c->ros_buffer_bytes > 0)
                return c->ros_buffer_bytes;
        if (has_front_ends(c))
                return ROS_BUFFER_MAX_BYTES;
        return MIN(MAX(c->events * block_bytes, (uint64_t)EVB_FRAGMENT_MAX_BYTES),
                   (uint64_t)ROS_BUFFER_MAX_BYTES);
}

void sim_make_ros(struct sim *s, struct sim_node *n)
{
        const struct sim_counter counter = sim_boards_counter(&s->config, n->index);
        struct describe_ctx *d = malloc(sizeof *d);
        struct ros_config c = {
                .member = {.incarnation = ++s->incarnation, .retry_ns = KEEP_ALIVE_NS},
                .index = (uint16_t)n->index,
                .n_sfi = s->config.n_sfi,
                .entries = s->config.ros_entries ?: 8192,
                .buffer_bytes = ros_buffer_bytes(&s->config),
                .keep_alive_ns = KEEP_ALIVE_NS,
                .describe = has_front_ends(&s->config) ? NULL : describe,
                .describe_ctx = d,
                .number_period = counter.period,
                .number_from = counter.from,
                .datagrams = !s->config.arrive_stream,
                .announces = frames_lead(&s->config),
                .leads = true,
                .message_bytes = SIM_MTU_BYTES,
                .wait_ns = s->config.timeout_ns / 2,
                .level2 = s->config.level2.on,
        };

        *d = (struct describe_ctx){&s->config, n->index};
        n->writing = (void *)d; /* freed with the node */
        n->slices = 0;
        n->buffer = malloc(c.buffer_bytes);
        assert(n->buffer && ros_new(&n->ros, &c, s->now_ns) == 0);
        sim_slices_make(s, n, MIN(c.wait_ns, NODE_TIMEOUT_NS / 2));
        sim_joins_make(s, n);
}

void sim_make_sfi(struct sim *s, struct sim_node *n)
{
        struct sfi_config c = {
                .member = {.incarnation = ++s->incarnation, .retry_ns = KEEP_ALIVE_NS},
                .index = (uint16_t)n->index,
                .n_ros = s->config.n_ros,
                .pull = !s->config.push,
                .slots = s->config.sfi_slots,
                .buffer_bytes = s->config.sfi_buffer_bytes,
                .credits = s->config.sfi_credits,
                .timeout_ns = s->config.timeout_ns,
                .retries_max = UINT32_MAX,
                .keep_alive_ns = KEEP_ALIVE_NS,
                .message_bytes = SIM_MTU_BYTES,
                .frame_overhead_bytes = 42,
        };

        n->buffer = n->buffer ?: malloc(c.buffer_bytes);
        n->writing = n->writing ?: calloc(c.slots, sizeof *n->writing);
        n->written_ns = n->written_ns ?: calloc(c.slots, sizeof *n->written_ns);
        n->n_writing = 0;
        n->written = n->drained_ns = 0;
        sim_live_make(s, n);
        assert(sfi_new(&n->sfi, &c, s->now_ns) == 0);
}

/* Loads the last DFM's record: its run continues. */
static void recall(struct sim *s, struct dfm_config *c)
{
        if (s->processes->cookie != 0)
                c->previous = (struct dfm_previous){
                        .known = true, .cookie = s->processes->cookie, .age_ns = s->now_ns - s->begun_ns};
}

void sim_make_dfm(struct sim *s, struct sim_node *n)
{
        static struct ros_rule rules[EVB_ROS_MAX];
        struct dfm_config c = {
                .run = RUN,
                .cookie = COOKIE + s->incarnation,
                .incarnation = ++s->incarnation,
                .previous_processes = s->processes,
                .occupied_ns = KEEP_ALIVE_NS * 5 / 2,
                .n_ros = s->config.n_ros,
                .n_sfi = s->config.n_sfi,
                .push = s->config.push,
                .has_front_ends = has_front_ends(&s->config),
                .trigger_rate_millihertz = s->config.rate_millihertz,
                .trigger_burst = 1,
                .trigger_source = frames_lead(&s->config) ? DFM_TRIGGER_FRAMES
                                  : s->config.outside     ? DFM_TRIGGER_OFFERED
                                                          : DFM_TRIGGER_SCHEDULE,
                .number_period = sim_boards_counter(&s->config, 0).period,
                .window_ns = s->config.boards.window_ns,
                .announced_max = SIM_ANNOUNCED_MAX,
                .ros_rules = has_front_ends(&s->config) ? rules : NULL,
                .trigger_queue = 512,
                .busy_above_permille = 800,
                .busy_below_permille = 500,
                .events = frames_lead(&s->config) ? 0 : s->config.events,
                .seed = SIM_SEED,
                .events_max = 4096,
                .clear_group = 20,
                .clear_after_ns = 5 * NS_PER_MS,
                .event_timeout_ns = SIM_EVENT_TIMEOUTS * s->config.timeout_ns,
                .reassign_max = (uint32_t)(1 + s->config.faults.seed % 3),
                .keep_alive_ns = KEEP_ALIVE_NS,
                .node_timeout_ns = NODE_TIMEOUT_NS,
                .message_bytes = SIM_MTU_BYTES,
                .frame_wait_ns = s->config.timeout_ns / 2,
                .level2 = s->config.level2,
        };

        for (uint32_t i = 0; c.ros_rules && i < s->config.n_ros; i++)
                rules[i] = (struct ros_rule){.frames = true, .leads = frames_lead(&s->config)};
        sim_farm_begin(&s->farm);
        s->processes_version = 0;
        if (s->config.records)
                recall(s, &c);
        assert(dfm_new(&n->dfm, &c, s->now_ns) == 0);
}

static struct ros *farm_ros(void *ctx, uint32_t ros)
{
        return sim_ros(ctx, ros);
}

static void farm_wake(void *ctx, enum node_role role, uint32_t index, uint64_t at_ns)
{
        sim_set_timer(ctx, node_of(ctx, role, index), at_ns);
}

static void make_farm(struct sim *s)
{
        const struct sim_config *c = &s->config;
        const struct sim_farm_config farm = {
                .accept_percent = c->accept_percent,
                .decide_ns = c->farm_ns,
                .n_ros = c->n_ros,
                .latency_ns = c->latency_ns,
                .seed = c->faults.seed,
                .random = &s->random,
                .ros = farm_ros,
                .wake = farm_wake,
                .ctx = s,
        };

        assert(sim_farm_init(&s->farm, &farm) == 0);
}

void sim_make_nodes(struct sim *s)
{
        make_farm(s);
        for (uint32_t i = 0; i < s->n_nodes; i++) {
                struct sim_node *n = &s->nodes[i];

                n->live = true;
                n->role = i == 0 ? ROLE_DFM : i <= s->config.n_ros ? ROLE_ROS : ROLE_SFI;
                n->index = i == 0 ? 0 : i <= s->config.n_ros ? i - 1 : i - 1 - s->config.n_ros;
                if (n->role == ROLE_DFM)
                        sim_make_dfm(s, n);
                else if (n->role == ROLE_ROS)
                        sim_make_ros(s, n);
                else
                        sim_make_sfi(s, n);
                sim_set_timer(s, i, 0);
        }
}

static void send_message(struct sim *s, struct message_to to, const struct message *m)
{
        uint8_t bytes[65536];
        size_t n = message_encode(m, bytes, SIM_MTU_BYTES);

        assert(n > 0);
        if (to.index != MESSAGE_TO_ALL && to.index != MESSAGE_TO_ROSS) {
                sim_send(s, node_of(s, to.role, to.index), bytes, n);
                return;
        }
        for (uint32_t i = 0; i < s->config.n_ros; i++)
                sim_send(s, node_of(s, ROLE_ROS, i), bytes, n);
        if (to.index == MESSAGE_TO_ROSS || m->header.type == MESSAGE_REQUEST)
                return;
        for (uint32_t i = 0; i < s->config.n_sfi; i++)
                sim_send(s, node_of(s, ROLE_SFI, i), bytes, n);
}

static void receive_fragments(struct sim *s, struct sim_node *n, struct chunk_reader *reader)
{
        struct sfi_chunk chunks[CHUNKS_MAX];
        const uint8_t *payload[CHUNKS_MAX];
        size_t k = 0;

        if (sfi_count_datagram(n->sfi, reader->header.sender_index, reader->header.transaction))
                sfi_record_queued(n->sfi, s->now_ns, reader->header.sender_index,
                                  reader->header.queued_bytes);
        while (k < ARRAY_SIZE(chunks) && chunk_reader_next(reader, &chunks[k].chunk, &payload[k]))
                chunks[k++].source = reader->header.sender_index;
        sfi_reserve(n->sfi, s->now_ns, chunks, k);
        for (size_t i = 0; i < k; i++) {
                if (chunks[i].verdict == SFI_STORE)
                        memcpy(n->buffer + chunks[i].at, payload[i], chunks[i].chunk.length);
        }
        sfi_commit(n->sfi, s->now_ns, chunks, k);
}

void sim_receive(struct sim *s, struct sim_node *n, const uint8_t *bytes, size_t size)
{
        struct chunk_reader reader;

        if (n->role == ROLE_SFI &&
            chunk_reader_init(&reader, bytes, size, sfi_member(n->sfi)->cookie) == MESSAGE_OK) {
                receive_fragments(s, n, &reader);
                return;
        }
        if (message_decode(&s->message, bytes, size) != MESSAGE_OK)
                return;
        if (n->role == ROLE_DFM)
                dfm_receive(n->dfm, s->now_ns, &s->message);
        else if (n->role == ROLE_ROS)
                ros_receive(n->ros, s->now_ns, &s->message);
        else
                sfi_receive(n->sfi, s->now_ns, &s->message);
}

static void send_datagram(struct sim *s, uint32_t sfi, const struct chunk_datagram *d)
{
        uint8_t bytes[65536];
        size_t n = 0;

        for (uint32_t i = 0; i < d->n_iov; n += d->iov[i].iov_len, i++)
                memcpy(bytes + n, d->iov[i].iov_base, d->iov[i].iov_len);
        assert(n == d->size_bytes && n <= SIM_MTU_BYTES);
        sim_send(s, node_of(s, ROLE_SFI, sfi), bytes, n);
}

/* Sends one batch to one SFI. The "kernel" sometimes accepts only a part of it. */
static void send_jobs(struct sim *s, struct sim_node *n, uint32_t sfi)
{
        struct ros_job jobs[64];
        struct chunk_job chunk_jobs[64];
        struct message_header h = {
                .cookie = ros_member(n->ros)->cookie,
                .sender_role = ROLE_ROS,
                .sender_index = (uint16_t)n->index,
                .type = MESSAGE_FRAGMENTS,
                .transaction = ros_transaction(n->ros, sfi),
                .queued_bytes = (uint32_t)MIN(ros_queued(n->ros, sfi).bytes, (uint64_t)UINT32_MAX),
        };
        const struct chunk_datagram *d;
        size_t k = ros_jobs(n->ros, sfi, jobs, ARRAY_SIZE(jobs)), taken, made;

        for (size_t i = 0; i < k; i++) {
                const struct chunk *c = &jobs[i].job.chunk;

                chunk_jobs[i] = jobs[i].job;
                if (jobs[i].at == ARENA_NONE)
                        continue;
                chunk_jobs[i].payload = n->buffer + jobs[i].at;
                if (jobs[i].fill)
                        pattern_fill(pattern_key(SIM_SEED, n->index, c->event), n->buffer + jobs[i].at, 0,
                                     c->fragment_bytes);
        }
        made = chunk_pack(s->packer, &h, chunk_jobs, k, &d);
        taken = made > 1 && random_below(&s->random, 4) == 0 ? 1 + random_below(&s->random, made) : made;
        for (size_t i = 0; i < taken; i++)
                send_datagram(s, sfi, &d[i]);
        if (taken > 0) {
                ros_sent(n->ros, sfi, d[taken - 1].jobs_done, d[taken - 1].next_offset);
                ros_count_datagrams(n->ros, sfi, (uint32_t)taken);
        }
}

/* As node/role_ros.c does it. */
static void record_silence(struct sim *s, struct sim_node *n)
{
        uint64_t hungry_ns = ros_hungry_since_ns(n->ros);
        bool silent = hungry_ns > 0 && s->now_ns - hungry_ns >= EVB_SILENT_KEEP_ALIVES * KEEP_ALIVE_NS;

        ros_set_obstacle(n->ros, &(struct node_obstacle){.reason = silent ? REASON_SILENT : REASON_NONE,
                                                         .since_ns = hungry_ns});
}

/* As in role_ros.c: this is reported to the DFM even if this ROS dies after the end. */
static void record_short(struct sim *s, struct sim_node *n)
{
        static struct node_stats stats;
        const struct ros_counts *c = ros_counts(n->ros);
        const struct slicer *slicer = sim_slicer(s, n->index);
        struct reasons reasons = {};

        if (!has_front_ends(&s->config))
                return;
        if (slicer)
                slicer_account(slicer, n->ros, &stats);
        else
                front_end_discard_reasons(n->ros, &reasons);
        if (n->joiner)
                joiner_reasons(n->joiner, n->ros, &reasons);
        ros_set_short(n->ros, reasons.n + c->dropped + c->restarts > 0 ||
                                      (slicer && stats_get(&stats.slice_frames_late) +
                                                                 stats_get(&stats.slice_frames_dropped) >
                                                         0));
}

/* As data/front_end.c does it. */
static bool reads_before_reset(const struct sim *s, struct sim_node *n)
{
        uint64_t mark = ros_reads_first(n->ros);

        if (mark != n->mark)
                n->marked_ns = s->now_ns;
        n->mark = mark;
        return mark > 1 && s->now_ns <= n->full_ns && s->now_ns < n->marked_ns + READ_NS;
}

static void turn_ros(struct sim *s, struct sim_node *n)
{
        struct message_to to;

        sim_slices_turn(s, n);
        sim_joins_turn(s, n);
        ros_set_reading(n->ros, reads_before_reset(s, n));
        ros_expire(n->ros, s->now_ns);
        if (s->config.slices.slice_ns > 0)
                record_silence(s, n);
        for (uint32_t i; (i = ros_next_with_jobs(n->ros, 0)) != UINT32_MAX;)
                send_jobs(s, n, i);
        if (ros_is_drained(n->ros) && ros_run_state(n->ros) == RUN_ENDED) {
                record_short(s, n);
                ros_set_ended(n->ros, s->now_ns);
        }
        while (ros_step(n->ros, s->now_ns, &to, &s->message))
                send_message(s, to, &s->message);
}

static bool is_right(const struct sim *s, const struct sim_node *n, uint32_t ros, uint64_t trigger,
                     const struct sfi_fragment *f)
{
        return f->bytes == sim_size_of(&s->config, ros, trigger) &&
               (f->bytes == 0 || pattern_check(pattern_key(SIM_SEED, ros, trigger), n->buffer + f->at, 0,
                                               f->bytes) == f->bytes);
}

/* Checks the written event independently of the SFI. */
static void look_at_event(struct sim *s, struct sim_node *n, uint32_t slot)
{
        struct sfi_built built;
        struct sim_event *event;
        uint64_t trigger;

        sfi_built_event(n->sfi, slot, &built);
        if (built.end == EVENT_LOST)
                return;
        if (s->config.slices.slice_ns > 0)
                sim_slices_look(s, n, &built);
        trigger = sim_boards_trigger(s, &built);
        assert(trigger < s->config.events);
        event = &s->events[trigger + (sim_boards_is_lie(s, built.info.global_id) ? s->config.events : 0)];
        n->written++;
        s->wrong_decisions += s->config.level2.on && !sim_accepts(s, built.event);
        if (built.end == EVENT_COMPLETE)
                event->complete++;
        else
                event->partial++;
        for (uint32_t i = 0; i < s->config.n_ros; i++) {
                const struct sfi_fragment *f = &built.fragments[i];
                bool joins = s->config.boards.joins.frames > 0, slices = s->config.slices.slice_ns > 0,
                     there = f->whole && (f->status == FRAGMENT_OK ||
                                          ((joins || slices) && f->status == FRAGMENT_TRUNCATED));

                if (s->config.boards.bits > 0)
                        event->present |= (uint16_t)(there << i);
                if (built.end == EVENT_COMPLETE)
                        assert(there);
                if (there && joins)
                        sim_joins_look(s, n, f, i, trigger);
                else if (there && !slices && !is_right(s, n, i, trigger, f))
                        s->wrong_bytes++;
        }
}

/* Writes the event whose turn it is. False: it waits, and so do the others. */
static bool write_event(struct sim *s, struct sim_node *n, uint32_t slot)
{
        enum sim_live_offer offer = n->consumers ? sim_live_offer(s, n, slot) : SIM_LIVE_WRITTEN;

        if (offer == SIM_LIVE_WRITTEN)
                look_at_event(s, n, slot);
        if (offer == SIM_LIVE_WRITTEN || offer == SIM_LIVE_LOST)
                sfi_written(n->sfi, s->now_ns, slot, offer == SIM_LIVE_LOST);
        return offer != SIM_LIVE_WAITS;
}

/* Events that consumers had to acknowledge. */
static void end_held(struct sim *s, struct sim_node *n)
{
        bool is_written;

        for (uint32_t slot; (slot = sim_live_collect(s, n, &is_written)) != UINT32_MAX;) {
                if (is_written)
                        look_at_event(s, n, slot);
                sfi_written(n->sfi, s->now_ns, slot, !is_written);
        }
}

static void write_events(struct sim *s, struct sim_node *n)
{
        uint32_t slots[64];
        size_t k = sfi_pop_built(n->sfi, slots, ARRAY_SIZE(slots));
        uint32_t done = 0;

        for (size_t i = 0; i < k; i++) {
                uint64_t from_ns =
                        n->n_writing > 0 ? MAX(s->now_ns, n->written_ns[n->n_writing - 1]) : s->now_ns;

                if (from_ns >= s->config.stall_from_ns && from_ns < s->config.stall_until_ns)
                        from_ns = s->config.stall_until_ns;
                n->writing[n->n_writing] = slots[i];
                n->written_ns[n->n_writing++] = from_ns + s->config.write_ns;
        }
        if (n->consumers)
                end_held(s, n);
        while (done < n->n_writing && n->written_ns[done] <= s->now_ns && write_event(s, n, n->writing[done]))
                done++;
        n->n_writing -= done;
        memmove(n->writing, n->writing + done, n->n_writing * sizeof *n->writing);
        memmove(n->written_ns, n->written_ns + done, n->n_writing * sizeof *n->written_ns);
}

/* As node/role_sfi.c does it: once it has nothing left to do, it waits for the DFM's acknowledgement. */
static bool may_end(struct sim *s, struct sim_node *n)
{
        bool waits;

        if (!sfi_is_drained(n->sfi) || sfi_run_state(n->sfi) != RUN_ENDED)
                return false;
        if (n->consumers && !sim_live_is_sealed(s, n))
                return false;
        n->drained_ns = n->drained_ns ?: s->now_ns;
        waits = sfi_member(n->sfi)->refusal == WELCOME_OK && sfi_unacknowledged(n->sfi) > 0;
        return !waits || s->now_ns - n->drained_ns >= ACKNOWLEDGE_NS;
}

static void turn_sfi(struct sim *s, struct sim_node *n)
{
        struct message_to to;

        s->most_open = MAX(s->most_open, sfi_open_events(n->sfi));
        write_events(s, n);
        if (may_end(s, n))
                sfi_set_ended(n->sfi, s->now_ns);
        while (sfi_step(n->sfi, s->now_ns, &to, &s->message))
                send_message(s, to, &s->message);
        write_events(s, n);
}

static bool turn_farm(struct sim *s, struct dfm *d, uint64_t *ret_deadline_ns)
{
        *ret_deadline_ns = NEVER_NS;
        return s->config.level2.on && sim_farm_turn(&s->farm, d, s->now_ns, ret_deadline_ns);
}

static bool step_dfm(struct sim *s, struct dfm *d, struct message_to *to)
{
        bool is_made = dfm_step(d, s->now_ns, to, &s->message);

        sim_remember(s, d);
        return is_made;
}

void sim_turn(struct sim *s, struct sim_node *n)
{
        uint32_t node = (uint32_t)(n - s->nodes);
        uint64_t deadline_ns;
        struct message_to to;

        if (!n->live)
                return;
        s->sender = node;
        if (n->role == ROLE_DFM) {
                do {
                        while (step_dfm(s, n->dfm, &to))
                                send_message(s, to, &s->message);
                } while (turn_farm(s, n->dfm, &deadline_ns));
                sim_boards_read_out(s);
                deadline_ns = MIN(deadline_ns, dfm_deadline_ns(n->dfm));
        } else if (n->role == ROLE_ROS) {
                turn_ros(s, n);
                deadline_ns = MIN(ros_deadline_ns(n->ros), sim_slices_deadline_ns(s, n));
                deadline_ns = MIN(deadline_ns, sim_joins_deadline_ns(s, n));
                deadline_ns = n->full_ns >= s->now_ns ? MIN(deadline_ns, n->full_ns + 1) : deadline_ns;
        } else {
                turn_sfi(s, n);
                deadline_ns = sfi_deadline_ns(n->sfi);
                if (n->n_writing > 0 && n->written_ns[0] > s->now_ns)
                        deadline_ns = MIN(deadline_ns, n->written_ns[0]);
                if (n->consumers)
                        deadline_ns = MIN(deadline_ns, sim_live_deadline_ns(s, n));
        }
        /* A past deadline with nothing due would keep a real node busy. */
        assert(deadline_ns > s->now_ns || (n->role == ROLE_DFM && dfm_state(n->dfm) == RUN_RUNNING));
        sim_set_timer(s, node, MAX(deadline_ns, s->now_ns + 1));
}
