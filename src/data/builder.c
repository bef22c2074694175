/* Verifies built events and passes them to event_output.c, in a separate thread if there are files. */
#include "data/builder.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/ring.h"
#include "base/util.h"
#include "live/live_server.h"
#include "net/key_file.h"
#include "net/local_listener.h"
#include "store/event_writer.h"
#include "sys/thread.h"
#include "event_check.h"
#include "event_encoder.h"
#include "event_output.h"
#include "socket_open.h"

#define UNIX_PREFIX "unix:"
#define BATCH 64
/* While a consumer in mode all has no room, the thread looks again at this interval. */
#define WAIT_LOOK_NS (200 * (long)NS_PER_US)
#define WAIT_LOG_NS NS_PER_S
#define WAIT_END_NS (10 * NS_PER_S)
/* Interval of looking for acknowledgements. */
#define LOOK_MS 1
#define NO_ROOM "a consumer of live events in mode all delays the run: it has had no room"
#define NO_CONSUMER                                                                                          \
        "the run waits for a consumer of live events in mode all (sfi.output = live): there has been none"
#define NOT_ACKNOWLEDGED                                                                                     \
        "a consumer of live events delays the end of the run: it has not acknowledged all events"

/* An event for the thread. */
struct passed {
        uint32_t slot;
        bool is_checked; /* the owner's thread has checked the event, with this status, and a consumer in mode
                            all had no room for it */
        uint32_t status;
};

/* What the thread does when its queue is empty. */
enum thread_order { THREAD_WAIT, THREAD_SEAL, THREAD_LEAVE };

struct builder {
        struct data_context context;
        struct file_list *files;
        const struct sfi *core;
        const uint8_t *buffer;
        uint32_t slots;
        struct event_check check; /* for the thread that builds */
        /* A thread between two rings writes files, or waits for consumers; only it uses `output`. Without
         * files, it has no work while all consumers have room. */
        struct event_output *output;   /* NULL: no files; then there is a thread only for live.all */
        struct live_server *live;      /* NULL: no live.listen */
        struct event_encoder *encoder; /* NULL: neither */
        bool threaded;
        pthread_t thread;
        size_t batch_left; /* number of popped events that the thread has not built yet, without the present
                              one */
        /* Accepted events that have not been collected: the owner built the first ones itself. */
        uint32_t n_built, n_passed;
        struct ring to_write, done;
        struct waker wake_thread, wake_owner;
        _Atomic enum thread_order order;
        _Atomic int failure; /* error of the output, before it is sealed */
        _Atomic bool sealed; /* once this is set, the owner may read `error` */
        int error;
        bool sealed_seen;
        uint64_t live_lost;   /* events of consumers that ended, which the statistics have */
        uint64_t live_missed; /* events that a consumer in mode all did not get */
        /* With sfi.output = live, only for the thread: */
        struct live_slot {
                bool is_held;     /* a consumer has the event, */
                uint64_t held_ns; /* since this time */
                uint32_t status;
        } * live_slots;  /* NULL: another output */
        uint32_t *again; /* slots whose consumers ended before they had acknowledged the event */
        uint32_t n_held, n_again;
        uint64_t unacknowledged; /* events lost because no consumer acknowledged them */
        /* Of the wait for consumers in mode all: */
        uint64_t waited_ns;    /* when one last delayed the thread */
        uint64_t end_delay_ns; /* of earlier waits since the end of the run began */
        bool waits_no_more;
        _Atomic uint64_t ending_ns; /* when the end of the run began; 0: not yet */
};

/* An event on its way to the consumers and to the file. */
struct encoding {
        struct builder *b;
        const struct sfi_built *built;
        uint32_t status;
        const struct eformat_encoding *bytes; /* NULL: not encoded yet, or encoding failed */
        int error;
};

static int encode(struct encoding *e)
{
        if (!e->bytes && e->error == 0)
                e->error = event_encoder_encode(e->b->encoder, e->built, e->status, &e->bytes);
        return e->error;
}

