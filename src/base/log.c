/* Decides which messages are written: by level, once if they repeat, and at a limited rate if others can
 * cause them. Writes them to the journal, a terminal, or another file on standard error. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "base/util.h"

struct log_message {
        enum log_level level;
        int error;                       /* positive errno; 0: none */
        const struct log_fields *fields; /* NULL: none */
        const char *file, *function;
        int line;
        const char *name, *role; /* of the sender; role NULL: not a node */
        uint32_t run;
        const char *text;
};

#define JOURNAL_SOCKET "/run/systemd/journal/socket"
/* Room for all fields of a record except its message. */
#define FIELDS_BYTES 1024
/* Room for a message with its sender's name and repetition count. */
#define LINE_MAX_BYTES (LOG_TEXT_MAX + 128)
/* Holds messages during a burst, or while the reader is slow. */
#define BACKLOG_BYTES 65536
/* Maximum number of waits for the reader at exit. */
#define EXIT_WAITS 100
#define EXIT_WAIT_MS 10
/* First two fields of each record. */
#define RECORD_PRIORITY "PRIORITY="
#define RECORD_MESSAGE "MESSAGE="
#define RESET "\033[0m"

static enum { SINK_PLAIN, SINK_JOURNAL, SINK_TERMINAL } sink;
static bool has_colours, can_redraw;

/* Text that the reader has not accepted yet: lines or records, each with a terminating 0. */
static char backlog[BACKLOG_BYTES];
static size_t backlog_bytes;

/* Returns a priority of sd-daemon(3). */
static char priority_of(enum log_level level)
{
        static const char priorities[] = {'3', '4', '6', '7'};

        return priorities[level];
}

/* systemd.exec(5): a process of a service may have redirected its standard error, so the name must match. */
static bool is_journal(int fd)
{
        const char *name = getenv("JOURNAL_STREAM");
        unsigned long long device, inode;
        struct stat st;

        return name && sscanf(name, "%llu:%llu", &device, &inode) == 2 && fstat(fd, &st) == 0 &&
               st.st_dev == device && st.st_ino == inode;
}

/* Determines the type of standard error. */
static void log_sink_open(void)
{
        const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
        bool tty = isatty(STDERR_FILENO);

        sink = tty ? SINK_TERMINAL : is_journal(STDERR_FILENO) ? SINK_JOURNAL : SINK_PLAIN;
        can_redraw = tty && term && term[0] && strcmp(term, "dumb") != 0;
        has_colours = can_redraw && (!no_colour || !no_colour[0]);
}

/* ---- Output ---- */

/* A pipe or terminal may fill up between a poll and a write, because other processes write to it too. Only
 * O_NONBLOCK guarantees that the write does not wait. The mode of the shared file must not change, so it is
 * opened again. -1: not possible, or not required. */
static int open_without_waiting(void)
{
        struct stat st;

        if (fstat(STDERR_FILENO, &st) < 0 || (!S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode)))
                return -1;
        return open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* Returns the number of bytes that were accepted. Bytes that can never be written count as accepted. */
static size_t write_text(const char *text, size_t n)
{
        struct pollfd output = {.fd = STDERR_FILENO, .events = POLLOUT};
        _cleanup_close_ int own = -1;
        ssize_t r;

        (void)poll(&output, 1, 0);
        /* A terminal that has hung up may belong to another user by now. */
        if (!(output.revents & (POLLERR | POLLHUP)))
                own = open_without_waiting();
        if (own < 0 && !output.revents)
                return 0;
        r = write(own >= 0 ? own : STDERR_FILENO, text, n);
        return r >= 0 ? (size_t)r : errno == EAGAIN ? 0 : n;
}

/* Without a journal, the record is a line. sd_journal_sendv() would wait for a journal that has stopped. */
static size_t send_record(const char *record, size_t n)
{
        static const struct sockaddr_un journal = {.sun_family = AF_UNIX, .sun_path = JOURNAL_SOCKET};
        static int fd = -1;
        char line[LINE_MAX_BYTES + 8];
        const char *message;
        int length;

        if (fd < 0)
                fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (sendto(fd, record, n, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&journal,
                   sizeof journal) >= 0)
                return n;
        if (errno == EAGAIN)
                return 0;
        message = record + strlen(RECORD_PRIORITY "p\n" RECORD_MESSAGE);
        length = snprintf(line, sizeof line, "<%c>%.*s\n", record[strlen(RECORD_PRIORITY)],
                          (int)strcspn(message, "\n"), message);
        return write_text(line, (size_t)length) > 0 ? n : 0;
}

static size_t deliver(const char *text, size_t n)
{
        return sink == SINK_JOURNAL ? send_record(text, n) : write_text(text, n);
}

/* Writes the messages that the reader has not accepted yet. False: some are left. */
static bool log_sink_flush(void)
{
        size_t done = 0, n, r;

        while (done < backlog_bytes) {
                n = strlen(backlog + done);
                r = deliver(backlog + done, n);
                done += r == n ? n + 1 : r;
                if (r < n)
                        break;
        }
        backlog_bytes -= done;
        if (done > 0)
                memmove(backlog, backlog + done, backlog_bytes);
        return backlog_bytes == 0;
}

/* As log_sink_flush(), but waits for the reader for about a second. */
static void log_sink_end(void)
{
        struct pollfd output = {.fd = STDERR_FILENO, .events = POLLOUT};

        for (int i = 0; !log_sink_flush() && i < EXIT_WAITS; i++)
                (void)poll(&output, sink == SINK_JOURNAL ? 0 : 1, EXIT_WAIT_MS);
}

