/* Links, the switch, and the sockets at both ends. Frames reach a port in the order of their arrival, so its
 * decisions are like those of a real port. The fill level of a socket's buffer is computed when its process
 * next reads the socket, because only reading empties the buffer. */
#include "sim_internal.h"

/* Size of a link's queue, as in the lab (run/testbed.c). Only control messages can fill it. */
#define WIRE_LIMIT_BYTES (UINT64_C(16) << 20)
/* A packet is held for this time if no packet overtakes it; daemons call net/injected_faults.c at this
 * interval. */
#define HELD_PS (NS_PER_MS * PS_PER_NS)
/* Sizes of the kernel's structures for a packet: struct sk_buff, and struct skb_shared_info behind the
 * data. */
#define SKB_BYTES 256u
#define SHARED_INFO_BYTES 320u

void sim_schedule(struct sim *s, const struct sim_node *n, enum sim_item item, uint64_t at_ps)
{
        uint32_t i = n->number * ITEMS + item;

        if (at_ps == NEVER_NS)
                heap_remove(&s->heap, i);
        else
                heap_put(&s->heap, i, at_ps, s->order++);
}

void sim_wake(struct sim *s, struct sim_node *n, uint64_t at_ps)
{
        uint64_t turn_ps, wake_ps = s->config.model.wake_ns * PS_PER_NS;

        if (!n->is_live || n->has_left || at_ps == NEVER_NS ||
            (n->turn_ps != NEVER_NS && n->turn_ps <= at_ps))
                return;
        /* A process that is running at that time checks again before it sleeps. */
        if (at_ps < n->free_ps)
                turn_ps = n->free_ps;
        else
                turn_ps = at_ps + wake_ps / 2 +
                          (uint64_t)(((unsigned __int128)random_next(&s->random) * (wake_ps + 1)) >> 64);
        turn_ps = MAX(turn_ps, n->paused_until_ps);
        if (turn_ps >= n->turn_ps)
                return;
        n->turn_ps = turn_ps;
        sim_schedule(s, n, ITEM_TURN, turn_ps);
}

void sim_wire_send(struct sim *s, struct sim_node *n, struct sim_packet *p)
{
        uint64_t propagation_ps = s->config.model.propagation_ns * PS_PER_NS / 2, at_ps;

        if (n->wire.bytes + p->frame_bytes > WIRE_LIMIT_BYTES) {
                s->link_drops++;
                sim_trace_drop(s, n, p, "link");
                sim_path_release(s, p);
                sim_packet_release(p);
                return;
        }
        at_ps = sim_link_send(&n->link, s->now_ps, p->frame_bytes) + propagation_ps;
        sim_queue_put(&n->wire, at_ps, p);
        if (n->wire.n == 1)
                sim_schedule(s, n, ITEM_WIRE, at_ps);
}

/* Puts the packet into the socket's queue, with its arrival time. A suspended process reads nothing until it
 * resumes, so it is already known whether the packet fits. A packet that does not fit need not be kept. */
static void deliver(struct sim *s, struct sim_node *n, uint64_t at_ps, struct sim_packet *p)
{
        struct sim_inbox *i = &n->inboxes[p->is_data ? SOCKET_DATA : SOCKET_CONTROL];

        if (!n->is_live || n->has_left)
                return;
        if (n->paused_until_ps > at_ps &&
            i->charged_bytes + sim_socket_charge(p->frame_bytes) > i->room_bytes) {
                i->dropped++;
                sim_trace_drop(s, n, p, "socket");
                return;
        }
        p->refs++;
        i->charged_bytes += sim_socket_charge(p->frame_bytes);
        sim_queue_put(&i->queue, at_ps, p);
        sim_wake(s, n, at_ps);
}

static void pass_port(struct sim *s, struct sim_node *to, struct sim_packet *p)
{
        const uint32_t n = to->self->role == ROLE_SFI ? s->config.model.uplinks : 0;
        struct sim_port *uplink = n > 0 ? &s->uplinks[to->self->index % n] : NULL;
        uint64_t at_ps = s->now_ps, leaves_ps;

        if (to->is_cut || s->nodes[p->from].is_cut) {
                sim_trace_drop(s, to, p, "cut");
                return;
        }
        if ((uplink && !sim_port_accept(uplink, at_ps, p->frame_bytes, &at_ps)) ||
            !sim_port_accept(&to->port, at_ps, p->frame_bytes, &leaves_ps)) {
                sim_trace_drop(s, to, p, "switch port");
                sim_check_drop(s, to);
                return;
        }
        deliver(s, to, leaves_ps + s->config.model.propagation_ns * PS_PER_NS / 2, p);
}

void sim_wire_arrive(struct sim *s, struct sim_node *n)
{
        struct sim_packet *p = sim_queue_pop(&n->wire).packet;
        const struct sim_entry *next = sim_queue_first(&n->wire);

        sim_schedule(s, n, ITEM_WIRE, next ? next->at_ps : NEVER_NS);
        sim_path_release(s, p);
        if (p->to != SIM_TO_ROSS)
                pass_port(s, &s->nodes[p->to], p);
        for (uint32_t i = 0; p->to == SIM_TO_ROSS && i < s->n_ros; i++)
                pass_port(s, &s->nodes[s->node_of_ros[i]], p);
        sim_packet_release(p);
}