/* Each consumer costs a copy of the event, so consumers receive nothing while the thread has no time to
 * spare, except in mode all. */
static bool is_behind(const struct builder *b)
{
        return b->threaded && b->batch_left + ring_count(&b->to_write) > b->slots / 4;
}

static int encode_live(void *ctx, bool needed, const struct iovec **iov, size_t *n_iov, size_t *size_bytes)
{
        struct encoding *e = ctx;
        int r = !needed && !e->bytes && is_behind(e->b) ? -EAGAIN : encode(e);

        if (r < 0)
                return r;
        assert(e->bytes);
        *iov = e->bytes->iov;
        *n_iov = e->bytes->n_iov;
        *size_bytes = e->bytes->size_bytes;
        return 0;
}

static void collect_stored(void *ctx);
static void collect_acknowledged(struct builder *b);

/* Time by which consumers have delayed the end of the run, with a wait since `since_ns`. */
static uint64_t end_delay_ns(struct builder *b, uint64_t since_ns, uint64_t now_ns)
{
        uint64_t ending_ns = atomic_load(&b->ending_ns);

        /* The end may have begun after the clock was read. */
        return ending_ns == 0 ? 0 : b->end_delay_ns + now_ns - MIN(now_ns, MAX(since_ns, ending_ns));
}

/* How long consumers may delay the end of the run: at least as long as a node may be silent, so that a
 * machine that is held up loses no events. */
static uint64_t wait_end_ns(const struct builder *b)
{
        return MAX(WAIT_END_NS, b->context.scenario->dfm.node_timeout_ns);
}

/* After this time at the end of the run, the thread waits no more. */
static bool is_out_of_time(struct builder *b, uint64_t since_ns, uint64_t now_ns)
{
        uint64_t delay_ns = end_delay_ns(b, since_ns, now_ns);

        /* A cancelled stop. */
        if (atomic_load(&b->ending_ns) == 0)
                b->waits_no_more = false;
        if (b->waits_no_more || delay_ns < wait_end_ns(b))
                return b->waits_no_more;
        log_warning("consumers of live events in mode all have delayed the end of the run by %.1f s; they "
                    "get only the events that fit",
                    (double)delay_ns / NS_PER_S);
        b->waits_no_more = true;
        return true;
}

/* Waits a little for consumers in mode all, while events that were built before are stored and returned.
 * False: do not wait. */
static bool pause_thread(struct builder *b, uint64_t since_ns, const char *why)
{
        uint64_t now_ns = clock_now_ns();

        if (atomic_load(&b->order) == THREAD_LEAVE || is_out_of_time(b, since_ns, now_ns))
                return false;
        if (now_ns - since_ns >= WAIT_LOG_NS && log_is_new_fault(&b->waited_ns, now_ns))
                log_warning("%s for %.1f s", why, (double)(now_ns - since_ns) / NS_PER_S);
        live_server_wake(b->live);
        if (b->output)
                event_output_turn(b->output, now_ns, true);
        collect_acknowledged(b);
        collect_stored(b);
        nanosleep(&(struct timespec){.tv_nsec = WAIT_LOOK_NS}, NULL);
        return true;
}

static struct live_outcome offer_once(struct builder *b, struct encoding *e, uint32_t slot, bool again,
                                      bool may_wait)
{
        const struct live_event event = {
                .number = e->built->event,
                .trigger_type = e->built->info.trigger_type,
                .is_partial = e->built->end == EVENT_PARTIAL,
                .tag = slot,
                .is_again = again,
        };
        struct live_outcome outcome = live_server_offer(b->live, &event, may_wait, encode_live, e);

        stats_add(&b->context.stats->live_events, outcome.given);
        stats_add(&b->context.stats->live_events_skipped, outcome.skipped);
        b->live_missed += outcome.missed;
        return outcome;
}

