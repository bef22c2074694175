/* Probes one node at a time, and judges the paths by the answers, which control_messages.c of the other node
 * sends. */
#include "path_probe.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "data/network.h"

/* If this many short probes were answered but no long probe was, the path counts as failed. With 30 % loss in
 * both directions, 16 consecutive long probes are all lost once in 50,000 times. */
#define SHORT_ANSWERS 16u
/* Interval between the probes to a node, and the longer interval after FAST_CYCLES without an answer. */
#define CYCLE_NS (50 * NS_PER_MS)
#define SLOW_CYCLE_NS NS_PER_S
#define FAST_CYCLES 100u
/* Minimum time between two probes, per ROS and byte, so that all ROSs together send at most 120 Mbit/s to one
 * port. */
#define PROBE_BYTE_NS_PER_ROS 67u
/* A path may carry large probes but not large data. So after each return to short packets, large ones are
 * probed again after twice the pause, unless they were used for several pauses. */
#define LARGE_PAUSE_NS (100 * NS_PER_MS)
#define LARGE_PAUSE_MOST_NS (600 * NS_PER_S)
#define LARGE_PAUSES 8u

struct path {
        enum node_role role;
        uint16_t index;
        uint32_t short_answers;
        bool passes, failed;
        /* With network.mtu = auto: the size of larger packets that are probed or used, 0: of none; short
         * answers since they are probed; requests that larger packets did not answer. */
        uint32_t large_bytes, large_short_answers;
        bool large_passes, large_passed; /* it passed at least once in this run */
        uint64_t unanswered;
        uint64_t large_ns, pause_ns; /* larger packets: probed from this time on, or used since; last pause */
};

struct path_probe {
        struct control *control;
        struct data_sender *sender;
        const struct scenario *scenario;
        uint16_t self;
        struct path *paths; /* the DFM, and all SFIs */
        uint32_t n, at;     /* `at`: index of the next path */
        uint32_t cycles;
        uint64_t cycle_ns;       /* start of the current cycle */
        uint64_t due_ns, now_ns; /* `now_ns`: time of the last turn */
        bool any_large;          /* larger packets are probed or were */
        bool may_send;           /* the ROS was in a run at the last turn */
};

static const char *name_of(const struct path_probe *p, const struct path *path)
{
        return scenario_node_of(p->scenario, path->role, path->index)->name;
}

/* Looks for packets that are larger than each path must carry. */
static void probe_large(const struct path_probe *p, struct path *path)
{
        /* Only what is requested for the third time shows that the path no longer carries them. */
        bool finds = p->scenario->network.mtu_bytes == SCENARIO_AUTO && p->scenario->sfi.retries >= 2 &&
                     p->sender->ops->mtu_bytes;
        uint32_t bytes = finds ? p->sender->ops->mtu_bytes(p->sender, path->index) : 0;

        path->large_bytes = bytes > scenario_mtu_bytes(p->scenario) ? bytes : 0;
        path->large_short_answers = 0;
        path->large_passes = false;
}

int path_probe_new(struct path_probe **ret, struct control *control, struct data_sender *sender,
                   const struct scenario_node *self)
{
        const struct scenario *s = sender->context.scenario;
        struct path_probe *p = calloc(1, sizeof *p);

        if (!p)
                return -ENOMEM;
        p->control = control;
        p->sender = sender;
        p->scenario = s;
        p->self = (uint16_t)self->index;
        p->n = 1 + (uint32_t)s->sfi.count;
        p->paths = calloc(p->n, sizeof *p->paths);
        if (!p->paths) {
                path_probe_free(p);
                return -ENOMEM;
        }
        p->paths[0].role = ROLE_DFM;
        for (uint32_t i = 1; i < p->n; i++) {
                p->paths[i] = (struct path){.role = ROLE_SFI, .index = (uint16_t)(i - 1)};
                probe_large(p, &p->paths[i]);
                p->any_large |= p->paths[i].large_bytes > 0;
        }
        *ret = p;
        return 0;
}

struct path_probe *path_probe_free(struct path_probe *p)
{
        if (!p)
                return NULL;
        free(p->paths);
        free(p);
        return NULL;
}

static bool is_judged(const struct path *path)
{
        return path->passes || path->failed;
}

