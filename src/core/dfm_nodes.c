/* Who is there, and when the run begins, drains and ends, as the DFM sees it. */
#include "dfm_internal.h"

/* How long the end of a run is told to nodes that do not answer, and how often. */
#define ENDED_LINGER_NS (2 * NS_PER_S)
#define ENDED_REPEAT_NS (20 * NS_PER_MS)

static void set_xoff(struct dfm *d, struct dfm_ros *r, bool xoff)
{
        if (r->xoff == xoff)
                return;
        r->xoff = xoff;
        if (xoff)
                d->n_xoff++;
        else
                d->n_xoff--;
}

/* It has forgotten all: its streams begin anew. */
static void sfi_begins(struct dfm *d, uint64_t now_ns, uint16_t index, uint16_t incarnation)
{
        struct dfm_sfi *s = &d->sfis[index];

        if (s->live)
                dfm_disown(d, now_ns, index);
        *s = (struct dfm_sfi){
                .former = s->joined ? s->incarnation : incarnation,
                .begun_ns = now_ns,
                .incarnation = incarnation,
                .alive_next = s->alive_next,
                .resend_ns = NEVER_NS,
                .resend_after_ns = DFM_RESEND_FIRST_NS,
                .stream = s->stream,
                .joined = true,
        };
}

/* It was only silent, and counts on from where it was. What it was told is not its own any more, which it learns alone. */
static void sfi_resumes(struct dfm_sfi *s, uint64_t now_ns)
{
        s->announced = s->next;
        s->sent = s->acked;
        s->resend_after_ns = DFM_RESEND_FIRST_NS;
        s->resend_ns = s->sent == s->next ? NEVER_NS : now_ns + s->resend_after_ns;
}

static void sfi_joins(struct dfm *d, uint64_t now_ns, uint16_t index, uint16_t incarnation)
{
        struct dfm_sfi *s = &d->sfis[index];

        if (!s->joined || s->incarnation != incarnation)
                sfi_begins(d, now_ns, index, incarnation);
        else
                sfi_resumes(s, now_ns);
        s->live = true;
        d->quorum_ns = now_ns;
        d->keep_alive_due_ns = now_ns;
}

static void sfi_goes(struct dfm *d, uint64_t now_ns, uint16_t index)
{
        d->sfis[index].live = false;
        d->keep_alive_due_ns = now_ns;
        dfm_disown(d, now_ns, index);
}

static void ros_goes(struct dfm *d, uint64_t now_ns, uint16_t index)
{
        set_xoff(d, &d->ross[index], false);
        d->ross[index].live = false;
        d->keep_alive_due_ns = now_ns;
}

/* A message that one sent later has overtaken says nothing new. */
static bool is_overtaken(uint32_t *next, uint16_t known, uint16_t incarnation, uint32_t sequence)
{
        if (known == incarnation && (int32_t)(sequence - *next) < 0)
                return true;
        *next = sequence + 1;
        return false;
}

/* An Alive of the incarnation before may come after the first of this one, but not long after. */
static bool is_former(const struct dfm *d, uint64_t now_ns, const struct dfm_sfi *s, uint16_t incarnation)
{
        return incarnation != s->incarnation && incarnation == s->former &&
               now_ns - s->begun_ns <= d->config.node_timeout_ns;
}

static void hear_sfi(struct dfm *d, uint64_t now_ns, uint16_t index, const struct message *m)
{
        struct dfm_sfi *s = &d->sfis[index];

        if (s->live && is_former(d, now_ns, s, m->alive.incarnation))
                return;
        if (is_overtaken(&s->alive_next, s->incarnation, m->alive.incarnation, m->header.transaction))
                return;
        if (!s->live && m->alive.state == RUN_ENDED) {
                s->state = RUN_ENDED;
                return;
        }
        if (!s->live || s->incarnation != m->alive.incarnation)
                sfi_joins(d, now_ns, index, m->alive.incarnation);
        s->heard_ns = now_ns;
        s->state = (enum run_state)m->alive.state;
        s->leaving = s->state >= RUN_DRAINING;
        if (m->alive.flags & ALIVE_FAILED)
                d->failed = true;
        if (s->state == RUN_ENDED)
                sfi_goes(d, now_ns, index);
}

static void hear_ros(struct dfm *d, uint64_t now_ns, uint16_t index, const struct message *m)
{
        struct dfm_ros *r = &d->ross[index];

        if (is_overtaken(&r->alive_next, r->incarnation, m->alive.incarnation, m->header.transaction))
                return;
        r->state = (enum run_state)m->alive.state;
        if (r->state == RUN_ENDED) {
                if (r->live)
                        ros_goes(d, now_ns, index);
                return;
        }
        if (!r->live || r->incarnation != m->alive.incarnation) {
                r->live = true;
                r->incarnation = m->alive.incarnation;
                d->quorum_ns = now_ns;
                d->keep_alive_due_ns = now_ns;
        }
        r->heard_ns = now_ns;
        set_xoff(d, r, m->alive.flags & ALIVE_XOFF);
}