/* Returns whether a consumer has the event now, and will acknowledge it. */
static bool offer_live(struct builder *b, struct encoding *e, uint32_t slot, bool again)
{
        struct live_outcome outcome = offer_once(b, e, slot, again, true);
        uint64_t since_ns = outcome.waits ? clock_now_ns() : 0;

        while (outcome.waits)
                outcome = offer_once(
                        b, e, slot, again,
                        pause_thread(b, since_ns, outcome.has_no_consumer ? NO_CONSUMER : NO_ROOM));
        if (since_ns > 0)
                b->end_delay_ns = end_delay_ns(b, since_ns, clock_now_ns());
        return outcome.is_held;
}

static void push_done(struct builder *b, uint32_t slot, bool failed)
{
        struct builder_done done = {.slot = slot, .failed = failed};

        (void)ring_push(&b->done, &done);
}

/* ---- sfi.output = live ---- */

static void lose(struct builder *b, uint32_t slot)
{
        struct builder_done done = {.slot = slot, .is_lost = true};

        b->unacknowledged++;
        (void)ring_push(&b->done, &done);
}

static void hold(struct builder *b, uint32_t slot, bool again)
{
        struct live_slot *l = &b->live_slots[slot];
        struct sfi_built built;
        struct encoding e = {.b = b, .built = &built, .status = l->status};

        sfi_built_event(b->core, slot, &built);
        if (!offer_live(b, &e, slot, again)) {
                lose(b, slot);
                return;
        }
        l->is_held = true;
        l->held_ns = clock_now_ns();
        b->n_held++;
}

static void collect_acknowledged(struct builder *b)
{
        struct live_end ends[BATCH];
        size_t n;

        while (b->live_slots && (n = live_server_collect(b->live, ends, ARRAY_SIZE(ends))) > 0) {
                for (size_t i = 0; i < n; i++) {
                        b->live_slots[ends[i].tag].is_held = false;
                        b->n_held--;
                        if (ends[i].is_acknowledged)
                                push_done(b, ends[i].tag, false);
                        else
                                b->again[b->n_again++] = ends[i].tag;
                }
        }
}

/* Offers events of consumers that have ended to others. */
static void hold_again(struct builder *b)
{
        while (b->n_again > 0)
                hold(b, b->again[--b->n_again], true);
}

/* At the end of the run: ends consumers that have had an event for too long, because the run ends only when
 * all events have come back. */
static void end_holders(struct builder *b, uint64_t now_ns)
{
        uint64_t ending_ns = atomic_load(&b->ending_ns);

        if (b->n_held == 0 || ending_ns == 0 || now_ns - MIN(now_ns, ending_ns) < wait_end_ns(b))
                return;
        for (uint32_t slot = 0; slot < b->slots; slot++) {
                struct live_slot *l = &b->live_slots[slot];

                if (!l->is_held || now_ns - MIN(now_ns, MAX(ending_ns, l->held_ns)) < wait_end_ns(b))
                        continue;
                if (!b->waits_no_more)
                        log_warning("the consumers of live events that have not acknowledged events for %u s "
                                    "at the end of the run are disconnected",
                                    (unsigned)(wait_end_ns(b) / NS_PER_S));
                b->waits_no_more = true;
                l->held_ns = now_ns;
                live_server_end_holders(b->live, slot);
        }
}

/* At the end of the run: waits for acknowledgements, but not without limit. */
static void finish_held(struct builder *b)
{
        uint64_t since_ns = clock_now_ns();

        do {
                collect_acknowledged(b);
                hold_again(b);
        } while (b->n_held > 0 && pause_thread(b, since_ns, NOT_ACKNOWLEDGED));
        for (uint32_t slot = 0; b->n_held > 0; slot++) {
                if (!b->live_slots[slot].is_held)
                        continue;
                b->n_held--;
                lose(b, slot);
        }
}

