/* Turns recent losses into text. A node may send arbitrary values, so any value that is not a positive number
 * counts as 0, and only names in the scenario are used. */
#include "statuses.h"

#include <math.h>

#include "base/quantity.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "counters.h"
#include "losses.h"

/* Maximum number of names in a text; further nodes are only counted. */
#define NAMES_MAX 3

static const struct {
        const char *key, *word;
} events[] = {{"events_lost", "lost"}, {"events_partial", "partial"}, {"events_not_written", "not written"}};

/* Where fragments and packets are lost, as reported by one or several nodes. */
struct places {
        const struct scenario *scenario;
        double packets[LOSS_PLACES];
        double missing[1 + EVB_ROS_MAX + EVB_SFI_MAX]; /* fragments of each node */
};

static double count_of(const json_t *o, const char *key)
{
        double value = json_number_value(json_object_get(o, key));

        return value > 0 ? value : 0;
}

/* Reads the packet losses in "drops" or "losses" of a node. */
static void read_packets(const json_t *o, enum node_role role, double ret[static LOSS_PLACES])
{
        losses_begin(ret);
        for (size_t i = 0; i < LOSS_PLACES; i++) {
                const struct loss_place_text *p = &loss_places[i];

                if (p->key && p->roles & COUNTER_ROLE(role) && json_is_number(json_object_get(o, p->key)))
                        ret[i] = count_of(o, p->key);
        }
}

void losses_read(const struct node_status *n, double ret[static LOSS_PLACES])
{
        read_packets(json_object_get(n->status, "drops"), n->node->role, ret);
        for (size_t i = 0; i < COUNTERS; i++) {
                enum loss_place place = losses_place_of(&stats_table[i], n->node->role);
                const json_t *value = counters_find(n->status, i);

                if (place != LOSS_NOWHERE && !loss_places[place].key && json_is_number(value))
                        ret[place] = (isnan(ret[place]) ? 0 : ret[place]) + fmax(json_number_value(value), 0);
        }
}

static void add_places(struct places *p, const struct node_status *n)
{
        const json_t *losses = json_object_get(n->status, "losses"),
                     *missing = json_object_get(losses, "missing_fragments");
        double packets[LOSS_PLACES];

        read_packets(losses, n->node->role, packets);
        losses_add(p->packets, packets);
        for (size_t i = 0; json_is_object(missing) && i < p->scenario->n_nodes; i++)
                p->missing[i] += count_of(missing, p->scenario->nodes[i].name);
}

static void add_item(struct strbuf *b, const char *before, const char *word, double value)
{
        char text[QUANTITY_TEXT_MAX];

        strbuf_add(b, "%s%s %s", before, word, quantity_format_real(value, "", text));
}

/* Writes the nodes with the most missing fragments. */
static void write_missing(struct strbuf *b, struct places *p)
{
        size_t left = 0, n = p->scenario->n_nodes;

        for (size_t i = 0; i < n; i++)
                left += p->missing[i] > 0;
        for (size_t k = 0; left > 0 && k < NAMES_MAX; k++, left--) {
                size_t most = 0;

                for (size_t i = 1; i < n; i++)
                        most = p->missing[i] > p->missing[most] ? i : most;
                add_item(b, k == 0 ? "; missing fragments: " : ", ", p->scenario->nodes[most].name,
                         p->missing[most]);
                p->missing[most] = 0;
        }
        if (left > 0)
                strbuf_add(b, ", and %zu more ROS%s", left, left == 1 ? "" : "s");
}

static void write_places(struct strbuf *b, struct places *p)
{
        const char *before = "; dropped packets: ";

        write_missing(b, p);
        losses_end(p->packets);
        for (size_t i = 0; i < LOSS_PLACES; i++) {
                if (!(p->packets[i] > 0))
                        continue;
                add_item(b, before, loss_places[i].word, p->packets[i]);
                before = ", ";
        }
}

/* Writes "3 events lost, 1 partial". False: no event is lost or partial. */
static bool write_events(struct strbuf *b, const json_t *losses)
{
        char text[QUANTITY_TEXT_MAX];
        bool any = false;

        for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
                double value = count_of(losses, events[i].key);
                const char *noun = any ? "" : value == 1 ? " event" : " events";

                if (value <= 0)
                        continue;
                strbuf_add(b, "%s%s%s %s", any ? ", " : "", quantity_format_real(value, "", text), noun,
                           events[i].word);
                any = true;
        }
        if (any)
                strbuf_add(b, " in the last %.0f s", fmin(count_of(losses, "seconds"), 1e12));
        return any;
}

bool losses_describe(const struct scenario *s, const struct node_status *n, char *text, size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);
        struct places p = {.scenario = s};

        losses_begin(p.packets);
        if (!write_events(&b, json_object_get(n->status, "losses")))
                return false;
        add_places(&p, n);
        write_places(&b, &p);
        return true;
}

void losses_describe_places(const struct statuses *s, char *text, size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);
        struct places p = {.scenario = s->scenario};

        losses_begin(p.packets);
        for (size_t i = 0; i < s->n; i++)
                add_places(&p, &s->nodes[i]);
        write_places(&b, &p);
}
