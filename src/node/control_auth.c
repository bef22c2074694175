/* Maintains the sessions of all nodes of the scenario. docs/security.md explains why the exchange of hellos
 * makes recorded messages useless, whichever end restarts. */
#include "control_auth.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/util.h"
#include "net/key_file.h"
#include "machine.h"

/* Minimum time between two challenges to one node, because an attacker may replay messages of the node's
 * earlier sessions. */
#define ASK_NS (20 * NS_PER_MS)
/* Minimum time between two log texts, because making a text takes far longer than checking a tag. */
#define LOG_NS (10 * NS_PER_MS)
#define PAYLOAD_BYTES_AT 24
#define SOURCE_TEXT_MAX (SCENARIO_TEXT_MAX + NET_ADDRESS_TEXT_MAX + 8)
#define REPLAYED                                                                                             \
        "it came before, or was for another node; the network duplicates packets, or somebody replays them"
#define OTHER_KEY "its tag was not made with this node's key; use the same key on all machines"

static size_t index_of(const struct control_auth *a, enum node_role role, uint16_t index)
{
        switch (role) {
        case ROLE_DFM:
                return index == 0 ? 0 : SIZE_MAX;
        case ROLE_ROS:
                return index < a->nodes->n_ros ? 1u + index : SIZE_MAX;
        case ROLE_SFI:
                return index < a->nodes->n_sfi ? 1 + a->nodes->n_ros + index : SIZE_MAX;
        case ROLE_LEVEL2:
                break; /* no node */
        }
        return SIZE_MAX;
}

static struct auth_peer *find_peer(struct control_auth *a, uint16_t node)
{
        size_t i = index_of(a, (enum node_role)(node >> 12), node & 0xfff);

        return i < a->n_peers && node != a->self ? &a->peers[i] : NULL;
}

static const struct net_address *address_of(const struct control_auth *a, uint16_t node)
{
        return address_book_find(a->nodes, (enum node_role)(node >> 12), node & 0xfff);
}

static uint16_t node_at(const struct control_auth *a, size_t i)
{
        size_t n_ros = a->nodes->n_ros;

        return i == 0       ? AUTH_NODE(ROLE_DFM, 0)
               : i <= n_ros ? AUTH_NODE(ROLE_ROS, i - 1)
                            : AUTH_NODE(ROLE_SFI, i - 1 - n_ros);
}

/* Draws a session or a challenge, which is never 0. */
static bool draw(uint64_t *ret)
{
        do {
                if (getrandom(ret, sizeof *ret, 0) != sizeof *ret)
                        return false;
        } while (*ret == 0);
        return true;
}

/* Under evb run, the launcher warns for all nodes. */
static void warn_without_key(const struct control_auth *a)
{
        if (getenv(NODE_STATS_ENV))
                return;
        for (size_t i = 0; i < a->scenario->n_nodes; i++) {
                const struct scenario_node *n = &a->scenario->nodes[i];
                struct net_address at;

                if (net_address_parse(&at, n->address, 1) < 0 || net_address_is_loopback(&at))
                        continue;
                log_warning("network.key-file is not set: whoever can send packets to the nodes can assign, "
                            "clear and end events and stop the run; see docs/security.md");
                return;
        }
}

int control_auth_open(struct control_auth *a, const struct scenario *s, const struct scenario_node *self,
                      const struct address_book *nodes, struct node_stats *stats)
{
        struct auth_key key;
        struct error e = {};
        int r;

        *a = (struct control_auth){
                .scenario = s,
                .nodes = nodes,
                .stats = stats,
                .on = s->network.key_file[0] != '\0',
                .role = self->role,
                .self = AUTH_NODE(self->role, self->index),
                .n_peers = 1 + nodes->n_ros + nodes->n_sfi,
        };
        if (!a->on) {
                warn_without_key(a);
                return 0;
        }
        r = key_file_read(s->network.key_file, &key, &e);
        if (r < 0)
                return log_error_errno(machine_path_error(r), "network.key-file: %s", e.message);
        auth_derive(&a->key, &key, AUTH_CONTROL);
        auth_forget(&key);
        a->peers = calloc(a->n_peers, sizeof *a->peers);
        if (!a->peers)
                return log_error_errno(ENOMEM, "network.key-file: %m");
        return draw(&a->session) ? 0 : log_error_errno(errno, "random numbers: %m");
}