/* Returns the time from which the path is probed with larger packets; NEVER_NS: it is not. */
static uint64_t large_begin_ns(const struct path *path)
{
        return path->large_bytes > 0 && !path->large_passes ? path->large_ns : NEVER_NS;
}

static uint64_t begin_ns(const struct path *path)
{
        return is_judged(path) ? large_begin_ns(path) : 0;
}

static size_t padding_bytes(const struct path_probe *p, uint32_t mtu_bytes)
{
        return network_payload_bytes(p->scenario, mtu_bytes) - network_trailer_bytes(p->scenario) -
               MESSAGE_PROBE_BYTES;
}

static void send_probe(const struct path_probe *p, const struct path *to, const struct member *member,
                       size_t padding)
{
        static struct message m;

        m.header = (struct message_header){
                .cookie = member->cookie,
                .sender_role = ROLE_ROS,
                .sender_index = p->self,
                .type = MESSAGE_PROBE,
        };
        m.probe.answers = false;
        m.probe.padding_bytes = (uint32_t)padding;
        control_send(p->control, (struct message_to){to->role, to->index}, &m, 0);
}

/* Continues with the next path, or starts the next cycle. */
static void plan(struct path_probe *p, uint64_t now_ns, uint64_t sent_bytes)
{
        uint64_t pause_ns = MAX(NS_PER_MS, sent_bytes * PROBE_BYTE_NS_PER_ROS * p->scenario->ros.count);

        p->due_ns = now_ns + pause_ns;
        if (++p->at < p->n)
                return;
        p->at = 0;
        p->due_ns = MAX(p->due_ns, p->cycle_ns + (p->cycles < FAST_CYCLES ? CYCLE_NS : SLOW_CYCLE_NS));
        p->cycles++;
        p->cycle_ns = p->due_ns;
}

static bool is_due(const struct path_probe *p, const struct path *path, const struct ros *core)
{
        bool present = path->role == ROLE_DFM || ros_sfi_live(core)[path->index / 64] >> path->index % 64 & 1;

        return present && p->now_ns >= begin_ns(path);
}

/* Returns the number of bytes sent, without those of the short probe. */
static uint64_t probe(const struct path_probe *p, const struct path *to, const struct member *member,
                      uint64_t now_ns)
{
        uint32_t bytes = is_judged(to) ? 0 : (uint32_t)scenario_mtu_bytes(p->scenario),
                 large_bytes = now_ns >= large_begin_ns(to) ? to->large_bytes : 0;

        send_probe(p, to, member, 0);
        if (bytes > 0)
                send_probe(p, to, member, padding_bytes(p, bytes));
        if (large_bytes > 0)
                send_probe(p, to, member, padding_bytes(p, large_bytes));
        control_flush(p->control);
        return (uint64_t)bytes + large_bytes;
}

/* What was sent twice in large packets has not arrived: perhaps the path does not carry them any more. */
static void watch_large(struct path_probe *p, struct path *path, const struct ros *core, uint64_t now_ns)
{
        uint64_t unanswered = ros_sent_to(core, path->index).unanswered;

        if (path->large_passes && unanswered != path->unanswered) {
                log_debug("packets of %u bytes did not bring to %s what it requested twice",
                          path->large_bytes, name_of(p, path));
                p->sender->ops->set_mtu(p->sender, path->index, (uint32_t)scenario_mtu_bytes(p->scenario));
                probe_large(p, path);
                path->pause_ns = now_ns - path->large_ns < LARGE_PAUSES * path->pause_ns
                                         ? MIN(2 * path->pause_ns, LARGE_PAUSE_MOST_NS)
                                         : LARGE_PAUSE_NS;
                path->large_ns = now_ns + path->pause_ns;
        }
        path->unanswered = unanswered;
}

void path_probe_turn(struct path_probe *p, const struct ros *core, uint64_t now_ns)
{
        const struct member *member = ros_member(core);
        uint64_t sent_bytes = 0;

        p->now_ns = now_ns;
        for (uint32_t i = 1; p->any_large && i < p->n; i++)
                watch_large(p, &p->paths[i], core, now_ns);
        p->may_send = member_is_joined(member) && ros_run_state(core) < RUN_ENDED;
        if (!p->may_send || now_ns < p->due_ns)
                return;
        while (p->at + 1 < p->n && !is_due(p, &p->paths[p->at], core))
                p->at++;
        if (is_due(p, &p->paths[p->at], core))
                sent_bytes = probe(p, &p->paths[p->at], member, now_ns);
        plan(p, now_ns, sent_bytes);
}