bool dfm_hear_alive(struct dfm *d, uint64_t now_ns, const struct message *m)
{
        uint16_t index = m->header.sender_index;

        if (m->header.sender_role == ROLE_SFI && index < d->config.n_sfi) {
                if (m->header.type == MESSAGE_ALIVE)
                        hear_sfi(d, now_ns, index, m);
                return m->header.type == MESSAGE_ALIVE;
        }
        if (m->header.sender_role != ROLE_ROS || index >= d->config.n_ros)
                return false;
        if (m->header.type == MESSAGE_ALIVE)
                hear_ros(d, now_ns, index, m);
        else if (d->ross[index].live && !is_overtaken(&d->ross[index].alive_next, 0, 0, m->header.transaction))
                set_xoff(d, &d->ross[index], m->header.type == MESSAGE_XOFF);
        return true;
}

void dfm_check_nodes(struct dfm *d, uint64_t now_ns)
{
        for (uint32_t i = 0; i < d->config.n_sfi; i++) {
                if (d->sfis[i].live && now_ns - d->sfis[i].heard_ns > d->config.node_timeout_ns)
                        sfi_goes(d, now_ns, (uint16_t)i);
        }
        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                if (d->ross[i].live && now_ns - d->ross[i].heard_ns > d->config.node_timeout_ns)
                        ros_goes(d, now_ns, (uint16_t)i);
        }
}

uint32_t dfm_live(const struct dfm *d, enum node_role role)
{
        uint32_t n = 0;

        if (role == ROLE_SFI) {
                for (uint32_t i = 0; i < d->config.n_sfi; i++)
                        n += d->sfis[i].live;
        } else if (role == ROLE_ROS) {
                for (uint32_t i = 0; i < d->config.n_ros; i++)
                        n += d->ross[i].live;
        } else
                n = 1;
        return n;
}

bool dfm_node_is_live(const struct dfm *d, enum node_role role, uint16_t index)
{
        return role == ROLE_SFI ? d->sfis[index].live : d->ross[index].live;
}

bool dfm_node_was_heard(const struct dfm *d, enum node_role role, uint16_t index)
{
        return role == ROLE_SFI ? d->sfis[index].heard_ns > 0 : d->ross[index].heard_ns > 0;
}

bool dfm_ros_holds_back(const struct dfm *d, uint16_t index)
{
        return d->ross[index].xoff;
}

bool dfm_has_begun(const struct dfm *d)
{
        return d->started_ns > 0;
}

/* All are there; or some of each role are, and for a while no other came. */
static bool may_start(const struct dfm *d, uint64_t now_ns)
{
        uint32_t ross = dfm_live(d, ROLE_ROS), sfis = dfm_live(d, ROLE_SFI);

        if (ross == 0 || sfis == 0)
                return false;
        if (ross == d->config.n_ros && sfis == d->config.n_sfi)
                return true;
        return now_ns - d->quorum_ns >= d->config.node_timeout_ns;
}

static bool triggers_are_over(const struct dfm *d, uint64_t now_ns)
{
        const struct dfm_config *c = &d->config;

        return d->failed || (c->events > 0 && d->counts.triggers >= c->events) ||
               (c->duration_ns > 0 && now_ns - d->started_ns >= c->duration_ns);
}

static void begin(struct dfm *d, uint64_t now_ns)
{
        const struct dfm_config *c = &d->config;

        d->state = RUN_RUNNING;
        d->started_ns = now_ns;
        d->keep_alive_due_ns = now_ns;
        trigger_init(&d->trigger, c->trigger_kind, c->trigger_rate_millihertz, c->trigger_burst, c->seed, now_ns);
}

static void end(struct dfm *d, uint64_t now_ns)
{
        d->state = RUN_ENDED;
        d->ended_ns = now_ns;
        d->keep_alive_due_ns = now_ns;
        d->config.keep_alive_ns = ENDED_REPEAT_NS;
}

void dfm_advance_run(struct dfm *d, uint64_t now_ns)
{
        if (d->state == RUN_STARTING && may_start(d, now_ns))
                begin(d, now_ns);
        if (d->state == RUN_RUNNING && triggers_are_over(d, now_ns))
                dfm_stop(d, now_ns);
        if (d->state == RUN_DRAINING && d->table.used == 0 && d->n_clears == 0)
                end(d, now_ns);
        if (d->state == RUN_ENDED && ((dfm_live(d, ROLE_SFI) == 0 && dfm_live(d, ROLE_ROS) == 0) ||
                                      now_ns - d->ended_ns >= ENDED_LINGER_NS))
                d->done = true;
}

void dfm_stop(struct dfm *d, uint64_t now_ns)
{
        if (d->state >= RUN_DRAINING)
                return;
        d->state = RUN_DRAINING;
        d->keep_alive_due_ns = now_ns;
}