void control_auth_close(struct control_auth *a)
{
        auth_forget(&a->key);
        free(a->peers);
        *a = (struct control_auth){};
}

static void make_hello(const struct control_auth *a, const struct auth_peer *p, uint16_t to, uint64_t answer,
                       struct control_hello *ret)
{
        const struct auth_hello hello = {
                .from = a->self,
                .to = to,
                .session = a->session,
                .challenge = p->challenge,
                .answer = answer,
                .next = p->sent,
                .group_next = a->group_sent,
        };

        ret->to = address_of(a, to);
        auth_hello_encode(&a->key, &hello, ret->bytes);
}

/* Whether a challenge may be sent now. A challenge stays the same until it is answered, so that an answer on
 * its way is still valid. */
static bool may_ask(struct auth_peer *p)
{
        uint64_t now_ns = clock_now_ns();

        if (p->asked_ns > 0 && now_ns < p->asked_ns + ASK_NS)
                return false;
        p->asked_ns = now_ns;
        return p->challenge != 0 || draw(&p->challenge);
}

bool control_auth_greet(struct control_auth *a, struct control_hello *ret)
{
        for (; a->on && a->greeted < a->n_peers; a->greeted++) {
                uint16_t to = node_at(a, a->greeted);
                struct auth_peer *p = find_peer(a, to);
                bool concerns = a->role == ROLE_DFM || to >> 12 != a->self >> 12;

                if (!p || !concerns || p->session != 0 || !may_ask(p))
                        continue;
                make_hello(a, p, to, 0, ret);
                a->greeted++;
                return true;
        }
        return false;
}

size_t control_auth_seal(struct control_auth *a, uint16_t to, uint8_t *bytes, size_t n)
{
        struct auth_peer *p = a->on && to != AUTH_GROUP ? find_peer(a, to) : NULL;
        struct auth_trailer t = {.session = a->session, .to = to};

        if (!a->on)
                return n;
        t.number = to == AUTH_GROUP ? a->group_sent++ : p ? p->sent++ : 0;
        return auth_seal(&a->key, bytes, n, &t);
}

/* Only the current process of a node can answer a challenge with its session, because another process has
 * another session. */
static void receive_answer(struct control_auth *a, struct auth_peer *p, const struct auth_hello *h)
{
        if (h->answer == 0 || h->answer != p->challenge)
                return;
        p->challenge = 0;
        if (h->session == p->session)
                return;
        p->session = h->session;
        auth_window_begin(&p->window, h->next);
        if (h->from >> 12 == ROLE_DFM)
                auth_window_begin(&a->group_window, h->group_next);
}

/* Formats "ros1 from 10.0.0.2:26800", as the datagram claims. */
static const char *describe(const struct control_auth *a, uint16_t node, const struct datagram *d,
                            char text[static SOURCE_TEXT_MAX])
{
        const struct scenario_node *n =
                scenario_node_of(a->scenario, (enum node_role)(node >> 12), node & 0xfff);
        char from[NET_ADDRESS_TEXT_MAX];

        snprintf(text, SOURCE_TEXT_MAX, "%s from %s", n ? n->name : "an unknown node",
                 net_address_format(d->from, from));
        return text;
}

static bool may_log(uint64_t *next_ns)
{
        uint64_t now_ns = clock_now_ns();

        if (now_ns < *next_ns)
                return false;
        *next_ns = now_ns + LOG_NS;
        return true;
}

/* Counts and logs a refused message. Each caller has a separate limit for log lines. */
#define REFUSE(a, counter, node, d, why)                                                                     \
        do {                                                                                                 \
                static uint64_t next_ns_;                                                                    \
                char source_[SOURCE_TEXT_MAX];                                                               \
                                                                                                             \
                stats_add(&(a)->stats->counter, 1);                                                          \
                if (may_log(&next_ns_))                                                                      \
                        log_limited(LOG_LEVEL_WARNING, NULL, "ignored a control message of %s: %s",          \
                                    describe(a, node, d, source_), why);                                     \
        } while (0)

