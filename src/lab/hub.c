/* Connections by what they are, and words passed on between them. */
#include "hub.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "evb/base/log.h"
#include "evb/base/random.h"
#include "evb/base/util.h"
#include "talk.h"

/* Beside the nodes: `evb lab`, others that wait to be refused, old connections of nodes that came again. */
#define PEERS_BESIDE_NODES 16u
/* Of this process for anything else. */
#define OTHER_DESCRIPTORS 64u
#define INTRODUCE_NS (10 * NS_PER_S)

enum peer_kind { PEER_FREE, PEER_UNKNOWN, PEER_MEMBER, PEER_COMMANDER };

struct peer {
        struct hub *hub;
        struct talk talk;
        struct net_address from;
        enum peer_kind kind;
        const struct scenario_node *node; /* PEER_MEMBER */
        uint64_t since_ns;
};

struct hub {
        const struct scenario *scenario;
        struct loop *loop;
        struct loop_io listener;
        struct peer *peers;
        size_t n_peers;
        struct peer *commander;
};

static uint64_t mix(uint64_t sum, const char *text)
{
        for (; *text; text++)
                sum = random_mix(sum ^ (uint8_t)*text);
        return random_mix(sum ^ 0x100);
}

uint64_t hub_common_ground(const struct scenario *s)
{
        uint64_t sum = random_mix(s->network.control_port << 32 | s->network.data_port << 16 | s->network.order_port);

        sum = mix(sum, s->network.control_group);
        for (size_t i = 0; i < s->n_nodes; i++)
                sum = mix(mix(sum ^ s->nodes[i].role, s->nodes[i].name), s->nodes[i].address);
        return sum >> 1;
}

static struct peer *member(const struct hub *h, const char *name)
{
        for (size_t i = 0; name && i < h->n_peers; i++) {
                if (h->peers[i].kind == PEER_MEMBER && strcmp(h->peers[i].node->name, name) == 0)
                        return &h->peers[i];
        }
        return NULL;
}

static void tell_commander(struct hub *h, json_t *message)
{
        if (h->commander)
                talk_say(&h->commander->talk, message);
        else
                json_decref(message);
}

static void stop_members(struct hub *h)
{
        for (size_t i = 0; i < h->n_peers; i++) {
                if (h->peers[i].kind == PEER_MEMBER)
                        talk_say(&h->peers[i].talk, json_pack("{s:{s:s}}", "order", "kind", "stop"));
        }
}

static void drop(struct peer *p)
{
        struct hub *h = p->hub;
        enum peer_kind kind = p->kind;

        p->kind = PEER_FREE;
        talk_close(&p->talk);
        if (kind == PEER_MEMBER) {
                log_info("node %s stands by no more", p->node->name);
                tell_commander(h, json_pack("{s:s}", "left", p->node->name));
        } else if (kind == PEER_COMMANDER) {
                h->commander = NULL;
                /* Nobody waits for what they do. */
                stop_members(h);
        }
}

static void refuse(struct peer *p, const char *why)
{
        char text[NET_ADDRESS_TEXT_MAX];

        log_warning("%s is refused: %s", net_address_format(&p->from, text), why);
        talk_say(&p->talk, json_pack("{s:s}", "refused", why));
        if (talk_is_open(&p->talk))
                drop(p);
}

static bool comes_from(const struct peer *p, const struct scenario_node *n)
{
        struct net_address at;

        return net_address_parse(&at, n->address, net_address_port(&p->from)) >= 0 && net_address_equal(&at, &p->from);
}

static void introduce_member(struct peer *p, const json_t *m)
{
        struct hub *h = p->hub;
        const char *name = json_string_value(json_object_get(m, "node")), *version = json_string_value(json_object_get(m, "version"));
        const struct scenario_node *n = name ? scenario_find(h->scenario, name) : NULL;
        struct peer *other;
        char why[200];

        if (!n) {
                refuse(p, "the DFM's scenario has no such node");
        } else if (!comes_from(p, n)) {
                snprintf(why, sizeof why, "node %s is at %s in the DFM's scenario", n->name, n->address);
                refuse(p, why);
        } else if (!version || strcmp(version, EVB_VERSION) != 0) {
                refuse(p, "the DFM is evb " EVB_VERSION);
        } else if ((uint64_t)json_integer_value(json_object_get(m, "common_ground")) != hub_common_ground(h->scenario)) {
                refuse(p, "nodes, ports or group of its scenario are not those of the DFM's");
        } else {
                other = member(h, n->name);
                if (other)
                        drop(other);
                p->node = n;
                p->kind = PEER_MEMBER;
                log_info("node %s stands by", n->name);
                talk_say(&p->talk, json_pack("{s:b}", "welcome", 1));
                tell_commander(h, json_pack("{s:s}", "joined", n->name));
        }
}

static void introduce_commander(struct peer *p, const json_t *m)
{
        struct hub *h = p->hub;
        const char *version = json_string_value(json_object_get(m, "version"));
        json_t *names;

        if (h->commander) {
                refuse(p, "another evb lab gives orders at this moment");
                return;
        }
        if (!version || strcmp(version, EVB_VERSION) != 0) {
                refuse(p, "the DFM is evb " EVB_VERSION);
                return;
        }
        p->kind = PEER_COMMANDER;
        h->commander = p;
        names = json_array();
        for (size_t i = 0; i < h->n_peers; i++) {
                if (h->peers[i].kind == PEER_MEMBER)
                        json_array_append_new(names, json_string(h->peers[i].node->name));
        }
        talk_say(&p->talk, json_pack("{s:o}", "members", names));
}