/* The thread. */
static void build(struct builder *b, uint64_t now_ns, const struct passed *passed)
{
        uint32_t slot = passed->slot;
        struct sfi_built built;
        struct encoding e = {.b = b, .built = &built, .status = passed->status};

        sfi_built_event(b->core, slot, &built);
        if (!passed->is_checked && !event_check(&b->check, &built, &e.status)) {
                push_done(b, slot, false);
                return;
        }
        if (b->live_slots) {
                b->live_slots[slot].status = e.status;
                hold(b, slot, false);
                return;
        }
        if (live_server_is_wanted(b->live))
                (void)offer_live(b, &e, slot, false);
        if (!b->output) {
                push_done(b, slot, false);
                return;
        }
        if (event_output_error(b->output) == 0)
                (void)encode(&e);
        if (!event_output_write(b->output, now_ns, slot, e.bytes, e.error)) {
                atomic_store(&b->failure, event_output_error(b->output));
                push_done(b, slot, true);
        }
}

static void wake_consumers(struct builder *b)
{
        if (live_server_is_wanted(b->live))
                live_server_wake(b->live);
}

/* The owner's thread, without a file. False: a consumer in mode all has no room for the event. */
static bool build_at_once(struct builder *b, uint32_t slot, uint32_t *ret_status)
{
        struct sfi_built built;
        struct encoding e = {.b = b, .built = &built};

        sfi_built_event(b->core, slot, &built);
        if (event_check(&b->check, &built, &e.status) && live_server_is_wanted(b->live) &&
            offer_once(b, &e, slot, false, b->threaded).waits) {
                *ret_status = e.status;
                return false;
        }
        push_done(b, slot, false);
        return true;
}

/* ---- The thread ---- */

static void collect_stored(void *ctx)
{
        struct builder *b = ctx;
        struct builder_done done[BATCH];
        size_t n;

        if (b->output)
                atomic_store(&b->failure, event_output_error(b->output));
        while (b->output && (n = event_output_collect(b->output, done, ARRAY_SIZE(done))) > 0)
                for (size_t i = 0; i < n; i++)
                        (void)ring_push(&b->done, &done[i]);
        if (ring_count(&b->done) > 0)
                waker_wake(&b->wake_owner);
}

static void wait_for_work(struct builder *b)
{
        uint64_t now_ns = clock_now_ns(), deadline_ns = NEVER_NS;
        int wait_ms = -1;

        if (b->output)
                deadline_ns = event_output_deadline_ns(b->output);
        if (deadline_ns != NEVER_NS)
                wait_ms = deadline_ns <= now_ns ? 0 : (int)DIV_ROUND_UP(deadline_ns - now_ns, NS_PER_MS);

        /* Consumers do not wake the thread when they acknowledge events. */
        if (b->n_held > 0)
                wait_ms = LOOK_MS;

        waker_prepare(&b->wake_thread);
        if (ring_count(&b->to_write) == 0 && atomic_load(&b->order) == THREAD_WAIT)
                waker_wait(&b->wake_thread, wait_ms);
        waker_done(&b->wake_thread);
}

static void end_live(struct builder *b)
{
        uint64_t all = live_server_end_groups(b->live), lost = all - b->live_lost;

        b->live_lost = all;
        stats_add(&b->context.stats->live_events_lost, lost);
        if (lost > 0)
                log_warning("%llu live events are lost: the consumers that received them ended, and no other "
                            "one of their group had room",
                            (unsigned long long)lost);
}

static void seal(struct builder *b)
{
        uint64_t since_ns = clock_now_ns();

        while (!live_server_is_settled(b->live) && pause_thread(b, since_ns, NO_ROOM))
                continue;
        if (b->live_slots)
                finish_held(b);
        end_live(b);
        b->error = b->output ? event_output_close(b->output) : 0;
        collect_stored(b);
        atomic_store(&b->sealed, true);
        waker_wake(&b->wake_owner);
}

