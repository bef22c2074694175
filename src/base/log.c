/* Decides which messages are written: by level, once if they repeat, and at a limited rate if others can
 * cause them. log_sink.c writes them. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "log_sink.h"

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static _Atomic enum log_level log_max = LOG_LEVEL_INFO;
static _Atomic bool level_is_set;
static _Atomic uint32_t log_run;
static char log_name[64];
static const char *log_role;

/* Everything below belongs to the thread that holds the mutex, also while it writes. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t (*clock_ns)(void);

/* The last written message. The fields are copied, as those of the caller are gone when it is written again.
 */
static struct {
        bool valid;
        unsigned repeated;
        uint64_t since_ns;
        char text[LOG_TEXT_MAX], peer[64];
        struct log_fields fields;
        struct log_message message;
} last;

static struct log_limit *limits;
static unsigned lost; /* messages that nothing read */

static uint64_t now_ns(void)
{
        struct timespec t;

        if (clock_ns)
                return clock_ns();
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void lock(void)
{
        pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
        pthread_mutex_unlock(&mutex);
}

static struct log_message own_message(enum log_level level, const char *text)
{
        return (struct log_message){
                .level = level,
                .file = __FILE__,
                .function = __func__,
                .line = __LINE__,
                .name = log_name,
                .role = log_role,
                .run = log_run,
                .text = text,
        };
}

/* ---- Lost messages ---- */

/* False: nothing reads the log yet. */
static bool write_lost(void)
{
        char text[LOG_TEXT_MAX];
        struct log_message m = own_message(LOG_LEVEL_WARNING, text);

        if (lost == 0)
                return true;
        if (!log_sink_flush())
                return false;
        snprintf(text, sizeof text, "%u log message%s lost here, because nothing read the log", lost,
                 lost == 1 ? " was" : "s were");
        lost = 0;
        return log_sink_write(&m);
}

/* A log that nothing reads must not stop data taking. */
static void put(const struct log_message *m)
{
        if (!write_lost() || !log_sink_write(m))
                lost++;
}

/* ---- Repeated messages ---- */

static void write_repeated(void)
{
        char text[LOG_TEXT_MAX + 40];
        struct log_message m = last.message;

        if (!last.valid || last.repeated == 0)
                return;
        snprintf(text, sizeof text, "%s (repeated %u time%s)", last.text, last.repeated,
                 last.repeated == 1 ? "" : "s");
        m.text = text;
        put(&m);
        last.repeated = 0;
}

static void keep(const struct log_message *m, uint64_t at_ns)
{
        last.valid = true;
        last.repeated = 0;
        last.since_ns = at_ns;
        last.message = *m;
        snprintf(last.text, sizeof last.text, "%s", m->text);
        last.message.text = last.text;
        last.message.fields = NULL;
        if (!m->fields)
                return;
        last.fields = *m->fields;
        last.message.fields = &last.fields;
        if (!m->fields->peer)
                return;
        snprintf(last.peer, sizeof last.peer, "%s", m->fields->peer);
        last.fields.peer = last.peer;
}

static void write_once(const struct log_message *m, uint64_t at_ns)
{
        bool same = last.valid && last.message.level == m->level && strcmp(last.text, m->text) == 0;

        if (same && at_ns - last.since_ns < LOG_FOLD_NS) {
                last.repeated++;
                return;
        }
        /* The line with the count stands for this message too. */
        if (same && last.repeated > 0) {
                last.repeated++;
                write_repeated();
                last.since_ns = at_ns;
                return;
        }
        write_repeated();
        put(m);
        keep(m, at_ns);
}

/* ---- Limits ---- */

static void write_dropped(struct log_limit *l, uint64_t at_ns)
{
        char text[LOG_TEXT_MAX];
        struct log_message m = own_message(l->level, text);

        if (l->dropped == 0)
                return;
        snprintf(text, sizeof text, "%u more message%s of this kind %s not logged; the last one: %s",
                 l->dropped, l->dropped == 1 ? "" : "s", l->dropped == 1 ? "was" : "were", l->last);
        l->dropped = 0;
        write_once(&m, at_ns);
}

/* Whether this message may be written. */
static bool passes(struct log_limit *l, const struct log_message *m, uint64_t at_ns)
{
        if (l->written == 0 || at_ns - l->since_ns >= LOG_LIMIT_NS) {
                write_dropped(l, at_ns);
                l->since_ns = at_ns;
                l->written = 0;
        }
        if (l->written < LOG_LIMIT_LINES) {
                l->written++;
                return true;
        }
        l->dropped++;
        l->level = m->level;
        snprintf(l->last, sizeof l->last, "%s", m->text);
        if (!l->listed) {
                l->listed = true;
                l->next = limits;
                limits = l;
        }
        return false;
}

static void flush(bool all)
{
        uint64_t at_ns = now_ns();

        (void)log_sink_flush();
        write_lost();
        for (struct log_limit *l = limits; l; l = l->next) {
                if (all || at_ns - l->since_ns >= LOG_LIMIT_NS)
                        write_dropped(l, at_ns);
        }
        /* If the row goes on, its next line is a count too. */
        if (last.repeated > 0 && (all || at_ns - last.since_ns >= LOG_FOLD_NS)) {
                write_repeated();
                last.since_ns = at_ns;
        }
}

void log_flush(void)
{
        /* Another thread is writing: it is not worth waiting for. */
        if (pthread_mutex_trylock(&mutex) != 0)
                return;
        flush(false);
        unlock();
}

static void flush_all(void)
{
        lock();
        flush(true);
        log_sink_end();
        unlock();
}

void log_draw(const char *text)
{
        lock();
        log_sink_draw(text);
        unlock();
}

/* ---- Settings ---- */

/* A child has nothing to repeat: its parent writes the counts. */
static void forget(void)
{
        last.repeated = 0;
        lost = 0;
        log_sink_forget();
        for (struct log_limit *l = limits; l; l = l->next)
                l->dropped = 0;
        unlock();
}

static void open_once(void)
{
        atexit(flush_all);
        pthread_atfork(lock, unlock, forget);
}

static enum log_level wished_level(enum log_level level)
{
        const char *wished = getenv("EVB_LOG");

        for (size_t i = 0; wished && i < ARRAY_SIZE(level_names); i++) {
                if (strcmp(wished, level_names[i]) == 0)
                        return (enum log_level)i;
        }
        return level;
}

void log_open(const char *name, enum log_level level)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;

        pthread_once(&once, open_once);
        lock();
        write_repeated();
        last.valid = false;
        snprintf(log_name, sizeof log_name, "%s", name);
        log_sink_open();
        unlock();
        if (!level_is_set)
                log_max = wished_level(level);
}

