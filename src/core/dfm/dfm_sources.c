/* Decides which ROSs take part in events. A ROS whose front-end is silent is left out until it sends again,
 * so that neither events nor triggers wait for it. */
#include "dfm_internal.h"

void dfm_init_sources(struct dfm *d)
{
        const struct dfm_config *c = &d->config;

        for (uint32_t i = 0; i < c->n_ros; i++) {
                const struct ros_rule rule = c->ros_rules ? c->ros_rules[i] : (struct ros_rule){};

                d->ross[i].optional = rule.optional;
                d->ross[i].frames = rule.frames;
                d->ross[i].leads = rule.leads;
                d->ross[i].period = rule.period;
                d->ross[i].silent_ns = rule.wait_ns == 0
                                               ? c->node_timeout_ns
                                               : MAX(rule.wait_ns, EVB_SILENT_KEEP_ALIVES * c->keep_alive_ns);
        }
        d->config.ros_rules = NULL;
}

static void set(struct dfm *d, struct dfm_ros *r, bool xoff, bool left_out)
{
        d->n_xoff -= r->xoff && !r->left_out;
        r->xoff = xoff;
        r->left_out = left_out;
        d->n_xoff += r->xoff && !r->left_out;
        d->frames_known = false;
}

void dfm_set_xoff(struct dfm *d, uint16_t ros, bool xoff)
{
        set(d, &d->ross[ros], xoff, d->ross[ros].left_out);
}

void dfm_record_source(struct dfm *d, uint64_t now_ns, uint16_t ros)
{
        const struct dfm_node *n = dfm_node(d, ROLE_ROS, ros);
        struct dfm_ros *r = &d->ross[ros];
        bool silent = n->live && (n->reason == REASON_NO_FRONT_END || n->reason == REASON_SILENT) &&
                      n->reason_ms * NS_PER_MS >= r->silent_ns;

        if (silent == r->left_out)
                return;
        set(d, r, r->xoff, silent);
        d->keep_alive_due_ns = now_ns;
        if (n->live)
                dfm_notice(d, &(struct dfm_notice){.kind = silent ? NOTICE_LEFT_OUT : NOTICE_TAKEN_IN,
                                                   .role = ROLE_ROS,
                                                   .index = ros});
}

bool dfm_has_required_ross(const struct dfm *d)
{
        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                if (!d->ross[i].optional && !dfm_node(d, ROLE_ROS, i)->live)
                        return false;
        }
        return true;
}

bool dfm_has_required(const struct dfm *d)
{
        return dfm_has_required_ross(d) && d->n_live[ROLE_SFI] == d->config.n_sfi;
}