/* The kernel allocates powers of two, as for the sk_buff of a datagram. */
uint64_t sim_socket_charge(uint32_t frame_bytes)
{
        return power_of_two_at_least(frame_bytes + SHARED_INFO_BYTES) + SKB_BYTES;
}

/* The kernel wakes a sender once half of its buffer is free (sock_writeable()). */
void sim_path_release(struct sim *s, const struct sim_packet *p)
{
        struct sim_node *n = &s->nodes[p->from];
        struct sim_path *path;

        if (!p->is_data || p->process != n->process)
                return;
        path = &n->paths[s->nodes[p->to].self->index];
        path->charged_bytes -= sim_socket_charge(p->frame_bytes);
        if (!path->blocked || path->charged_bytes >= s->send_buffer_bytes / 2)
                return;
        path->blocked = false;
        n->is_woken = true;
        sim_wake(s, n, s->now_ps);
}

static struct sim_packet *pop_held(struct sim_inbox *i, uint64_t now_ps)
{
        for (uint32_t k = 0; k < i->n_held; k++) {
                struct sim_packet *p = i->held[k].packet;

                if (i->held[k].overtaken > 0 && i->held[k].until_ps > now_ps)
                        continue;
                i->held[k] = i->held[--i->n_held];
                return p;
        }
        return NULL;
}

static void count_overtaking(struct sim_inbox *i)
{
        for (uint32_t k = 0; k < i->n_held; k++)
                i->held[k].overtaken -= i->held[k].overtaken > 0;
}

static struct sim_packet *pop_arrived(const struct sim *s, struct sim_inbox *i)
{
        const struct sim_entry *first = sim_queue_first(&i->queue);
        struct sim_packet *p;

        if (!first || first->at_ps > s->now_ps)
                return NULL;
        p = sim_queue_pop(&i->queue).packet;
        i->charged_bytes -= sim_socket_charge(p->frame_bytes);
        return p;
}

/* Packets at the front of the queue arrived first, so packets that found the buffer full are behind them. */
static void drop_overflow(struct sim *s, struct sim_node *n, struct sim_inbox *i)
{
        uint64_t arrived_bytes = 0;
        struct sim_queue kept = {};

        if (likely(i->charged_bytes <= i->room_bytes))
                return;
        while (i->queue.n > 0) {
                struct sim_entry e = sim_queue_pop(&i->queue);
                uint64_t bytes = sim_socket_charge(e.packet->frame_bytes);

                if (e.at_ps <= s->now_ps && arrived_bytes + bytes > i->room_bytes) {
                        i->dropped++;
                        i->charged_bytes -= bytes;
                        sim_trace_drop(s, n, e.packet, "socket");
                        sim_packet_release(e.packet);
                        continue;
                }
                arrived_bytes += e.at_ps <= s->now_ps ? bytes : 0;
                sim_queue_put(&kept, e.at_ps, e.packet);
        }
        sim_queue_fini(&i->queue);
        i->queue = kept;
}

void sim_sockets_look(struct sim *s, struct sim_node *n)
{
        for (uint32_t i = 0; i < SOCKETS; i++)
                drop_overflow(s, n, &n->inboxes[i]);
}

static void hold(struct sim *s, struct sim_inbox *i, struct sim_packet *p, uint32_t overtaken)
{
        i->held[i->n_held++] = (struct sim_held){p, overtaken, s->now_ps + HELD_PS};
}

struct sim_packet *sim_receive(struct sim *s, struct sim_node *n, enum sim_socket socket)
{
        struct sim_inbox *i = &n->inboxes[socket];
        struct sim_packet *p;
        uint32_t overtaken;

        for (;;) {
                p = pop_held(i, s->now_ps);
                if (p || !(p = pop_arrived(s, i)))
                        return p;
                count_overtaking(i);
                switch (fault_decide(&s->fault, &overtaken)) {
                case FAULT_LOSE:
                        sim_trace_drop(s, n, p, "receiver, as network.loss wants it");
                        sim_packet_release(p);
                        continue;
                case FAULT_HOLD:
                        if (i->n_held == SIM_HELD_MAX)
                                return p;
                        hold(s, i, p, overtaken);
                        continue;
                case FAULT_DOUBLE:
                        p->refs++;
                        if (i->n_held < SIM_HELD_MAX)
                                hold(s, i, p, 0);
                        else
                                sim_packet_release(p);
                        return p;
                case FAULT_PASS:
                        return p;
                }
        }
}

uint64_t sim_inbox_next_ps(const struct sim_inbox *i)
{
        const struct sim_entry *first = sim_queue_first(&i->queue);
        uint64_t next_ps = first ? first->at_ps : NEVER_NS;

        for (uint32_t k = 0; k < i->n_held; k++)
                next_ps = MIN(next_ps, i->held[k].until_ps);
        return next_ps;
}