static void receive_hello(struct control_auth *a, const struct datagram *d, struct control_hello *ret)
{
        struct auth_hello h;
        struct auth_peer *p;
        bool asks;

        if (!auth_hello_decode(&a->key, d->bytes, &h)) {
                REFUSE(a, control_wrong_key, h.from, d, OTHER_KEY);
                return;
        }
        p = find_peer(a, h.from);
        if (!p || h.to != a->self || !net_address_equal(address_of(a, h.from), d->from)) {
                stats_add(&a->stats->packets_foreign, 1);
                return;
        }
        receive_answer(a, p, &h);
        asks = h.session != p->session && may_ask(p);
        if (h.challenge != 0 || asks)
                make_hello(a, p, h.from, h.challenge, ret);
}

/* Returns the total size according to the payload size in the header, and checks nothing else. SIZE_MAX:
 * there is no room for a header. */
static size_t stated_bytes(const struct datagram *d)
{
        uint32_t payload;

        if (d->size_bytes < MESSAGE_HEADER_BYTES)
                return SIZE_MAX;
        memcpy(&payload, d->bytes + PAYLOAD_BYTES_AT, sizeof payload);
        return MESSAGE_HEADER_BYTES + (size_t)le32toh(payload);
}

/* False: this is not a message. */
static bool find_sender(const struct datagram *d, uint16_t *ret)
{
        struct message_header h;
        uint32_t check;

        if (message_header_decode(&h, d->bytes, d->size_bytes, &check) != MESSAGE_OK)
                return false;
        *ret = AUTH_NODE(h.sender_role, h.sender_index);
        return true;
}

static bool admit_without_key(struct control_auth *a, const struct datagram *d)
{
        uint16_t sender = 0;

        if (!auth_is_hello(d->bytes, d->size_bytes) &&
            (stated_bytes(d) != d->size_bytes - (size_t)AUTH_TRAILER_BYTES || !find_sender(d, &sender)))
                return true;
        REFUSE(a, control_no_key, sender, d,
               "it has a tag, and this node has no key; set network.key-file to a copy of the sender's key");
        return false;
}

/* Either the sender or this node has restarted, or the message is a replay; the sender's answer decides. */
static bool refuse_unproven(struct control_auth *a, struct auth_peer *p, uint16_t sender,
                            struct control_hello *ret)
{
        stats_add(&a->stats->control_unproven, 1);
        if (may_ask(p))
                make_hello(a, p, sender, 0, ret);
        return false;
}

/* Checks a message with a tag of this key, from the address of the node that it names as its sender. */
static bool admit_tagged(struct control_auth *a, struct auth_peer *p, const struct datagram *d,
                         const struct auth_trailer *t, uint16_t sender, bool to_group,
                         struct control_hello *ret)
{
        struct auth_window *w = to_group ? &a->group_window : &p->window;

        if (t->to == (to_group ? AUTH_GROUP : a->self)) {
                if (t->session != p->session || t->number < w->first)
                        return refuse_unproven(a, p, sender, ret);
                if (auth_window_accept(w, t->number))
                        return true;
        }
        REFUSE(a, control_replayed, sender, d, REPLAYED);
        return false;
}

bool control_auth_admit(struct control_auth *a, const struct datagram *d, bool to_group, size_t *ret_n,
                        struct control_hello *ret)
{
        const struct net_address *from;
        struct auth_trailer t;
        struct auth_peer *p;
        uint16_t sender;
        size_t stated;

        ret->to = NULL;
        *ret_n = d->size_bytes;
        if (!a->on)
                return admit_without_key(a, d);
        if (auth_is_hello(d->bytes, d->size_bytes)) {
                receive_hello(a, d, ret);
                return false;
        }
        stated = stated_bytes(d);
        /* The decoder counts garbage and messages of another version. */
        if (!find_sender(d, &sender))
                return true;
        if (stated + AUTH_TRAILER_BYTES != d->size_bytes) {
                REFUSE(a, control_untagged, sender, d,
                       "it has no tag, and this node has a key; set network.key-file on that machine too");
                return false;
        }
        if (!auth_open(&a->key, d->bytes, d->size_bytes, &t)) {
                REFUSE(a, control_wrong_key, sender, d, OTHER_KEY);
                return false;
        }
        *ret_n = stated;
        p = find_peer(a, sender);
        from = address_of(a, sender);
        /* Control messages from a wrong address are refused, and their number stays unused for the true
         * sender. */
        if (!from || !net_address_equal(from, d->from))
                return true;
        if (!p) {
                /* The message came from this node itself. */
                REFUSE(a, control_replayed, sender, d, REPLAYED);
                return false;
        }
        return admit_tagged(a, p, d, &t, sender, to_group, ret);
}
