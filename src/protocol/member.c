/* The membership of a ROS or SFI in a run: makes Join and judges Welcome. src/core/dfm/dfm_join.c is the
 * DFM's part. */
#include "protocol/member.h"

#include <string.h>

#include "base/util.h"

/* Minimum time between two Joins that are triggered by messages of another run or DFM. */
#define JOIN_APART_NS (20 * NS_PER_MS)

void member_init(struct member *m, const struct member_config *config, enum node_role role, uint16_t index,
                 uint64_t now_ns)
{
        *m = (struct member){
                .config = *config,
                .role = role,
                .index = index,
                .join_due_ns = now_ns,
        };
}

static void want_to_join(struct member *m, uint64_t now_ns)
{
        uint64_t due_ns = MAX(now_ns, m->last_join_ns + JOIN_APART_NS);

        m->join_due_ns = MIN(m->join_due_ns, due_ns);
}

bool member_accepts(struct member *m, uint64_t now_ns, const struct message *message)
{
        bool of_dfm = message->header.sender_role == ROLE_DFM;

        if (member_is_joined(m) && message->header.cookie == m->cookie &&
            (!of_dfm || message->dfm == m->dfm)) {
                if (of_dfm)
                        m->received_ns = now_ns;
                if (of_dfm && message->header.type == MESSAGE_KEEP_ALIVE &&
                    message->keep_alive.flags & KEEP_ALIVE_STALLED)
                        m->run_stalled = true;
                return true;
        }
        if (member_is_joined(m))
                m->foreign++;
        if (of_dfm)
                want_to_join(m, now_ns);
        return false;
}

static enum member_news refuse(struct member *m, uint64_t now_ns, const struct message *w)
{
        bool same = m->refusal == w->welcome.verdict && m->refused_key == w->welcome.key &&
                    m->refused_run == w->welcome.run;

        m->refusal = (enum welcome_verdict)w->welcome.verdict;
        m->refused_key = w->welcome.key;
        m->refused_run = w->welcome.run;
        m->join_due_ns = now_ns + m->config.retry_ns;
        return same ? MEMBER_NOTHING : MEMBER_REFUSED;
}

static bool is_previous(const struct member *m, const struct message *w)
{
        for (uint32_t i = 0; i < MIN(m->n_previous, (uint32_t)MEMBER_PREVIOUS_MAX); i++) {
                if (m->previous[i].dfm == w->dfm && m->previous[i].cookie == w->header.cookie)
                        return true;
        }
        return false;
}

/* A delayed Welcome of a previous DFM, or of the present one from before it resumed a run, must not be
 * accepted: the streams would restart here, but not at the present DFM. So only answers and messages of the
 * DFM that this node follows count. The refusal of an address has no number, as it is sent before the Join
 * reaches the DFM's run. */
static bool is_stale(const struct member *m, const struct message *w)
{
        if (is_previous(m, w))
                return true;
        if (w->dfm == m->dfm && w->welcome.verdict == WELCOME_ADDRESS)
                return false;
        return member_is_joined(m) && (w->dfm == m->dfm ? (int32_t)(w->header.transaction - m->welcome) < 0
                                                        : m->join_due_ns == NEVER_NS);
}

static void leave_dfm(struct member *m)
{
        m->previous[m->n_previous++ % MEMBER_PREVIOUS_MAX] = (struct member_dfm){m->dfm, m->cookie};
}

enum member_news member_receive_welcome(struct member *m, uint64_t now_ns, const struct message *w)
{
        bool was_joined = member_is_joined(m), same = m->dfm == w->dfm && m->cookie == w->header.cookie;

        if (w->header.sender_role != ROLE_DFM || w->welcome.incarnation != m->config.incarnation ||
            is_stale(m, w))
                return MEMBER_NOTHING;
        if (w->welcome.verdict != WELCOME_OK)
                return refuse(m, now_ns, w);
        if (w->header.cookie == 0 || w->dfm == 0)
                return MEMBER_NOTHING;
        if (was_joined && !same)
                leave_dfm(m);
        m->cookie = w->header.cookie;
        m->dfm = w->dfm;
        m->welcome = w->header.transaction;
        m->run = w->welcome.run;
        m->received_ns = now_ns;
        m->join_due_ns = NEVER_NS;
        m->refusal = WELCOME_OK;
        return !was_joined ? MEMBER_JOINED : same ? MEMBER_NOTHING : MEMBER_NEW_DFM;
}

void member_address(const struct member *m, struct message *ret, uint32_t type)
{
        ret->header = (struct message_header){
                .cookie = m->cookie,
                .sender_role = m->role,
                .sender_index = m->index,
                .type = type,
        };
        ret->dfm = m->dfm;
        ret->n = 0;
        if (type == MESSAGE_REQUEST)
                ret->request.resets = m->resets;
}

bool member_make_join(struct member *m, uint64_t now_ns, bool in_run, struct message *ret)
{
        if (now_ns < m->join_due_ns)
                return false;
        m->last_join_ns = now_ns;
        m->join_due_ns = now_ns + m->config.retry_ns;
        member_address(m, ret, MESSAGE_JOIN);
        if (!in_run)
                ret->header.cookie = 0;
        memset(&ret->join, 0, sizeof ret->join);
        ret->join.incarnation = m->config.incarnation;
        ret->join.run = in_run ? m->run : m->config.run;
        ret->join.flags = m->config.flags;
        ret->join.table = m->config.keys.table;
        ret->n = m->config.keys.n;
        memcpy(ret->join.keys, m->config.keys.values, ret->n * sizeof *ret->join.keys);
        return true;
}

void member_report(struct message *ret, uint64_t now_ns, const struct node_obstacle *o)
{
        uint64_t age_ms = o->reason == REASON_NONE ? 0 : (now_ns - o->since_ns) / NS_PER_MS;

        ret->alive.reason = (uint16_t)o->reason;
        ret->alive.reason_node = o->node;
        ret->alive.metadata = 0;
        ret->alive.reason_ms = (uint32_t)MIN(age_ms, (uint64_t)UINT32_MAX);
}
