/* Writes one message at a time to the journal or to standard error. What is written is decided in log.c. */
#include "log_sink.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
/* The place of a message is that of its caller. */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#include "evb/base/strbuf.h"
#include "evb/base/util.h"

#define JOURNAL_SOCKET "/run/systemd/journal/socket"
#define ITEMS_MAX 14
#define ITEM_BYTES 96
/* A message with the name of its sender, and the number of its repetitions. */
#define LINE_MAX_BYTES (LOG_TEXT_MAX + 128)
#define RESET "\033[0m"

static enum { SINK_PLAIN, SINK_JOURNAL, SINK_TERMINAL } sink;
static bool has_colours, can_redraw;

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

/* ---- The journal ---- */

struct items {
        struct iovec iov[ITEMS_MAX];
        char text[ITEMS_MAX][ITEM_BYTES];
        int n;
};

static void __attribute__((format(printf, 2, 3))) add(struct items *to, const char *format, ...)
{
        char *text = to->text[to->n];
        va_list args;
        int n;

        va_start(args, format);
        n = vsnprintf(text, ITEM_BYTES, format, args);
        va_end(args);
        to->iov[to->n++] = (struct iovec){text, (size_t)MIN(MAX(n, 0), ITEM_BYTES - 1)};
}

static void add_fields(struct items *to, const struct log_fields *f)
{
        if (!f)
                return;
        if (f->id)
                add(to, "MESSAGE_ID=%s", f->id);
        if (f->peer)
                add(to, "EVB_PEER=%s", f->peer);
        if (f->has_event)
                add(to, "EVB_EVENT=%llu", (unsigned long long)f->event);
}

/* False: there is no journal. sd_journal_sendv() says nothing if its socket does not exist. */
static bool send_to_journal(const struct log_message *m, const char *line)
{
        char text[sizeof "MESSAGE=" + LINE_MAX_BYTES];
        struct items items = {};

        if (access(JOURNAL_SOCKET, F_OK) < 0)
                return false;
        snprintf(text, sizeof text, "MESSAGE=%s", line);
        items.iov[items.n++] = (struct iovec){text, strlen(text)};
        add(&items, "PRIORITY=%c", priority_of(m->level));
        /* Compilers name files as the build directory sees them. */
        add(&items, "CODE_FILE=%s", strncmp(m->file, "../", 3) == 0 ? m->file + 3 : m->file);
        add(&items, "CODE_LINE=%d", m->line);
        add(&items, "CODE_FUNC=%s", m->function);
        if (m->error > 0)
                add(&items, "ERRNO=%d", m->error);
        if (m->role) {
                add(&items, "EVB_NODE=%s", m->name);
                add(&items, "EVB_ROLE=%s", m->role);
        }
        if (m->run > 0)
                add(&items, "EVB_RUN=%u", m->run);
        add_fields(&items, m->fields);
        return sd_journal_sendv(items.iov, items.n) >= 0;
}

/* ---- Standard error ---- */

static void add_clock(struct strbuf *b)
{
        time_t now = time(NULL);
        char text[16];
        struct tm tm;

        if (localtime_r(&now, &tm) && strftime(text, sizeof text, "%H:%M:%S ", &tm) > 0)
                strbuf_add(b, "%s", text);
}

static void write_line(const struct log_message *m, const char *text)
{
        static const char *const colours[] = {"\033[1;31m", "\033[33m", "", "\033[2m"};
        const char *colour = sink == SINK_TERMINAL && has_colours ? colours[m->level] : "";
        char line[LINE_MAX_BYTES + 64];
        struct strbuf b = strbuf_init(line, sizeof line - 1);

        if (sink == SINK_JOURNAL)
                strbuf_add(&b, "<%c>", priority_of(m->level));
        /* A line of progress may be there. */
        if (sink == SINK_TERMINAL && can_redraw)
                strbuf_add(&b, "\r\033[K");
        if (sink == SINK_TERMINAL)
                add_clock(&b);
        strbuf_add(&b, "%s%s%s", colour, text, colour[0] ? RESET : "");
        line[b.length] = '\n';
        (void)!write(STDERR_FILENO, line, b.length + 1);
}

void log_sink_write(const struct log_message *m)
{
        char text[LINE_MAX_BYTES];

        snprintf(text, sizeof text, "%s%s%s", m->name, m->name[0] ? ": " : "", m->text);
        if (sink != SINK_JOURNAL || !send_to_journal(m, text))
                write_line(m, text);
}
