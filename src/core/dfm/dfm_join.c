/* Admission to the run: the DFM's answers to Join. dfm_nodes.c tracks which nodes are present. */
#include "dfm_internal.h"

/* If this many messages arrive from the present incarnation after another one requested to join, both are
 * running. Fewer messages may have been delayed by the network. */
#define SPOKEN_TWICE 3

void dfm_notice(struct dfm *d, const struct dfm_notice *notice)
{
        if (d->notices_head - d->notices_tail == DFM_NOTICES)
                d->notices_tail++;
        d->notices[d->notices_head++ % DFM_NOTICES] = *notice;
}

static bool has_same_keys(const struct dfm *d, const struct message *m, uint16_t *ret_key)
{
        const struct member_keys *ours = &d->config.keys;

        *ret_key = WELCOME_KEY_TABLE;
        if (m->join.table != ours->table || m->n != ours->n)
                return false;
        for (uint32_t k = 0; k < ours->n; k++) {
                *ret_key = (uint16_t)k;
                if (m->join.keys[k] != ours->values[k])
                        return false;
        }
        *ret_key = 0;
        return true;
}

/* Whether the node is in no run or in this DFM's run, or this DFM resumes the node's run. False: the node's
 * run is over. */
static bool agree_on_run(struct dfm *d, uint64_t now_ns, const struct message *m)
{
        if (m->header.cookie == 0 || m->header.cookie == d->cookie)
                return true;
        if (!dfm_may_resume_run(d, m))
                return false;
        dfm_resume_run(d, now_ns, m);
        dfm_notice(d, &(struct dfm_notice){.kind = NOTICE_RESUMED, .run = d->config.run});
        return true;
}

/* Another incarnation replaces a node only after the present one has fallen silent. */
static enum welcome_verdict judge_place(const struct dfm *d, uint64_t now_ns, struct dfm_node *n,
                                        uint64_t incarnation)
{
        if (!n->live || n->welcomed == incarnation || now_ns - n->received_ns >= d->config.occupied_ns)
                return WELCOME_OK;
        if (n->candidate != incarnation) {
                n->candidate = incarnation;
                n->spoken = 0;
        }
        return n->spoken >= SPOKEN_TWICE ? WELCOME_TWICE : WELCOME_OCCUPIED;
}

static enum welcome_verdict judge(struct dfm *d, uint64_t now_ns, struct dfm_node *n, const struct message *m,
                                  uint16_t *ret_key)
{
        bool known = n->welcomed == m->join.incarnation;

        if (!has_same_keys(d, m, ret_key))
                return WELCOME_OTHER_CONFIG;
        if (m->header.cookie == 0 && m->join.run != 0 && m->join.run != d->config.run)
                return WELCOME_OTHER_RUN;
        if (!agree_on_run(d, now_ns, m))
                return WELCOME_OVER;
        if (m->join.flags & JOIN_COUNTS && m->header.cookie == 0 && !known &&
            (d->state != RUN_STARTING || d->resume.active))
                return WELCOME_BEGUN;
        return judge_place(d, now_ns, n, m->join.incarnation);
}

/* Whether the counts of an earlier process of the ROS are lost. A process that was not in a resumed run may
 * have replaced another one while no DFM ran. */
static bool replaces_ros(const struct dfm *d, const struct dfm_node *n, uint16_t ros, const struct message *m)
{
        bool in_run = d->begun || d->resume.active;

        return in_run && dfm_requires_frames(d, ros) &&
               (n->welcomed != 0 || dfm_process_is_another(d, ROLE_ROS, ros, m->join.incarnation) ||
                (d->resume.resumed && m->header.cookie == 0));
}

/* Whether so many triggers wait that the ROS may match the frames of the newest ones to triggers that are a
 * period of their counter older. */
static bool may_be_off(const struct dfm *d, uint16_t ros)
{
        const struct dfm_triggers *q = &d->triggers;
        uint64_t period = d->ross[ros].period, next = q->numbers.next, first = next;

        if (dfm_triggers_waiting(q) > 0)
                first = MIN(q->ring[q->tail % q->size].trigger.number, next);
        return d->begun && d->config.trigger_source == DFM_TRIGGER_OFFERED && period > 0 &&
               next - first > period / 4;
}

static void record_off(struct dfm *d, struct dfm_node *n, uint16_t ros)
{
        if (!(n->flags & ALIVE_UNRELIABLE))
                dfm_notice(d,
                           &(struct dfm_notice){.kind = NOTICE_UNRELIABLE, .role = ROLE_ROS, .index = ros});
        n->flags |= ALIVE_UNRELIABLE;
        dfm_ledger_changed(d);
}

