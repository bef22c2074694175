/* Sends the busy signal over UDP. The core decides the state: see core/dfm/dfm_busy.c. */
#include "data/trigger_input.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "data/network.h"
#include "data/socket_open.h"

#define REPEAT_NS (100 * NS_PER_MS)

struct busy_output {
        struct endpoint *endpoint;
        struct net_address to;
        struct node_stats *stats;
        struct busy_packet sent;
        uint64_t due_ns;
        bool failure_logged;
};

int busy_output_new(struct busy_output **ret, const struct data_context *c)
{
        struct busy_output *b = calloc(1, sizeof *b);
        struct udp_config config = {.segmentation = SEGMENTATION_OFF};
        int r;

        if (!b)
                return log_error_errno(ENOMEM, "busy signal: %m");
        b->stats = c->stats;
        r = net_address_parse_with_port(&b->to, c->scenario->trigger.busy_to);
        if (r < 0)
                log_error_errno(r, "trigger.busy-to: %s: %m", c->scenario->trigger.busy_to);
        if (r >= 0)
                r = network_node_address(&config.local, c->self, 0);
        if (r >= 0)
                r = socket_open_udp(&b->endpoint, &config, "the busy signal");
        if (r < 0) {
                busy_output_free(b);
                return r;
        }
        *ret = b;
        return 0;
}

struct busy_output *busy_output_free(struct busy_output *b)
{
        if (b)
                endpoint_free(b->endpoint);
        free(b);
        return NULL;
}

/* A failed message is repeated after 100 ms. */
static void send_state(struct busy_output *b)
{
        uint8_t bytes[BUSY_PACKET_BYTES];
        struct iovec iov = {bytes, sizeof bytes};
        struct outgoing out = {&iov, 1, sizeof bytes, &b->to};
        uint64_t failed = b->endpoint->counts.send_failed;

        busy_packet_encode(&b->sent, bytes);
        if (endpoint_send(b->endpoint, &out, 1) == 1 && b->endpoint->counts.send_failed == failed) {
                stats_add(&b->stats->busy_datagrams, 1);
                b->failure_logged = false;
                return;
        }
        if (!b->failure_logged)
                log_warning_errno(b->endpoint->counts.send_error, "cannot send the busy signal: %m");
        b->failure_logged = true;
}

void busy_output_turn(struct busy_output *b, uint64_t now_ns, const struct busy_packet *state)
{
        if (!b || (now_ns < b->due_ns && b->sent.busy == state->busy && b->sent.reason == state->reason))
                return;
        b->sent = *state;
        b->due_ns = now_ns + REPEAT_NS;
        send_state(b);
}

uint64_t busy_output_deadline_ns(const struct busy_output *b)
{
        return b ? b->due_ns : NEVER_NS;
}
