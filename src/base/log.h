/* Logs messages. Only layers from `data` on log; lower layers return errors.
 *
 * Under systemd, if $JOURNAL_STREAM names standard error, messages go to the journal with fields
 * (systemd.journal-fields(7)): MESSAGE, PRIORITY, CODE_FILE, CODE_LINE, CODE_FUNC, ERRNO, EVB_NODE, EVB_ROLE,
 * EVB_RUN, and those of struct log_fields. Otherwise each message is a line on standard error, written with
 * one system call, so that lines of several processes do not mix. On a terminal, lines have the time of day,
 * and colours unless NO_COLOR is set or TERM is dumb.
 *
 * A message that follows an equal one within some seconds is counted instead of written. No call waits for a
 * reader of the log that has stopped: 64 KiB of messages are kept for it, further ones are lost, and their
 * number is logged when it reads again. Control characters become '?'. Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Equal messages within this time after the first one are counted; the count is written as one line at its
 * end. */
#define LOG_FOLD_NS (UINT64_C(5) * 1000000000)
/* Each place that calls log_limited() writes at most LOG_LIMIT_LINES messages in LOG_LIMIT_NS. */
#define LOG_LIMIT_LINES 10
#define LOG_LIMIT_NS (UINT64_C(10) * 1000000000)
/* A fault that has not occurred for this time counts as over: its next occurrence is logged. */
#define LOG_FAULT_NS (UINT64_C(10) * 1000000000)
#define LOG_TEXT_MAX 768

/* Optional fields in the journal. */
struct log_fields {
        const char *id;   /* MESSAGE_ID: LOG_ID_...; NULL: none */
        const char *peer; /* EVB_PEER: the other node that the message is about; NULL: none */
        bool has_event;
        uint64_t event; /* EVB_EVENT */
};
#define LOG_FIELDS(...) (&(const struct log_fields){__VA_ARGS__})

/* State of log_limited() at one place. */
struct log_limit {
        uint64_t since_ns;
        unsigned written, dropped;
        enum log_level level;
        char last[LOG_TEXT_MAX / 4]; /* the last dropped message, truncated */
        bool listed;
        struct log_limit *next; /* next element in the list of all places that dropped messages */
};

/* Sets the name of the sender ("ros3"; copied, at most 63 characters) and the level of messages to write.
 * EVB_LOG=error, warning, info or debug in the environment overrides the level, and log_set_level() both.
 * Call it before there are threads. */
void log_open(const char *name, enum log_level level);
/* Takes effect at once. Any thread may call it. */
void log_set_level(enum log_level level);
enum log_level log_level(void);
/* The value of EVB_LOG that gives a child process the level of log_set_level(); NULL: it was never called. */
const char *log_level_for_children(void);

/* Sets the sender's role as a node ("ros"; not copied), and its run number (0: unknown). Any thread may set
 * the number. */
void log_set_role(const char *role);
void log_set_run(uint32_t run);

/* Logs the repeat counts whose interval has ended. Call it about once a second; exit() logs the rest. */
void log_flush(void);
/* Writes text unchanged to standard error, as a line of progress. Never waits for a reader that has
 * stopped. */
void log_draw(const char *text);

/* Sets errno to the absolute value of `error` during formatting, for `%m`. Returns -|error|. `fields` and
 * `limit` may be NULL. Use the macros below. */
int log_write(enum log_level level, int error, const struct log_fields *fields, struct log_limit *limit,
              const char *file, int line, const char *function, const char *format, ...)
        __attribute__((format(printf, 8, 9)));

#define log_with(level, error, fields, ...)                                                                  \
        log_write(level, error, fields, NULL, __FILE__, __LINE__, __func__, __VA_ARGS__)
#define log_full_errno(level, error, ...) log_with(level, error, NULL, __VA_ARGS__)
#define log_error(...) ((void)log_full_errno(LOG_LEVEL_ERROR, 0, __VA_ARGS__))
#define log_warning(...) ((void)log_full_errno(LOG_LEVEL_WARNING, 0, __VA_ARGS__))
#define log_info(...) ((void)log_full_errno(LOG_LEVEL_INFO, 0, __VA_ARGS__))
#define log_debug(...) ((void)log_full_errno(LOG_LEVEL_DEBUG, 0, __VA_ARGS__))
#define log_error_errno(error, ...) log_full_errno(LOG_LEVEL_ERROR, error, __VA_ARGS__)
#define log_warning_errno(error, ...) log_full_errno(LOG_LEVEL_WARNING, error, __VA_ARGS__)

