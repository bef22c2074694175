/* Checks built events: the bytes of pattern fragments, and what is missing. */
#include "data/event_check.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/pattern.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "format/eformat.h"

/* ROSs that the log names for a partial event. */
#define MISSING_NAMED 4

void event_check_init(struct event_check *c, const struct data_context *context, const uint8_t *buffer)
{
        const struct scenario *s = context->scenario;

        *c = (struct event_check){
                .context = context, .buffer = buffer, .seed = s->run.seed, .n_ros = (uint32_t)s->ros.count};
        for (const struct scenario_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->role == ROLE_ROS && n->source_kind == SOURCE_PATTERN)
                        c->pattern[n->index / 64] |= UINT64_C(1) << n->index % 64;
        }
}

/* Logs the first event of each fault; event_check_reasons() reports how many there were. */
static __attribute__((noinline)) void record_corrupt(struct event_check *c, const struct sfi_built *built,
                                                     uint32_t ros, uint64_t key, size_t at)
{
        const struct scenario_node *source = scenario_node_of(c->context->scenario, ROLE_ROS, ros);
        const uint8_t *found = c->buffer + built->fragments[ros].at + at;
        char text[sizeof c->first_corrupt];
        uint8_t expected;

        c->corrupt_fragments++;
        stats_add(&c->context->stats->fragments_corrupt, 1);
        if (!log_is_new_fault(&c->corrupt_ns[ros], clock_now_ns()))
                return;
        pattern_fill(key, &expected, at, 1);
        snprintf(text, sizeof text, "event %llu of %s, byte %zu is 0x%02x, expected 0x%02x",
                 (unsigned long long)built->event, source ? source->name : "an unknown ROS", at, *found,
                 expected);
        (void)log_with(LOG_LEVEL_ERROR, 0,
                       LOG_FIELDS(.id = LOG_ID_EVENT_CORRUPT, .peer = source ? source->name : NULL,
                                  .has_event = true, .event = built->event),
                       "corrupt fragment: %s; check that run.seed is the same on all nodes", text);
        if (!c->first_corrupt[0])
                memcpy(c->first_corrupt, text, sizeof text);
}

static void check_fragment(struct event_check *c, const struct sfi_built *built, uint32_t ros)
{
        const struct sfi_fragment *f = &built->fragments[ros];
        uint64_t key;
        size_t at;

        if (!f->whole || f->form != FORM_RAW || f->bytes == 0 || f->at == ARENA_NONE)
                return;
        key = pattern_key(c->seed, ros, built->info.l1_id);
        at = pattern_check(key, c->buffer + f->at, 0, f->bytes);
        if (at < f->bytes)
                record_corrupt(c, built, ros, key, at);
}

/* Returns whether bytes of any fragment differ from the pattern, and counts these fragments. */
static bool is_any_corrupt(struct event_check *c, const struct sfi_built *built)
{
        const uint64_t before = c->corrupt_fragments;

        for (uint32_t i = 0; i < c->n_ros; i++) {
                if (c->pattern[i / 64] >> i % 64 & 1)
                        check_fragment(c, built, i);
        }
        if (c->corrupt_fragments == before)
                return false;
        c->corrupt_events++;
        return true;
}

/* Logs the first event of each fault; the report counts them. */
static __attribute__((noinline)) void record_partial(struct event_check *c, const struct sfi_built *built)
{
        char names[160] = "";
        struct strbuf text = strbuf_init(names, sizeof names);
        uint64_t now_ns = clock_now_ns();
        unsigned missing = 0;
        bool is_new = false;

        for (uint32_t i = 0; i < c->n_ros; i++) {
                const struct scenario_node *source = scenario_node_of(c->context->scenario, ROLE_ROS, i);

                if (sfi_fragment_is_present(&built->fragments[i]) || !source->required)
                        continue;
                is_new |= log_is_new_fault(&c->missing_ns[i], now_ns);
                if (missing++ < MISSING_NAMED)
                        strbuf_add(&text, "%s%s", missing > 1 ? ", " : "", source->name);
        }
        if (!is_new)
                return;
        if (missing > MISSING_NAMED)
                strbuf_add(&text, " and %u more", missing - MISSING_NAMED);
        (void)log_with(LOG_LEVEL_WARNING, 0,
                       LOG_FIELDS(.id = LOG_ID_EVENT_PARTIAL, .has_event = true, .event = built->event),
                       "event %llu is partial: the fragments of %s are missing; further ones are only "
                       "counted until none comes for 10 s",
                       (unsigned long long)built->event, names);
}

/* Without this, a run that loses all its events would log nothing until its end. */
static __attribute__((noinline)) void record_lost(struct event_check *c, const struct sfi_built *built)
{
        if (!log_is_new_fault(&c->lost_ns, clock_now_ns()))
                return;
        (void)log_with(LOG_LEVEL_WARNING, 0,
                       LOG_FIELDS(.id = LOG_ID_EVENT_LOST, .has_event = true, .event = built->event),
                       "event %llu is lost: no fragment of it arrived at port %u; further ones are only "
                       "counted until none comes for 10 s",
                       (unsigned long long)built->event, scenario_data_port(c->context->scenario));
}

bool event_check(struct event_check *c, const struct sfi_built *built, uint32_t *ret_status)
{
        if (built->end == EVENT_LOST) {
                if (!built->is_elsewhere)
                        record_lost(c, built);
                return false;
        }
        if (built->end == EVENT_PARTIAL)
                record_partial(c, built);
        *ret_status = is_any_corrupt(c, built) ? EFORMAT_CORRUPT : 0;
        return true;
}

void event_check_reasons(const struct event_check *c, struct reasons *to)
{
        if (c->corrupt_fragments > 0)
                reasons_add(to, "%llu fragments of %llu events are corrupt; the first: %s",
                            (unsigned long long)c->corrupt_fragments, (unsigned long long)c->corrupt_events,
                            c->first_corrupt);
}
