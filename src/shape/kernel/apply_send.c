/* Sends changes to the kernel and reports its refusals and warnings. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shape/kernel/apply.h"
#include "base/strbuf.h"
#include "base/util.h"

static const char *verb_text(enum tc_verb verb)
{
        static const char *const texts[] = {
                [TC_ADD] = "add", [TC_REPLACE] = "install", [TC_CHANGE] = "change", [TC_DELETE] = "delete"};

        return texts[verb];
}

static void describe(const struct tc_change *c, const struct tc_ack *ack, char *text, size_t size)
{
        struct strbuf b = strbuf_init(text, size);

        strbuf_add(&b, "%s ", verb_text(c->verb));
        tc_object_name(c->object, &b);
        if (ack->error < 0)
                strbuf_add(&b, ": %s", strerror(-ack->error));
        if (ack->text[0])
                strbuf_add(&b, ": %s", ack->text);
}

/* Splits each renewal into its two messages. Returns the total number of messages. */
static size_t split(const struct tc_change *changes, size_t n, struct tc_change *to)
{
        size_t k = 0;

        for (size_t i = 0; i < n; i++) {
                to[k++] = changes[i];
                if (changes[i].verb != TC_RENEW)
                        continue;
                to[k - 1].verb = TC_DELETE;
                to[k++] = (struct tc_change){TC_ADD, changes[i].object, 0};
        }
        return k;
}

int apply_send(struct tc_socket *s, int ifindex, const struct tc_change *wanted, size_t n_wanted,
               struct tc_outcome *o, struct error *e)
{
        _cleanup_free_ struct tc_ack *acks = calloc(2 * n_wanted + 1, sizeof *acks);
        _cleanup_free_ struct tc_change *changes = calloc(2 * n_wanted + 1, sizeof *changes);
        char text[TC_OUTCOME_TEXT_MAX];
        int done, refused = 0;
        size_t n;

        if (!acks || !changes)
                return error_set(e, -ENOMEM, "%m");
        n = split(wanted, n_wanted, changes);
        done = tc_socket_change(s, ifindex, changes, n, acks);
        if (done < 0)
                return error_set(e, done, "netlink request failed: %m");
        /* A renewal counts once. After a refusal, everything is rolled back. */
        o->operations += (unsigned)MIN((size_t)done, n_wanted);
        for (size_t i = 0; i < n; i++) {
                if (acks[i].error == -ECANCELED || (acks[i].error == 0 && !acks[i].text[0]))
                        continue;
                describe(&changes[i], &acks[i], text, sizeof text);
                if (acks[i].error == 0)
                        tc_outcome_warn(o, "kernel warning: %s", text);
                else if (refused == 0)
                        refused = error_set(e, acks[i].error, "the kernel refused to %s", text);
        }
        return refused;
}

void tc_outcome_warn(struct tc_outcome *o, const char *format, ...)
{
        va_list args;

        if (o->n_warnings == TC_WARNINGS_MAX)
                return;
        va_start(args, format);
        vsnprintf(o->warnings[o->n_warnings++], TC_OUTCOME_TEXT_MAX, format, args);
        va_end(args);
}
