/* Decides how many events the SFI accepts at a time while other events wait for silent ROSs. */
#include "sfi_internal.h"

/* Number of credits until the size of an event is known. */
#define CREDITS_FIRST 4u
/* Maximum number of automatic credits. With more, events would only wait longer. */
#define CREDITS_USUAL 1536u
/* Minimum in pull, so that the next events are known before the limit has room for their requests. */
#define CREDITS_PULL_LEAST UINT64_C(32)
/* Interval at which the SFI checks for silent ROSs. */
#define LOOK_NS (20 * NS_PER_MS)

static uint64_t sfi_silent_ns(const struct sfi_requests *q)
{
        return MAX(sfi_retry_interval_ns(q->retry), q->config->timeout_ns / EVB_SILENT_SHARE);
}

void sfi_requests_find_silent(struct sfi_requests *q, uint64_t now_ns)
{
        uint64_t silent_ns;

        if (now_ns < q->silent_look_ns)
                return;
        silent_ns = sfi_silent_ns(q);
        q->silent_look_ns = now_ns + LOOK_NS;
        q->silent_bytes = 0;
        for (uint32_t i = 0; i < q->config->n_ros; i++) {
                const struct sfi_stream *stream = &q->streams[i];

                if (sfi_slots_ros_is_live(q->slots, i) &&
                    now_ns - MAX(stream->data_ns, stream->owing_ns) >= silent_ns)
                        q->silent_bytes += q->slots->sources[i].in_flight_bytes;
        }
}

/* Whether the event has some fragments, and all missing fragments are from silent ROSs. */
static bool only_waits(const struct sfi *s, uint64_t now_ns, uint32_t slot, uint64_t silent_ns)
{
        const struct sfi_slots *t = &s->slots;

        if (t->items[slot].missing >= t->n_live)
                return false;
        for (uint32_t i = 0; i < t->n_ros; i++) {
                if (!sfi_fragment(t, slot, i)->whole && sfi_slots_ros_is_live(t, i) &&
                    now_ns - s->requests.streams[i].data_ns < silent_ns)
                        return false;
        }
        return true;
}

/* Examines each assigned event once, when it is old enough. */
bool sfi_count_waiting(struct sfi *s, uint64_t now_ns)
{
        uint64_t silent_ns = sfi_silent_ns(&s->requests);
        struct sfi_slots *t = &s->slots;
        uint32_t before = t->n_waits;

        while (t->young != SLOT_NONE) {
                struct sfi_slot *e = &t->items[t->young];

                if ((s->config.pull && !e->requested) || now_ns - e->first_ns < silent_ns)
                        break;
                if (only_waits(s, now_ns, t->young, silent_ns)) {
                        e->waits = true;
                        t->n_waits++;
                        sfi_slots_learn_size(t, t->young, false);
                }
                t->young = e->next;
        }
        return t->n_waits > before;
}

uint64_t sfi_mean_event_bytes(const struct sfi *s)
{
        return s->totals.complete > 0 ? s->totals.payload_bytes / s->totals.complete : 0;
}

/* Automatic credits: as many events as fit into the socket buffer at once, and in addition the events that
 * only wait for silent ROSs, because their fragments have left the buffer. In pull by bytes from an unknown
 * port, more events would not put more data in flight. But ROSs could then run further ahead of each other,
 * and the memory in use would exceed the caches. The memory and the slots bound the total. */
static uint64_t derived_credits(const struct sfi *s, uint64_t event_bytes)
{
        const struct sfi_config *c = &s->config;
        uint64_t most = c->slots - c->slots / 4, n = MIN(most, (uint64_t)CREDITS_USUAL);

        if (event_bytes == 0)
                n = MIN(n, (uint64_t)CREDITS_FIRST);
        else if (c->room_bytes > 0 && (!c->pull || (sfi_pulls_by_bytes(c) && c->port_bytes == 0)))
                n = MIN(n, MAX(c->room_bytes / event_bytes, c->pull ? CREDITS_PULL_LEAST : UINT64_C(1)));
        n = MIN(MAX(n, UINT64_C(1)) + s->slots.n_waits, most);
        if (s->slots.sources && event_bytes > 0)
                n = MIN(n, sfi_updates_open(&s->updates) +
                                   sfi_limit_credits(&s->limit, sfi_mean_event_bytes(s),
                                                     sfi_requests_in_flight(&s->requests)));
        return n;
}

uint32_t sfi_credits(const struct sfi *s)
{
        const struct sfi_config *c = &s->config;
        uint64_t event_bytes = s->slots.event_bytes;
        uint64_t n = c->credits > 0 ? c->credits : derived_credits(s, event_bytes);

        /* An SFI that leaves builds no further events, except the last ones of the run. */
        if (s->state != RUN_RUNNING && (s->state == RUN_ENDED || s->run_state != RUN_DRAINING))
                return 0;
        /* Some memory stays free for events that arrive before their assignment, and for events that are
         * being written. */
        if (event_bytes > 0)
                n = MIN(n, c->buffer_bytes / 4 * 3 / event_bytes);
        return (uint32_t)MAX(n, UINT64_C(1));
}
