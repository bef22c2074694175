/* MTU and interrupt coalescing of a shaped device: set with its shaping, restored on removal. */
#include <errno.h>
#include <string.h>

#include "shaper_internal.h"

/* RFC 8200, section 5: minimum MTU of IPv6. */
#define IPV6_MTU_MIN 1280u

static void forget_tuning(struct tc_shaper *s, const struct tc_tuning *before)
{
        s->state.previous = *before;
        if (tc_tuning_is_unchanged(before) && s->state.saved.n == 0 && s->state.n_asked == 0)
                tc_state_erase(&s->state);
        else
                (void)tc_state_write(&s->state);
}

bool shaper_follow_name(struct tc_shaper *s)
{
        char name[IF_NAMESIZE];

        if (!if_indextoname((unsigned)s->device.ifindex, name))
                return false;
        strcpy(s->device.name, name);
        return true;
}

/* `now`: the current settings. */
static int change_tuning(struct tc_shaper *s, const struct tc_tuning *want, const struct tc_tuning *now,
                         struct error *e)
{
        struct tc_tuning before = s->state.previous;
        struct tc_ack ack = {};
        int r;

        if (want->mtu_bytes < IPV6_MTU_MIN && now->mtu_bytes >= IPV6_MTU_MIN &&
            tc_device_has_ipv6(s->device.name))
                return error_set(e, -EINVAL,
                                 "with an MTU of %u the kernel removes the device's IPv6 addresses; use at "
                                 "least %u, or disable IPv6 first (sysctl net.ipv6.conf.%s.disable_ipv6=1)",
                                 want->mtu_bytes, IPV6_MTU_MIN, s->device.name);
        /* The file keeps the settings from before the first change, and has them before they are changed. */
        tc_tuning_remember(&s->state.previous, now, want);
        r = tc_state_write(&s->state);
        if (r < 0)
                return error_set(e, r, "cannot write the state file %s: %m", s->state.path);
        r = tc_tuning_write(s->socket, s->device.name, want, NULL, &ack);
        if (r < 0) {
                forget_tuning(s, &before);
                return error_set(e, r, "cannot set MTU and interrupt coalescing: %m%s%s",
                                 ack.text[0] ? ": " : "", ack.text);
        }
        return 0;
}

int tc_shaper_tune(struct tc_shaper *s, const struct tc_tuning *want, struct tc_outcome *o, struct error *e)
{
        struct tc_tuning now = {}, before = s->state.previous;
        int r;

        if (tc_tuning_is_unchanged(want))
                return 0;
        if (!shaper_follow_name(s))
                r = error_set(e, -ENODEV, "the device no longer exists");
        else {
                r = tc_tuning_read(s->device.name, &now);
                if (r < 0)
                        error_set(e, r, "cannot read MTU and interrupt coalescing: %m");
        }
        if (r >= 0) {
                if (tc_tuning_is_so(want, &now))
                        return 0;
                r = change_tuning(s, want, &now, e);
        }
        if (r < 0)
                return error_locate(e, "%s", s->device.name);
        s->untuned = TC_TUNING_UNCHANGED;
        tc_tuning_remember(&s->untuned, &now, want);
        s->remembered = before;
        o->operations++;
        return 0;
}

void tc_shaper_untune(struct tc_shaper *s, struct error *e)
{
        struct tc_ack ack = {};
        int r;

        if (tc_tuning_is_unchanged(&s->untuned) || !shaper_follow_name(s))
                return;
        r = tc_tuning_write(s->socket, s->device.name, &s->untuned, NULL, &ack);
        s->untuned = TC_TUNING_UNCHANGED;
        if (r >= 0)
                forget_tuning(s, &s->remembered);
        else
                error_append(e, "; restoring MTU and interrupt coalescing also failed: %s", strerror(-r));
}

int shaper_restore_tuning(struct tc_shaper *s, struct tc_outcome *o, struct error *e)
{
        struct tc_tuning now;
        struct tc_ack ack = {};
        int r;

        if (tc_tuning_is_unchanged(&s->state.previous))
                return 0;
        if (tc_tuning_read(s->device.name, &now) >= 0 && tc_tuning_is_so(&s->state.previous, &now))
                return 0;
        r = tc_tuning_write(s->socket, s->device.name, &s->state.previous, NULL, &ack);
        if (r < 0)
                return error_set(e, r, "cannot restore MTU and interrupt coalescing: %m%s%s",
                                 ack.text[0] ? ": " : "", ack.text);
        o->operations++;
        return 0;
}
