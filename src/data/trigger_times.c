/* The ROS's side of a trigger box: receives the datagrams that the box sends to the group of trigger.source,
 * so that frames can be matched to triggers by their times. The DFM reports invalid ones. */
#include "data/matcher.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/util.h"
#include "data/socket_open.h"
#include "net/endpoint.h"
#include "protocol/sequence.h"

#define RECEIVE_BUFFER_BYTES (4u << 20)
/* Limit of one turn, so that a flood does not starve the rest of the ROS. */
#define BATCHES_MAX 128

struct trigger_times {
        struct matcher *matcher;
        const struct ros *core;
        struct loop *loop;
        struct loop_io io;
        struct endpoint *endpoint;
        bool ready, fresh;
        bool has_begun; /* the run has a trigger, and this ROS was there from the beginning */
        struct sequence sequence;
};

static int open_socket(struct trigger_times *t, const struct data_context *c)
{
        struct udp_config config = {.receive_buffer_bytes = RECEIVE_BUFFER_BYTES};
        struct net_address group;
        int r = network_trigger_group(&group, c->scenario);

        if (r >= 0)
                r = network_front_end_address(&config.local, c->self);
        if (r < 0)
                return r;
        config.group = &group;
        r = socket_open_udp(&t->endpoint, &config, "the times of triggers");
        if (r < 0)
                return r;
        socket_log_buffer(SOCKET_RECEIVE, "the times of triggers", true, config.receive_buffer_bytes,
                          t->endpoint->granted_receive_bytes);
        t->io = (struct loop_io){
                .fd = t->endpoint->fd, .events = EPOLLIN, .ready = loop_set_flag, .ctx = &t->ready};
        return loop_add(t->loop, &t->io);
}

int trigger_times_new(struct trigger_times **ret, const struct data_context *c, struct matcher *m,
                      const struct ros *core, bool fresh)
{
        struct trigger_times *t = calloc(1, sizeof *t);
        int r;

        if (!t)
                return log_error_errno(ENOMEM, "trigger: %m");
        *t = (struct trigger_times){.matcher = m, .core = core, .loop = c->loop, .fresh = fresh};
        r = open_socket(t, c);
        if (r < 0) {
                trigger_times_free(t);
                return r;
        }
        *ret = t;
        return 0;
}

struct trigger_times *trigger_times_free(struct trigger_times *t)
{
        if (t)
                endpoint_free(t->endpoint);
        free(t);
        return NULL;
}

static void receive_datagram(struct trigger_times *t, uint64_t now_ns, const struct datagram *d)
{
        struct trigger_packet p;

        if (trigger_packet_decode(&p, d->bytes, d->size_bytes) != TRIGGER_PACKET_OK ||
            (p.run != 0 && p.run != ros_member(t->core)->run))
                return;
        sequence_receive(&t->sequence, p.sequence);
        matcher_set_lost(t->matcher, sequence_lost(&t->sequence));
        for (unsigned k = 0; k < p.n; k++) {
                struct trigger_entry e = trigger_packet_entry(&p, k);

                matcher_trigger(t->matcher, now_ns, &e, t->fresh && ros_has_all_triggers(t->core));
        }
}

static void read_triggers(struct trigger_times *t, uint64_t now_ns)
{
        struct datagram d[8];
        int n = 1;

        for (int batch = 0; n > 0 && batch < BATCHES_MAX; batch++) {
                n = endpoint_receive(t->endpoint, d, ARRAY_SIZE(d));
                for (int i = 0; i < n; i++)
                        receive_datagram(t, now_ns, &d[i]);
                if (t->endpoint->drained)
                        n = 0;
        }
        t->ready = n > 0;
}

void trigger_times_turn(struct trigger_times *t, uint64_t now_ns)
{
        uint32_t first;

        if (!t)
                return;
        /* This process may have been held up, so before frames wait no longer, the socket is read. */
        if (t->ready || now_ns >= matcher_deadline_ns(t->matcher))
                read_triggers(t, now_ns);
        /* The DFM may name the first trigger after the last one came, together with the end of the run. */
        if (!ros_saw_begin(t->core) || !ros_first_l1_id(t->core, &first))
                return;
        t->has_begun = true;
        matcher_set_first(t->matcher, first);
}

uint64_t trigger_times_deadline_ns(const struct trigger_times *t)
{
        return t && t->ready ? 0 : NEVER_NS;
}

void trigger_times_reasons(const struct trigger_times *t, struct reasons *to)
{
        uint64_t lost = t ? sequence_lost(&t->sequence) : 0;

        if (t && t->has_begun && !t->sequence.started)
                reasons_add(
                        to,
                        "no datagram with the times of this run's triggers reached this ROS: check that its "
                        "network forwards the multicast group of trigger.source");
        if (lost > 0)
                reasons_add(
                        to,
                        "datagrams with the times of triggers are lost on their way to this ROS: %" PRIu64,
                        lost);
}