void log_set_level(enum log_level level)
{
        log_max = level;
        level_is_set = true;
}

enum log_level log_level(void)
{
        return log_max;
}

const char *log_level_for_children(void)
{
        return level_is_set ? level_names[log_max] : NULL;
}

void log_set_role(const char *role)
{
        log_role = role;
}

void log_set_run(uint32_t run)
{
        log_run = run;
}

void log_set_clock(uint64_t (*now)(void))
{
        lock();
        clock_ns = now;
        unlock();
}

/* ---- Messages ---- */

int log_write(enum log_level level, int error, const struct log_fields *fields, struct log_limit *limit,
              const char *file, int line, const char *function, const char *format, ...)
{
        int saved = errno, code = error < 0 ? -error : error;

        if (level <= log_max) {
                char text[LOG_TEXT_MAX];
                struct log_message m = {
                        .level = level,
                        .error = code,
                        .fields = fields,
                        .file = file,
                        .line = line,
                        .function = function,
                        .name = log_name,
                        .role = log_role,
                        .run = log_run,
                        .text = text,
                };
                va_list args;
                uint64_t at_ns;

                errno = code;
                va_start(args, format);
                vsnprintf(text, sizeof text, format, args);
                va_end(args);
                text_make_printable(text);
                lock();
                at_ns = now_ns();
                if (!limit || passes(limit, &m, at_ns))
                        write_once(&m, at_ns);
                unlock();
        }
        errno = saved;
        return -code;
}
