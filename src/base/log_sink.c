/* Writes one message at a time to the journal or to standard error. What is written is decided in log.c. */
#include "log_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

#define JOURNAL_SOCKET "/run/systemd/journal/socket"
/* All fields of a record but its message. */
#define FIELDS_BYTES 1024
/* A message with the name of its sender, and the number of its repetitions. */
#define LINE_MAX_BYTES (LOG_TEXT_MAX + 128)
/* Bridges a burst, and a reader that is late. */
#define BACKLOG_BYTES 65536
/* At exit, waits for the reader at most so many times. */
#define EXIT_WAITS 100
#define EXIT_WAIT_MS 10
/* How a record begins. */
#define RECORD_PRIORITY "PRIORITY="
#define RECORD_MESSAGE "MESSAGE="
#define RESET "\033[0m"

static enum { SINK_PLAIN, SINK_JOURNAL, SINK_TERMINAL } sink;
static bool has_colours, can_redraw;

/* What the reader has not taken yet: lines or records, each with a terminating 0. */
static char backlog[BACKLOG_BYTES];
static size_t backlog_bytes;

/* Priorities of sd-daemon(3). */
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

void log_sink_open(void)
{
        const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
        bool tty = isatty(STDERR_FILENO);

        sink = tty ? SINK_TERMINAL : is_journal(STDERR_FILENO) ? SINK_JOURNAL : SINK_PLAIN;
        can_redraw = tty && term && term[0] && strcmp(term, "dumb") != 0;
        has_colours = can_redraw && (!no_colour || !no_colour[0]);
}

/* ---- Output ---- */

/* A pipe or terminal may fill up between a poll and a write, as other processes write to it too. Only
 * O_NONBLOCK excludes that the write waits. The mode of the shared file must not change, so it is opened
 * anew. -1: not possible, or not required. */
static int open_without_waiting(void)
{
        struct stat st;

        if (fstat(STDERR_FILENO, &st) < 0 || (!S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode)))
                return -1;
        return open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* Returns the number of bytes that were taken. Those that cannot be written at all count as taken. */
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

/* Without a journal, the record becomes a line. sd_journal_sendv() would wait for a journal that has stopped.
 */
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

bool log_sink_flush(void)
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

void log_sink_end(void)
{
        struct pollfd output = {.fd = STDERR_FILENO, .events = POLLOUT};

        for (int i = 0; !log_sink_flush() && i < EXIT_WAITS; i++)
                (void)poll(&output, sink == SINK_JOURNAL ? 0 : 1, EXIT_WAIT_MS);
}

void log_sink_forget(void)
{
        backlog_bytes = 0;
}

static bool put(const char *text, size_t n)
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

void log_sink_draw(const char *text)
{
        /* Progress that comes late is worth nothing. */
        if (log_sink_flush())
                (void)put(text, strlen(text));
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
        /* Compilers name files as the build directory sees them. */
        strbuf_add(&b, "CODE_FILE=%s\nCODE_LINE=%d\nCODE_FUNC=%s\n",
                   strncmp(m->file, "../", 3) == 0 ? m->file + 3 : m->file, m->line, m->function);
        if (m->error > 0)
                strbuf_add(&b, "ERRNO=%d\n", m->error);
        if (m->role)
                strbuf_add(&b, "EVB_NODE=%s\nEVB_ROLE=%s\n", m->name, m->role);
        if (m->run > 0)
                strbuf_add(&b, "EVB_RUN=%u\n", m->run);
        add_fields(&b, m->fields);
        return put(record, b.length);
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

        /* A line of progress may be there. */
        if (sink == SINK_TERMINAL && can_redraw)
                strbuf_add(&b, "\r\033[K");
        if (sink == SINK_TERMINAL)
                add_clock(&b);
        strbuf_add(&b, "%s%s%s", colour, text, colour[0] ? RESET : "");
        line[b.length] = '\n';
        return put(line, b.length + 1);
}

bool log_sink_write(const struct log_message *m)
{
        char text[LINE_MAX_BYTES];

        snprintf(text, sizeof text, "%s%s%s", m->name, m->name[0] ? ": " : "", m->text);
        return sink == SINK_JOURNAL ? write_record(m, text) : write_line(m, text);
}
