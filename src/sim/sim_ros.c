/* A turn of a ROS, as in node/role_ros.c with data/data_send_udp.c. This file repeats the rules about
 * batches, blocked sockets and datagrams that wait to be filled, because the original works on sockets. */
#include <string.h>

#include "data/network.h"
#include "sim_internal.h"

#define DATAGRAMS_MAX 256
#define ROUNDS 4
#define HOLD_MAX_NS (10 * NS_PER_MS)
#define HOLD_LEAST_NS (100 * NS_PER_US)
#define UNSENT_UNCERTAIN_BYTES (2 * 65536u)
#define FAREWELLS 3
#define FAREWELL_NS (20 * NS_PER_MS)

static size_t pop_jobs(struct sim *s, struct sim_node *n, uint32_t sfi)
{
        size_t k = ros_jobs(n->ros, sfi, s->jobs, SIM_JOBS);

        for (size_t i = 0; i < k; i++) {
                const struct ros_job *job = &s->jobs[i];
                const struct chunk *c = &job->job.chunk;

                s->chunk_jobs[i] = job->job;
                if (job->at != ARENA_NONE)
                        s->chunk_jobs[i].payload = n->buffer ? n->buffer + job->at : s->payload;
                if (n->buffer && job->at != ARENA_NONE && job->fill)
                        source_fill(n->source, c->event, c->l1_id, n->buffer + job->at, c->fragment_bytes);
        }
        return k;
}

static struct message_header header_of(const struct sim_node *n, uint32_t sfi)
{
        return (struct message_header){
                .cookie = ros_member(n->ros)->cookie,
                .sender_role = ROLE_ROS,
                .sender_index = (uint16_t)n->self->index,
                .type = MESSAGE_FRAGMENTS,
                .transaction = ros_transaction(n->ros, sfi),
                .queued_bytes = (uint32_t)MIN(ros_queued(n->ros, sfi).bytes, (uint64_t)UINT32_MAX),
        };
}

static uint64_t backlog_ns(const struct sim_node *n, const struct sim_path *p)
{
        uint64_t bytes = p->charged_bytes;

        if (!n->shaping.on || n->shaping.rate_bps == 0)
                return 0;
        bytes = bytes > UNSENT_UNCERTAIN_BYTES ? (bytes - UNSENT_UNCERTAIN_BYTES) / 2 : 0;
        return (uint64_t)((double)bytes * 8e9 / (double)n->shaping.rate_bps);
}

static bool hold(const struct sim *s, struct sim_node *n, uint32_t sfi, size_t jobs, size_t made)
{
        struct sim_path *p = &n->paths[sfi];
        uint64_t wait_ns;

        if (made > 1 && ros_queued(n->ros, sfi).jobs > jobs)
                return true;
        wait_ns = p->was_held ? 0 : MIN(backlog_ns(n, p), HOLD_MAX_NS);
        if (wait_ns < HOLD_LEAST_NS)
                return false;
        p->held_until_ns = sim_now_ns(s) + wait_ns;
        return true;
}

static bool is_held(const struct sim *s, struct sim_node *n, uint32_t sfi)
{
        struct sim_path *p = &n->paths[sfi];
        struct ros_queued queued = ros_queued(n->ros, sfi);
        bool fills = queued.bytes >= network_datagram_bytes(s->scenario) || queued.jobs >= CHUNKS_MAX;

        if (p->held_until_ns == 0)
                return false;
        if (!fills && sim_now_ns(s) < p->held_until_ns)
                return true;
        p->was_held = !fills;
        p->held_until_ns = 0;
        return false;
}

static struct sim_packet *make_packet(const struct sim_node *n, const struct chunk_datagram *d)
{
        uint8_t bytes[NETWORK_MTU_MAX_BYTES];
        size_t size = 0;

        if (!n->buffer)
                return sim_packet_new(d->iov[0].iov_base, d->iov[0].iov_len, d->size_bytes);
        for (uint32_t i = 0; i < d->n_iov; size += d->iov[i++].iov_len)
                memcpy(bytes + size, d->iov[i].iov_base, d->iov[i].iov_len);
        return sim_packet_new(bytes, size, size);
}

/* False: the send buffer is full. */
static bool send_datagram(struct sim *s, struct sim_node *n, uint32_t sfi, const struct chunk_datagram *d)
{
        struct sim_path *path = &n->paths[sfi];
        struct sim_packet *p;

        if (path->charged_bytes >= s->send_buffer_bytes)
                return false;
        p = make_packet(n, d);
        p->from = n->number;
        p->to = s->node_of_sfi[sfi];
        p->process = n->process;
        p->is_data = true;
        path->charged_bytes += sim_socket_charge(p->frame_bytes);
        n->worked_sends++;
        stats_add(&n->stats->packets_sent, 1);
        stats_add(&n->stats->bytes_sent, d->size_bytes);
        stats_add(&n->stats->packets_full, d->full);
        if (n->shaping.on)
                sim_shaping_send(s, n, p);
        else
                sim_wire_send(s, n, p);
        return true;
}