static void pass_order(struct hub *h, const json_t *message)
{
        const json_t *to = json_object_get(message, "to"), *name;
        json_t *order = json_object_get(message, "order");
        size_t i;

        json_array_foreach(to, i, name)
        {
                /* Gone meanwhile, with too many answers not taken: the members have been told to stop. */
                if (!h->commander)
                        return;
                struct peer *p = member(h, json_string_value(name));

                if (p)
                        talk_say(&p->talk, json_pack("{s:O}", "order", order));
                else if (json_is_string(name))
                        tell_commander(h, json_pack("{s:O}", "left", name));
        }
}

static void heard(void *ctx, json_t *message)
{
        struct peer *p = ctx;
        json_t *introduction, *answer;

        if (p->kind == PEER_UNKNOWN && (introduction = json_object_get(message, "stand_by")))
                introduce_member(p, introduction);
        else if (p->kind == PEER_UNKNOWN && (introduction = json_object_get(message, "command")))
                introduce_commander(p, introduction);
        else if (p->kind == PEER_MEMBER && (answer = json_object_get(message, "answer")))
                tell_commander(p->hub, json_pack("{s:s, s:O}", "from", p->node->name, "answer", answer));
        else if (p->kind == PEER_COMMANDER && json_is_object(json_object_get(message, "order")))
                pass_order(p->hub, message);
        else
                refuse(p, "a message that has no place here");
}

static void ended(void *ctx, int error)
{
        (void)error;
        drop(ctx);
}

static void accept_one(void *ctx, uint32_t events)
{
        struct hub *h = ctx;
        struct net_address from = {};
        int fd = tcp_accept(h->listener.fd, 0, &from);
        size_t i = 0;

        (void)events;
        if (fd < 0)
                return;
        while (i < h->n_peers && h->peers[i].kind != PEER_FREE)
                i++;
        if (i == h->n_peers) {
                log_warning("order port: more than %zu connections, one is refused", h->n_peers);
                close(fd);
                return;
        }
        struct peer *p = &h->peers[i];

        *p = (struct peer){.hub = h, .talk = {.heard = heard, .ended = ended, .ctx = p}, .from = from, .kind = PEER_UNKNOWN, .since_ns = loop_now_ns(h->loop)};
        if (talk_open(&p->talk, h->loop, fd, false) < 0)
                p->kind = PEER_FREE;
}

/* More may be had than a process is given: usually 1024, which is less than there may be nodes. */
static void allow_descriptors(size_t n)
{
        struct rlimit l;

        if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= n)
                return;
        l.rlim_cur = MIN((rlim_t)n, l.rlim_max);
        (void)setrlimit(RLIMIT_NOFILE, &l);
        if (l.rlim_cur < n)
                log_warning("order port: %zu connections need more open files than the %llu that are allowed", n, (unsigned long long)l.rlim_max);
}

int hub_new(struct hub **ret, const struct scenario *s, struct loop *loop)
{
        struct hub *h = calloc(1, sizeof *h);
        const struct scenario_node *dfm = scenario_node_of(s, ROLE_DFM, 0);
        struct net_address at;
        int r = h ? 0 : -ENOMEM;

        if (r >= 0) {
                *h = (struct hub){.scenario = s, .loop = loop, .listener.fd = -1, .n_peers = s->n_nodes + PEERS_BESIDE_NODES};
                allow_descriptors(h->n_peers + OTHER_DESCRIPTORS);
                h->peers = calloc(h->n_peers, sizeof *h->peers);
                r = h->peers ? net_address_parse(&at, dfm->address, (uint16_t)s->network.order_port) : -ENOMEM;
        }
        if (r >= 0)
                r = tcp_listen(&at, 0);
        if (r >= 0) {
                h->listener = (struct loop_io){.fd = r, .events = EPOLLIN, .ready = accept_one, .ctx = h};
                r = loop_add(loop, &h->listener);
        }
        if (r < 0) {
                hub_free(h);
                return log_error_errno(r, "order port %llu of %s: %m", (unsigned long long)s->network.order_port, dfm->address);
        }
        *ret = h;
        return 0;
}

struct hub *hub_free(struct hub *h)
{
        if (!h)
                return NULL;
        for (size_t i = 0; h->peers && i < h->n_peers; i++)
                talk_close(&h->peers[i].talk);
        if (h->listener.fd >= 0) {
                loop_remove(h->loop, &h->listener);
                close(h->listener.fd);
        }
        free(h->peers);
        free(h);
        return NULL;
}

void hub_turn(struct hub *h, uint64_t now_ns)
{
        for (size_t i = 0; i < h->n_peers; i++) {
                struct peer *p = &h->peers[i];

                if (p->kind == PEER_UNKNOWN && now_ns > p->since_ns + INTRODUCE_NS)
                        refuse(p, "it did not say who it is");
        }
}

unsigned hub_members(const struct hub *h)
{
        unsigned n = 0;

        for (size_t i = 0; i < h->n_peers; i++)
                n += h->peers[i].kind == PEER_MEMBER;
        return n;
}