static void *run_thread(void *ctx)
{
        struct builder *b = ctx;
        struct passed passed[BATCH];

        for (;;) {
                /* Load the order before the ring: events pushed before the order must still be written. */
                enum thread_order order = atomic_load(&b->order);
                size_t n = ring_pop(&b->to_write, passed, ARRAY_SIZE(passed));
                uint64_t now_ns = clock_now_ns();

                for (size_t i = 0; i < n; i++) {
                        b->batch_left = n - i - 1;
                        build(b, now_ns, &passed[i]);
                        /* The disk may delay the other events of the batch. */
                        if (b->output)
                                wake_consumers(b);
                }
                wake_consumers(b);
                if (b->output)
                        event_output_turn(b->output, now_ns, ring_count(&b->to_write) == 0);
                collect_acknowledged(b);
                hold_again(b);
                end_holders(b, now_ns);
                collect_stored(b);
                if (order == THREAD_LEAVE) {
                        if (b->output)
                                event_output_flush(b->output);
                        return NULL;
                }
                if (n == 0 && order == THREAD_SEAL) {
                        seal(b);
                        return NULL;
                }
                if (n == 0)
                        wait_for_work(b);
        }
}

static void end_thread(struct builder *b)
{
        if (!b->threaded)
                return;
        atomic_store(&b->order, THREAD_LEAVE);
        waker_wake(&b->wake_thread);
        pthread_join(b->thread, NULL);
        b->threaded = false;
}

/* ---- Creation and end ---- */

void file_list_clear(struct file_list *l)
{
        for (size_t i = 0; i < l->n; i++)
                free((char *)l->files[i].path);
        free(l->files);
        *l = (struct file_list){};
}

static int prepare_files(struct builder *b, uint32_t slots)
{
        int r = b->encoder ? 0 : event_encoder_new(&b->encoder, &b->context, b->buffer);

        return r < 0 ? r : event_output_new(&b->output, &b->context, b->files, slots, collect_stored, b);
}

static bool needs_thread(const struct builder *b)
{
        return b->output || b->live_slots || (b->live && b->context.scenario->live.all);
}

static int prepare_slots(struct builder *b, uint32_t slots)
{
        b->live_slots = calloc(slots, sizeof *b->live_slots);
        b->again = calloc(slots, sizeof *b->again);
        return b->live_slots && b->again ? 0 : log_error_errno(ENOMEM, "builder: %m");
}

static int prepare_thread(struct builder *b, uint32_t slots)
{
        int r = ring_init(&b->to_write, slots, sizeof(struct passed));
        if (r >= 0)
                r = waker_init(&b->wake_thread);
        if (r >= 0)
                r = waker_init(&b->wake_owner);
        return r < 0 ? log_error_errno(r, "builder: %m") : 0;
}

/* The key that consumers over TCP must have. */
static int read_live_key(const char *path, struct auth_key *ret)
{
        struct auth_key key;
        struct error e = {};
        int r = key_file_read(path, &key, &e);

        if (r < 0)
                return log_error_errno(r, "network.key-file: %s", e.message);
        auth_derive(ret, &key, AUTH_LIVE);
        auth_forget(&key);
        return 0;
}

static int listen_remotely(struct builder *b, const char *place, struct live_settings *settings,
                           struct auth_key *key)
{
        const char *key_file = b->context.scenario->network.key_file;
        struct net_address local;
        int r = key_file[0] ? read_live_key(key_file, key) : 0;

        if (r < 0)
                return r;
        settings->key = key_file[0] ? key : NULL;
        if (net_address_parse_with_port(&local, place) < 0)
                return log_error_errno(EINVAL, "live.listen: \"%s\" is not an address of this machine",
                                       place);
        settings->listener = socket_open_listener(&local, 0, "live events (live.listen)");
        return MIN(settings->listener, 0);
}