/* True: more datagrams may be ready to send. */
static bool send_batch(struct sim *s, struct sim_node *n, uint32_t sfi)
{
        struct sim_path *p = &n->paths[sfi];
        struct message_header header = header_of(n, sfi);
        const struct chunk_datagram *d;
        size_t jobs, made, taken = 0;

        if (is_held(s, n, sfi))
                return false;
        jobs = pop_jobs(s, n, sfi);
        made = chunk_pack(s->packer, &header, s->chunk_jobs, jobs, &d);
        if (made > 0 && !d[made - 1].full && hold(s, n, sfi, jobs, made))
                made--;
        while (taken < made && send_datagram(s, n, sfi, &d[taken]))
                taken++;
        if (taken > 0) {
                p->was_held = false;
                ros_sent(n->ros, sfi, d[taken - 1].jobs_done, d[taken - 1].next_offset);
                ros_count_datagrams(n->ros, sfi, (uint32_t)taken);
        }
        if (taken < made) {
                p->blocked = true;
                p->blocked_ns = sim_now_ns(s);
                stats_add(&n->stats->send_blocked, 1);
                return false;
        }
        return made > 0 && p->held_until_ns == 0;
}

/* Serves the SFIs from `from` up to, but not including, `to`. True: more datagrams may be ready. */
static bool serve(struct sim *s, struct sim_node *n, uint32_t from, uint32_t to)
{
        bool more_of_any = false;

        for (uint32_t i = ros_next_with_jobs(n->ros, from); i < to; i = ros_next_with_jobs(n->ros, i + 1)) {
                bool more = !n->paths[i].blocked;

                for (int round = 0; more && round < ROUNDS; round++)
                        more = send_batch(s, n, i);
                more_of_any |= more;
        }
        return more_of_any;
}

static void send_fragments(struct sim *s, struct sim_node *n)
{
        uint32_t first = s->scenario->ros.stagger
                                 ? (uint32_t)((uint64_t)n->self->index * s->n_sfi / MAX(s->n_ros, 1u))
                                 : 0;

        n->is_woken = serve(s, n, first, s->n_sfi);
        n->is_woken |= serve(s, n, 0, first);
}

/* As in node/role_ros.c: jobs for an SFI that has left would fill the queue that all SFIs share. */
static void forget_gone(const struct sim *s, struct sim_node *n)
{
        const uint64_t *live = ros_sfi_live(n->ros);

        for (uint32_t w = 0; w < DIV_ROUND_UP(s->n_sfi, 64u); w++) {
                uint64_t gone = n->sfi_live[w] & ~live[w];

                for (uint32_t i = 0; gone != 0 && i < MIN(s->n_sfi - 64 * w, 64u); i++, gone >>= 1) {
                        if (gone & 1)
                                ros_forget_sfi(n->ros, 64 * w + i);
                }
                n->sfi_live[w] = live[w];
        }
}

static void say_farewell(struct sim *s, struct sim_node *n)
{
        if (ros_run_state(n->ros) != RUN_ENDED || !ros_is_drained(n->ros) || sim_now_ns(s) < n->farewell_ns)
                return;
        if (n->farewells == FAREWELLS) {
                n->has_left = true;
                return;
        }
        sim_front_end_record_short(s, n);
        ros_set_ended(n->ros, sim_now_ns(s));
        n->farewells++;
        n->farewell_ns = sim_now_ns(s) + FAREWELL_NS;
}

static void record_drops(const struct sim *s, struct sim_node *n)
{
        if (n->dropped_at_source == stats_get(&n->stats->packets_source_dropped))
                return;
        stats_set(&n->stats->packets_source_dropped, n->dropped_at_source);
        for (uint32_t i = 0; i < s->n_sfi; i++)
                ros_set_dropped(n->ros, i, n->paths[i].dropped);
}

void sim_ros_turn(struct sim *s, struct sim_node *n)
{
        const struct message *m;
        struct message_to to;

        while ((m = sim_receive_message(s, n)))
                ros_receive(n->ros, sim_now_ns(s), m);
        forget_gone(s, n);
        sim_front_end_turn(s, n);
        sim_level2_answer(s, n);
        send_fragments(s, n);
        say_farewell(s, n);
        sim_shaping_follow(s, n);
        record_drops(s, n);
        while (ros_step(n->ros, sim_now_ns(s), &to, &s->message))
                sim_send_message(s, n, to, &s->message);
}

uint64_t sim_ros_deadline_ns(const struct sim *s, const struct sim_node *n)
{
        uint64_t deadline_ns =
                n->is_woken ? 0 : MIN(ros_deadline_ns(n->ros), sim_front_end_deadline_ns(s, n));

        for (uint32_t i = ros_next_with_jobs(n->ros, 0); i < s->n_sfi;
             i = ros_next_with_jobs(n->ros, i + 1)) {
                if (!n->paths[i].blocked && n->paths[i].held_until_ns > 0)
                        deadline_ns = MIN(deadline_ns, n->paths[i].held_until_ns);
        }
        if (ros_run_state(n->ros) == RUN_ENDED && ros_is_drained(n->ros))
                deadline_ns = MIN(deadline_ns, n->farewell_ns);
        return deadline_ns;
}