static void record_replaced_ros(struct dfm *d, struct dfm_node *n)
{
        n->replaced = true;
        dfm_ledger_changed(d);
}

static void welcome(struct dfm *d, struct dfm_node *n, enum node_role role, uint16_t index,
                    const struct message *m)
{
        if (n->welcomed != m->join.incarnation) {
                sequence_restart(&n->alives);
                n->replaced |= (n->vanished && !dfm_process_returns(d, index, m->join.incarnation)) ||
                               (n->live && role == ROLE_SFI && dfm_sfi_has_unreported_ends(d, index));
                if (role == ROLE_ROS && replaces_ros(d, n, index, m))
                        record_replaced_ros(d, n);
                if (role == ROLE_ROS && may_be_off(d, index))
                        record_off(d, n, index);
                n->vanished = false;
                n->was_in_run = n->inventory_done = false;
                n->late_complete = n->late_partial = n->late_copies[0] = n->late_copies[1] = 0;
                if (n->live)
                        dfm_notice(d, &(struct dfm_notice){
                                              .kind = NOTICE_RESTARTED,
                                              .role = role,
                                              .index = index,
                                      });
        }
        n->welcomed = m->join.incarnation;
        n->candidate = 0;
        n->noticed = WELCOME_OK;
        if (m->header.cookie != 0)
                dfm_receive_join_in_run(d, role, index, m);
}

/* Reports each reason once, because a refused node tries again. */
static void notice_refusal(struct dfm *d, struct dfm_node *n, const struct message *m)
{
        if (n->verdict == WELCOME_OK || n->verdict == WELCOME_OCCUPIED || n->verdict == n->noticed)
                return;
        n->noticed = n->verdict;
        dfm_notice(d, &(struct dfm_notice){
                              .kind = NOTICE_REFUSED,
                              .role = m->header.sender_role,
                              .index = m->header.sender_index,
                              .verdict = n->verdict,
                              .key = n->key,
                              .run = m->join.run,
                      });
}

/* A node that joins after the end waits for the next run. A node in the run of an earlier DFM that this DFM
 * did not resume waits for the next DFM. */
static bool waits_for_another(const struct dfm *d, const struct message *m)
{
        if (m->header.cookie == 0)
                return d->state == RUN_ENDED;
        return d->state >= RUN_DRAINING && !d->begun && !d->resume.active &&
               m->header.cookie == d->config.previous.cookie;
}

bool dfm_receive_join(struct dfm *d, uint64_t now_ns, const struct message *m)
{
        uint16_t index = m->header.sender_index;
        enum node_role role = m->header.sender_role;
        struct dfm_node *n;

        if ((role != ROLE_SFI || index >= d->config.n_sfi) && (role != ROLE_ROS || index >= d->config.n_ros))
                return false;
        if (m->join.incarnation == 0 || waits_for_another(d, m))
                return m->join.incarnation != 0;
        n = dfm_node(d, role, index);
        n->verdict = judge(d, now_ns, n, m, &n->key);
        n->answer_to = m->join.incarnation;
        d->n_answers += !n->answer_due;
        n->answer_due = true;
        if (n->verdict == WELCOME_OK)
                welcome(d, n, role, index, m);
        notice_refusal(d, n, m);
        return true;
}

static uint32_t progress_of_run(const struct dfm *d)
{
        return (d->config.follows ? WELCOME_FOLLOWS : 0) | (d->resume.resumed ? WELCOME_RESUMED : 0) |
               (d->resume.resumed || d->begun ? WELCOME_LATE : 0);
}

bool dfm_make_welcome(struct dfm *d, struct message_to *to, struct message *m)
{
        for (uint32_t i = 0; d->n_answers > 0 && i < d->config.n_ros + d->config.n_sfi; i++) {
                struct dfm_node *n = &d->nodes[i];
                bool is_ros = i < d->config.n_ros;

                if (!n->answer_due)
                        continue;
                n->answer_due = false;
                d->n_answers--;
                *to = (struct message_to){is_ros ? ROLE_ROS : ROLE_SFI,
                                          (uint16_t)(is_ros ? i : i - d->config.n_ros)};
                dfm_address(d, m, MESSAGE_WELCOME, progress_of_run(d));
                m->welcome.incarnation = n->answer_to;
                m->welcome.run = d->config.run;
                m->welcome.verdict = n->verdict;
                m->welcome.key = n->key;
                return true;
        }
        return false;
}