static int prepare_live(struct builder *b)
{
        bool acknowledged = b->context.scenario->sfi.output == OUTPUT_LIVE;
        struct live_settings settings = {.listener = -1,
                                         .allows_all = b->context.scenario->live.all,
                                         .n_tags = acknowledged ? b->slots : 0};
        char place[SCENARIO_TEXT_MAX];
        struct auth_key key = {};
        struct error e = {};
        int r;

        if (!scenario_live_place(b->context.scenario, b->context.self, place))
                return 0;
        r = event_encoder_new(&b->encoder, &b->context, b->buffer);
        if (r < 0)
                return r;
        if (strncmp(place, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
                settings.path = place + strlen(UNIX_PREFIX);
        else
                r = listen_remotely(b, place, &settings, &key);
        if (r < 0)
                return r;
        if (!b->context.check_only)
                r = live_server_new(&b->live, &settings, b->context.loop, &e);
        else if (settings.path)
                r = local_listener_check(settings.path, &e);
        else
                close(settings.listener);
        auth_forget(&key);
        if (r < 0)
                (void)log_error_errno(r, "live.listen: %s: %s", place, e.message);
        return local_listener_node_error(r);
}

int builder_check(const struct data_context *context)
{
        return context->scenario->sfi.output == OUTPUT_FILE ? event_output_check(context->scenario) : 0;
}

int builder_new(struct builder **ret, const struct data_context *context, struct file_list *files,
                const struct sfi *core, const uint8_t *buffer, uint32_t slots)
{
        const struct scenario *s = context->scenario;
        struct builder *b = calloc(1, sizeof *b);
        int r = 0;

        if (!b)
                return log_error_errno(ENOMEM, "builder: %m");
        *b = (struct builder){
                .context = *context,
                .files = files,
                .core = core,
                .buffer = buffer,
                .slots = slots,
                .wake_thread.fd = -1,
                .wake_owner.fd = -1,
        };
        event_check_init(&b->check, &b->context, buffer);
        if (ring_init(&b->done, slots, sizeof(struct builder_done)) < 0)
                r = log_error_errno(ENOMEM, "builder: %m");
        else
                r = prepare_live(b);
        if (r >= 0 && s->sfi.output == OUTPUT_FILE)
                r = prepare_files(b, slots);
        if (r >= 0 && s->sfi.output == OUTPUT_LIVE)
                r = prepare_slots(b, slots);
        if (r >= 0 && needs_thread(b))
                r = prepare_thread(b, slots);
        if (r < 0) {
                builder_free(b);
                return r;
        }
        *ret = b;
        return 0;
}

int builder_open_files(struct builder *b, uint32_t run, const struct scenario_metadata *metadata, size_t n)
{
        const struct scenario_node *self = b->context.self;
        int r = 0;

        if (!needs_thread(b))
                return 0;
        if (b->output)
                r = event_output_open(b->output, run, metadata, n);
        if (r >= 0) {
                r = thread_start(&b->thread, "evb-writer", self->cpus + 1,
                                 self->n_cpus > 1 ? self->n_cpus - 1 : 0, run_thread, b);
                b->threaded = r >= 0;
                if (r < 0)
                        log_error_errno(r, "starting the thread of the output: %m");
        }
        b->error = MIN(r, 0);
        return b->error;
}

static void free_live(struct builder *b)
{
        bool ended = atomic_load(&b->order) == THREAD_SEAL || atomic_load(&b->sealed);
        uint64_t missed = live_server_finish(b->live, ended);

        if (missed > 0)
                log_warning("%llu live events had not arrived at a consumer in mode all when its connection "
                            "ended",
                            (unsigned long long)missed);
        end_live(b);
        live_server_free(b->live, ended);
}

struct builder *builder_free(struct builder *b)
{
        if (!b)
                return NULL;
        end_thread(b);
        free_live(b);
        event_output_free(b->output);
        event_encoder_free(b->encoder);
        free(b->live_slots);
        free(b->again);
        waker_fini(&b->wake_thread);
        waker_fini(&b->wake_owner);
        ring_fini(&b->to_write);
        ring_fini(&b->done);
        free(b);
        return NULL;
}

/* Without a file, the thread only waits for consumers in mode all: to pass it each event would cost more than
 * to offer the event. Once all passed events are collected, the thread uses nothing that build_at_once()
 * needs, and the rings order what the two threads have written. */
static bool is_for_thread(const struct builder *b)
{
        return b->threaded && (b->output || b->live_slots || b->n_passed > 0);
}

void builder_accept(struct builder *b, uint32_t slot)
{
        bool is_checked = !is_for_thread(b);
        struct passed passed;
        uint32_t status = 0;

        assert(b->threaded || !needs_thread(b)); /* only an output needs the time */
        if (is_checked && build_at_once(b, slot, &status)) {
                b->n_built++;
                return;
        }
        passed = (struct passed){.slot = slot, .is_checked = is_checked, .status = status};
        b->n_passed++;
        (void)ring_push(&b->to_write, &passed);
}

void builder_kick(struct builder *b)
{
        if (!b->output)
                wake_consumers(b);
        if (b->n_passed > 0)
                waker_wake(&b->wake_thread);
}

size_t builder_collect(struct builder *b, struct builder_done *done, size_t n)
{
        size_t k = ring_pop(&b->done, done, n), built = MIN(k, (size_t)b->n_built);

        b->n_built -= (uint32_t)built;
        b->n_passed -= (uint32_t)(k - built);
        return k;
}

int builder_fd(const struct builder *b)
{
        return b->wake_owner.fd;
}

void builder_prepare_wait(struct builder *b)
{
        if (b->threaded)
                waker_prepare(&b->wake_owner);
}

bool builder_has_done(const struct builder *b)
{
        return ring_count(&b->done) > 0 || (atomic_load(&b->sealed) && !b->sealed_seen);
}

void builder_woken(struct builder *b)
{
        if (b->threaded)
                waker_done(&b->wake_owner);
}

void builder_limit_waits(struct builder *b, bool is_ending)
{
        bool was_ending = atomic_load_explicit(&b->ending_ns, memory_order_relaxed) > 0;

        if (is_ending != was_ending)
                atomic_store(&b->ending_ns, is_ending ? clock_now_ns() : 0);
}

void builder_seal(struct builder *b)
{
        builder_limit_waits(b, true);
        atomic_store(&b->order, THREAD_SEAL);
        if (b->threaded)
                waker_wake(&b->wake_thread);
        else
                end_live(b);
}

bool builder_is_sealed(struct builder *b, int *ret_error)
{
        *ret_error = 0;
        if (!b->threaded)
                return true;
        if (!atomic_load(&b->sealed) || ring_count(&b->done) > 0)
                return false;
        b->sealed_seen = true;
        *ret_error = b->error;
        return true;
}

int builder_error(const struct builder *b)
{
        return atomic_load(&((struct builder *)b)->failure);
}

void builder_reasons(struct builder *b, struct reasons *to)
{
        end_thread(b);
        if (b->error < 0)
                reasons_add(to, "its output failed: %s%s%s%s", event_writer_describe_error(b->error),
                            b->error == -ESTALE ? ": " : " in ", b->context.scenario->sfi.directory,
                            event_writer_is_full(b->error) ? "; free space there, or set sfi.directory" : "");
        if (b->output)
                event_output_reasons(b->output, to);
        event_check_reasons(&b->check, to);
        if (b->unacknowledged > 0)
                reasons_add(to, "%llu events are lost: no consumer at live.listen acknowledged them",
                            (unsigned long long)b->unacknowledged);
        if (b->live_missed > 0 && !b->live_slots)
                reasons_add(
                        to,
                        "%llu events did not reach a consumer of live events in mode all, which had no room",
                        (unsigned long long)b->live_missed);
}
