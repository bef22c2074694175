/* Sends and receives control messages, encoded as on a real network. */
#include "sim_internal.h"

#include "data/network.h"

#include <assert.h>
#include <string.h>

static void send_to(struct sim *s, struct sim_node *n, uint32_t to, struct sim_packet *p)
{
        p->from = n->number;
        p->to = to;
        p->process = n->process;
        n->worked_packets++;
        stats_add(&n->stats->control_sent, 1);
        stats_add(&n->stats->control_sent_bytes, p->frame_bytes);
        if (n->shaping.on)
                sim_shaping_send(s, n, p);
        else
                sim_wire_send(s, n, p);
}

static struct sim_packet *copy(const struct sim_packet *p)
{
        return sim_packet_new(p->head, p->head_bytes, p->head_bytes);
}

/* As in node/control_messages.c, only the DFM sends to the group. An SFI begins with the ROS of its own
 * index. */
static void send_to_ross(struct sim *s, struct sim_node *n, const struct sim_packet *p)
{
        if (n->self->role == ROLE_DFM && strcmp(s->scenario->network.control_group, "none") != 0) {
                send_to(s, n, SIM_TO_ROSS, copy(p));
                return;
        }
        for (uint32_t i = 0; i < s->n_ros; i++)
                send_to(s, n, s->node_of_ros[(n->self->index + i) % s->n_ros], copy(p));
}

void sim_send_message(struct sim *s, struct sim_node *n, struct message_to to, const struct message *m)
{
        uint8_t bytes[65536];
        size_t size = message_encode(m, bytes, network_datagram_bytes(s->scenario));
        struct sim_packet *p;

        assert(size > 0);
        p = sim_packet_new(bytes, size, size);
        if (to.index != MESSAGE_TO_ALL && to.index != MESSAGE_TO_ROSS) {
                send_to(s, n,
                        to.role == ROLE_DFM   ? s->dfm
                        : to.role == ROLE_ROS ? s->node_of_ros[to.index]
                                              : s->node_of_sfi[to.index],
                        p);
                return;
        }
        send_to_ross(s, n, p);
        for (uint32_t i = 0; to.index == MESSAGE_TO_ALL && n->self->role == ROLE_DFM && i < s->n_sfi; i++)
                send_to(s, n, s->node_of_sfi[i], copy(p));
        sim_packet_release(p);
}

const struct message *sim_receive_message(struct sim *s, struct sim_node *n)
{
        struct sim_packet *p;

        while ((p = sim_receive(s, n, SOCKET_CONTROL))) {
                enum message_verdict v = message_decode(&s->message, p->head, p->head_bytes);

                sim_trace_delivery(s, n, p);
                n->worked_packets++;
                stats_count_refusal(n->stats, v);
                if (v == MESSAGE_OK) {
                        stats_add(&n->stats->control_received, 1);
                        stats_add(&n->stats->control_received_bytes, p->frame_bytes);
                }
                sim_packet_release(p);
                if (v == MESSAGE_OK)
                        return &s->message;
        }
        return NULL;
}