static void report(const struct path_probe *p, const struct path *path)
{
        const struct scenario_node *to = scenario_node_of(p->scenario, path->role, path->index);

        log_error("packets of %llu bytes (network.mtu) do not pass between this node and %s at %s, but short "
                  "ones do; set this MTU, or a larger one, at each device and switch port on the way, or a "
                  "smaller network.mtu in the scenario",
                  (unsigned long long)scenario_mtu_bytes(p->scenario), to->name, to->address);
}

static void record_pass(const struct path_probe *p, struct path *path)
{
        if (path->passes)
                return;
        path->passes = true;
        for (uint32_t i = 0; i < p->n; i++) {
                if (!p->paths[i].passes)
                        return;
        }
        log_debug("packets of %llu bytes (network.mtu) pass to the DFM and all SFIs",
                  (unsigned long long)scenario_mtu_bytes(p->scenario));
}

static void count_short_answer(struct path_probe *p, struct path *path)
{
        if (++path->short_answers == SHORT_ANSWERS && !path->passes) {
                path->failed = true;
                report(p, path);
        }
        if (path->large_bytes == 0 || path->large_passes || ++path->large_short_answers < SHORT_ANSWERS)
                return;
        if (path->large_passed)
                log_warning("packets of %u bytes no longer pass to %s, but short ones do: fragments go in "
                            "packets of %llu bytes; check the MTU of the devices and switch ports on the way",
                            path->large_bytes, name_of(p, path),
                            (unsigned long long)scenario_mtu_bytes(p->scenario));
        path->large_bytes = 0;
}

static void use_large(struct path_probe *p, struct path *path)
{
        if (path->large_passes)
                return;
        /* A router has reported a smaller MTU since. The kernel divides what is larger, and the probe as
         * well. */
        if (p->sender->ops->mtu_bytes(p->sender, path->index) < path->large_bytes) {
                probe_large(p, path);
                return;
        }
        path->large_passes = path->large_passed = true;
        path->large_ns = p->now_ns;
        p->sender->ops->set_mtu(p->sender, path->index, path->large_bytes);
        log_debug("packets of %u bytes pass to %s", path->large_bytes, name_of(p, path));
}

void path_probe_receive(struct path_probe *p, const struct message *m)
{
        for (uint32_t i = 0; i < p->n; i++) {
                struct path *path = &p->paths[i];

                if (path->role != m->header.sender_role || path->index != m->header.sender_index ||
                    !m->probe.answers)
                        continue;
                if (m->probe.padding_bytes == 0) {
                        count_short_answer(p, path);
                        continue;
                }
                record_pass(p, path);
                if (path->large_bytes > 0 && m->probe.padding_bytes == padding_bytes(p, path->large_bytes))
                        use_large(p, path);
        }
}

uint64_t path_probe_deadline_ns(const struct path_probe *p)
{
        uint64_t first_ns = NEVER_NS;

        if (!p->may_send)
                return NEVER_NS;
        for (uint32_t i = 0; i < p->n; i++)
                first_ns = MIN(first_ns, begin_ns(&p->paths[i]));
        return MAX(p->due_ns, first_ns);
}

static bool has_failed(const struct path *path)
{
        return path->failed && !path->passes;
}

uint32_t path_probe_failed(const struct path_probe *p)
{
        uint32_t failed = 0;

        for (uint32_t i = 0; i < p->n; i++)
                failed += has_failed(&p->paths[i]);
        return failed;
}

void path_probe_reasons(const struct path_probe *p, struct reasons *to)
{
        uint32_t failed = path_probe_failed(p), i = 0;
        const char *first;

        if (failed == 0)
                return;
        while (!has_failed(&p->paths[i]))
                i++;
        first = scenario_node_of(p->scenario, p->paths[i].role, p->paths[i].index)->name;
        if (failed == 1)
                reasons_add(to, "packets of %llu bytes (network.mtu) did not pass between this node and %s",
                            (unsigned long long)scenario_mtu_bytes(p->scenario), first);
        else
                reasons_add(to,
                            "packets of %llu bytes (network.mtu) did not pass between this node and %u "
                            "others, of which the first is %s",
                            (unsigned long long)scenario_mtu_bytes(p->scenario), failed, first);
}