/* Log a message with an ID, or with an ID and the node that it is about. */
#define log_id(level, message_id, ...) ((void)log_with(level, 0, LOG_FIELDS(.id = message_id), __VA_ARGS__))
#define log_peer(level, message_id, name, ...)                                                               \
        ((void)log_with(level, 0, LOG_FIELDS(.id = message_id, .peer = name), __VA_ARGS__))

/* For faults that recur: returns whether this occurrence is a new fault. *last_ns is the time of the last
 * occurrence; 0: none. */
static inline bool log_is_new_fault(uint64_t *last_ns, uint64_t now_ns)
{
        bool is_new = *last_ns == 0 || now_ns - *last_ns >= LOG_FAULT_NS;

        *last_ns = now_ns;
        return is_new;
}

/* For messages that other machines can cause, so that they cannot fill the log: writes at most
 * LOG_LIMIT_LINES in LOG_LIMIT_NS from this place; the others are counted, and their number is logged. */
#define log_limited(level, fields, ...)                                                                      \
        do {                                                                                                 \
                static struct log_limit limit_here;                                                          \
                (void)log_write(level, 0, fields, &limit_here, __FILE__, __LINE__, __func__, __VA_ARGS__);   \
        } while (0)

/* IDs of the messages that programs look for in the journal (MESSAGE_ID= of systemd.journal-fields(7)). Each
 * has an entry in configs/systemd/evb.catalog. An ID never changes its meaning; a new message gets a new one,
 * made by `systemd-id128 new`. */
#define LOG_ID_WAITING "7bd6e692acf94202b2cee6cbbf22fc8a"       /* nodes are missing before a run */
#define LOG_ID_CONNECTED "25a4cc8c52cb41a99b2ef658d246ec76"     /* a connection is made, or made again */
#define LOG_ID_RUN_BEGUN "9eb7b07281fd49febde1b6351763c82f"     /* a run has begun on this node */
#define LOG_ID_RUN_ENDED "c16dc9585ac144bca439c8a0989e4613"     /* a run has ended on this node; its counts */
#define LOG_ID_STOPPED "d71cf6d7c5f54822817ac84137a88f68"       /* who stops the node or the run, and why */
#define LOG_ID_NODE_JOINED "491fbf40caef451bbfc43859abd266fe"   /* a node joined; logged by the DFM */
#define LOG_ID_NODE_LEFT "779cbcada6a942fb957531e88fccc5e2"     /* a node left; logged by the DFM */
#define LOG_ID_NODE_LOST "38c8ec14618446d1a0072d0e9ba337e1"     /* a node fell silent */
#define LOG_ID_NODE_BACK "44d229946b164f419faf8a4e759cbfc9"     /* a silent node is back, or restarted */
#define LOG_ID_NODE_REFUSED "91add94a7a3049a9a50bb8ca5ac16c23"  /* a node is not admitted to the run */
#define LOG_ID_FAULT "f52160eda72040808098308b8826c8e8"         /* which node is at fault, and why */
#define LOG_ID_EVENT_PARTIAL "539df8b2d7c649dfb82ccbcf5b9c4141" /* the first partial event */
#define LOG_ID_EVENT_LOST "eb54582ded32486e974c0bc6fcb3077f"    /* the first lost event of an SFI */
#define LOG_ID_EVENT_CORRUPT "d7867d60218c4e98a96903c90b0ce273" /* the first corrupt fragment */
#define LOG_ID_BUFFER_SMALL "62ac71652fc74b69980a1c87042f5328"  /* the kernel granted a smaller buffer */
#define LOG_ID_HELD_BACK "a20fe742004e4d6aa6382ae22d784d55"     /* no progress */
#define LOG_ID_RESUMED "adad2b64f52241d7951aa273392c4cb8"       /* progress again */
#define LOG_ID_OUTPUT_UNUSABLE "4da48d0be4c54f72a6466d00f7a10cf4" /* sfi.directory cannot be written */
#define LOG_ID_OUTPUT_FAILED "97b29ed699c444d0ada36dae7ac6d84e"   /* events cannot be written */