/* Drops the kept messages, in a child. */
static void log_sink_forget(void)
{
        backlog_bytes = 0;
}

static bool write_or_keep(const char *text, size_t n)
{
        size_t done = log_sink_flush() ? deliver(text, n) : 0, left = n - done;

        if (left == 0)
                return true;
        if (left + 1 > sizeof backlog - backlog_bytes)
                return false;
        memcpy(backlog + backlog_bytes, text + done, left);
        backlog[backlog_bytes + left] = '\0';
        backlog_bytes += left + 1;
        return true;
}

/* Writes text unchanged to standard error, or drops it. */
static void log_sink_draw(const char *text)
{
        /* Outdated progress is useless. */
        if (log_sink_flush())
                (void)write_or_keep(text, strlen(text));
}

/* ---- Messages ---- */

static void add_fields(struct strbuf *b, const struct log_fields *f)
{
        if (!f)
                return;
        if (f->id)
                strbuf_add(b, "MESSAGE_ID=%s\n", f->id);
        if (f->peer)
                strbuf_add(b, "EVB_PEER=%s\n", f->peer);
        if (f->has_event)
                strbuf_add(b, "EVB_EVENT=%llu\n", (unsigned long long)f->event);
}

static bool write_record(const struct log_message *m, const char *text)
{
        char record[LINE_MAX_BYTES + FIELDS_BYTES];
        struct strbuf b = strbuf_init(record, sizeof record);

        strbuf_add(&b, RECORD_PRIORITY "%c\n" RECORD_MESSAGE "%s\n", priority_of(m->level), text);
        strbuf_add(&b, "SYSLOG_IDENTIFIER=%s\n", program_invocation_short_name);
        /* The compiler's file names are relative to the build directory. */
        strbuf_add(&b, "CODE_FILE=%s\nCODE_LINE=%d\nCODE_FUNC=%s\n",
                   strncmp(m->file, "../", 3) == 0 ? m->file + 3 : m->file, m->line, m->function);
        if (m->error > 0)
                strbuf_add(&b, "ERRNO=%d\n", m->error);
        if (m->role)
                strbuf_add(&b, "EVB_NODE=%s\nEVB_ROLE=%s\n", m->name, m->role);
        if (m->run > 0)
                strbuf_add(&b, "EVB_RUN=%u\n", m->run);
        add_fields(&b, m->fields);
        return write_or_keep(record, b.length);
}

static void add_clock(struct strbuf *b)
{
        time_t now = time(NULL);
        char text[16];
        struct tm tm;

        if (localtime_r(&now, &tm) && strftime(text, sizeof text, "%H:%M:%S ", &tm) > 0)
                strbuf_add(b, "%s", text);
}

static bool write_line(const struct log_message *m, const char *text)
{
        static const char *const colours[] = {"\033[1;31m", "\033[33m", "", "\033[2m"};
        const char *colour = sink == SINK_TERMINAL && has_colours ? colours[m->level] : "";
        char line[LINE_MAX_BYTES + 64];
        struct strbuf b = strbuf_init(line, sizeof line - 1);

        /* The line may show progress. */
        if (sink == SINK_TERMINAL && can_redraw)
                strbuf_add(&b, "\r\033[K");
        if (sink == SINK_TERMINAL)
                add_clock(&b);
        strbuf_add(&b, "%s%s%s", colour, text, colour[0] ? RESET : "");
        line[b.length] = '\n';
        return write_or_keep(line, b.length + 1);
}

/* Never waits for a reader: text that it does not accept is kept and written later. False: the message is
 * lost, because the buffer is full. */
static bool log_sink_write(const struct log_message *m)
{
        char text[LINE_MAX_BYTES];

        snprintf(text, sizeof text, "%s%s%s", m->name, m->name[0] ? ": " : "", m->text);
        return sink == SINK_JOURNAL ? write_record(m, text) : write_line(m, text);
}

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static _Atomic enum log_level log_max = LOG_LEVEL_INFO;
static _Atomic bool level_is_set;
static _Atomic uint32_t log_run;
static char log_name[64];
static const char *log_role;

/* ---- Levels, repetitions and limits ---- */

/* The mutex protects everything below, and is held during writes. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* The last written message. Its fields are copied, because the fields of the caller no longer exist when the
 * message is written again. */
static struct {
        bool valid;
        unsigned repeated;
        uint64_t since_ns;
        char text[LOG_TEXT_MAX], peer[64];
        struct log_fields fields;
        struct log_message message;
} last;

static struct log_limit *limits;
static unsigned lost; /* lost messages that are not reported yet */

static uint64_t now_ns(void)
{
        struct timespec t;

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

/* If nothing reads the log, messages are lost, because the log must not stop data taking. */
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
        /* The line with the count includes this message. */
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
        snprintf(l->last, sizeof l->last, "%.*s", (int)sizeof l->last - 1, m->text);
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
        /* If the repetitions continue, the next line is a count too. */
        if (last.repeated > 0 && (all || at_ns - last.since_ns >= LOG_FOLD_NS)) {
                write_repeated();
                last.since_ns = at_ns;
        }
}

void log_flush(void)
{
        /* If another thread is writing, a later call flushes. */
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

/* A child has nothing to repeat, because its parent writes the counts. */
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
