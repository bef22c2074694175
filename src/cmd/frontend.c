/* evb frontend: simulates the boards of a detector and their trigger box. This file reads the command line;
 * frontend_run.h does the rest. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/util.h"
#include "cmd/commands.h"
#include "frontend/frontend_run.h"

#define PART_MAX 128
#define OFFSET_MAX 60000

struct frontend_options {
        struct option_list boards, restarts, resets, dead;
        const char *trigger_to, *busy_from, *rate, *kind, *size, *counter, *late;
        uint64_t run;
};

static void frontend_options_fini(struct frontend_options *o)
{
        free(o->boards.values);
        free(o->restarts.values);
        free(o->resets.values);
        free(o->dead.values);
}

/* Copies the part up to `end`, and returns the text after it; NULL: there is no `end`, or the part is too
 * long. */
static const char *cut(const char *text, char end, char part[static PART_MAX])
{
        const char *at = strchr(text, end);

        if (!at || at - text >= PART_MAX)
                return NULL;
        memcpy(part, text, (size_t)(at - text));
        part[at - text] = '\0';
        return at + 1;
}

static int read_board(struct frontend_config *c, const char *text)
{
        bool tcp = strncmp(text, "tcp:", 4) == 0;
        struct net_address at;

        if (c->n_boards == FRONTEND_BOARDS_MAX) {
                fprintf(stderr, "evb frontend: --boards: more than %d boards\n", FRONTEND_BOARDS_MAX);
                return 2;
        }
        if ((!tcp && strncmp(text, "udp:", 4) != 0) || net_address_parse_with_port(&at, text + 4) < 0 ||
            net_address_port(&at) == 0)
                return options_refuse("frontend", "boards", text,
                                      "udp:ADDRESS:PORT of a ROS, or tcp:ADDRESS:PORT to listen at");
        c->boards[c->n_boards].at = at;
        c->boards[c->n_boards++].tcp = tcp;
        return OPTIONS_GO_ON;
}

static int read_boards(struct frontend_config *c, const struct option_list *list)
{
        int r = OPTIONS_GO_ON;

        for (size_t i = 0; i < list->n && r == OPTIONS_GO_ON; i++) {
                const char *rest = list->values[i], *next;
                char part[PART_MAX];

                while (r == OPTIONS_GO_ON && (next = cut(rest, ',', part))) {
                        r = read_board(c, part);
                        rest = next;
                }
                if (r == OPTIONS_GO_ON)
                        r = read_board(c, rest);
        }
        if (r == OPTIONS_GO_ON && c->n_boards == 0) {
                fprintf(stderr, "evb frontend: missing option; --boards LIST is required\n");
                r = 2;
        }
        return r;
}

static bool read_board_number(const struct frontend_config *c, const char *text, unsigned *ret)
{
        uint64_t n;

        if (quantity_parse_count(text, &n) < 0 || n < 1 || n > c->n_boards)
                return false;
        *ret = (unsigned)n - 1;
        return true;
}

static int read_dead(struct frontend_config *c, const struct option_list *list)
{
        unsigned board;

        for (size_t i = 0; i < list->n; i++) {
                if (!read_board_number(c, list->values[i], &board))
                        return options_refuse("frontend", "fault dead", list->values[i],
                                              "the number of a board, from 1");
                c->boards[board].dead = true;
        }
        return OPTIONS_GO_ON;
}

static bool read_restart(const struct frontend_config *c, const char *text, struct frontend_restart *ret)
{
        char part[PART_MAX];
        const char *rest = cut(text, ':', part), *outage;

        if (!rest || !read_board_number(c, part, &ret->board))
                return false;
        outage = cut(rest, ':', part);
        ret->outage_ns = 0;
        if (!outage)
                return quantity_parse_time(rest, &ret->after_ns) == 0;
        return quantity_parse_time(part, &ret->after_ns) == 0 &&
               quantity_parse_time(outage, &ret->outage_ns) == 0;
}

static int restarts_by_time(const void *a, const void *b)
{
        uint64_t x = ((const struct frontend_restart *)a)->after_ns,
                 y = ((const struct frontend_restart *)b)->after_ns;

        return (x > y) - (x < y);
}

static int read_restarts(struct frontend_config *c, const struct option_list *list)
{
        for (size_t i = 0; i < list->n; i++) {
                if (c->n_restarts == FRONTEND_RESTARTS_MAX) {
                        fprintf(stderr, "evb frontend: --fault restart: more than %d restarts\n",
                                FRONTEND_RESTARTS_MAX);
                        return 2;
                }
                if (!read_restart(c, list->values[i], &c->restarts[c->n_restarts++]))
                        return options_refuse("frontend", "fault restart", list->values[i],
                                              "BOARD:AFTER or BOARD:AFTER:OUTAGE, such as 2:5s:500ms");
        }
        qsort(c->restarts, c->n_restarts, sizeof *c->restarts, restarts_by_time);
        return OPTIONS_GO_ON;
}

static bool read_reset(const char *text, struct frontend_reset *ret)
{
        char part[PART_MAX];
        const char *pause = cut(text, ':', part);

        ret->pause_ns = FRONTEND_RESET_PAUSE_NS;
        return quantity_parse_time(pause ? part : text, &ret->after_ns) == 0 &&
               (!pause || quantity_parse_time(pause, &ret->pause_ns) == 0);
}

static int resets_by_time(const void *a, const void *b)
{
        uint64_t x = ((const struct frontend_reset *)a)->after_ns,
                 y = ((const struct frontend_reset *)b)->after_ns;

        return (x > y) - (x < y);
}

static int read_resets(struct frontend_config *c, const struct option_list *list)
{
        for (size_t i = 0; i < list->n; i++) {
                if (c->n_resets == FRONTEND_RESETS_MAX) {
                        fprintf(stderr, "evb frontend: --fault reset: more than %d resets\n",
                                FRONTEND_RESETS_MAX);
                        return 2;
                }
                if (!read_reset(list->values[i], &c->resets[c->n_resets++]))
                        return options_refuse("frontend", "fault reset", list->values[i],
                                              "AFTER or AFTER:PAUSE, such as 5s:500ms");
        }
        qsort(c->resets, c->n_resets, sizeof *c->resets, resets_by_time);
        return OPTIONS_GO_ON;
}

static int read_counter(struct number_field *ret, const char *text)
{
        struct number_field field;
        const char *rest = number_field_parse(&field, text);

        /* Fewer values cannot be assigned to triggers. */
        if (!rest || *rest || field.bits < 3 || field.offset_bytes > OFFSET_MAX)
                return options_refuse("frontend", "event-number", text,
                                      "OFFSET[.BIT]:BITS[:be] with 3 to 64 bits, such as 4:24:be");
        *ret = field;
        return OPTIONS_GO_ON;
}

/* Reads a size or a distribution in the syntax of ros.fragment-size. */
static int read_sizes(struct pattern_sizes *ret, const char *text)
{
        char size[PART_MAX + 32];
        const char *settings[] = {"ros.count=1", "sfi.count=1", size};
        _cleanup_free_ struct scenario *s = NULL;
        struct error e = {};

        snprintf(size, sizeof size, "ros.fragment-size=%.*s", PART_MAX, text);
        if (command_load_one(&s, "/dev/null", settings, ARRAY_SIZE(settings), &e) < 0)
                return options_refuse(
                        "frontend", "size", text,
                        "a size up to 4MiB, uniform:A-B, or lognormal:MEAN,SIGMA with SIGMA up to 5");
        *ret = source_sizes_of(s);
        return OPTIONS_GO_ON;
}

/* Checks a fixed size against the counter and the transport; sizes of a distribution are clamped. */
static int check_size(const struct frontend_config *c, const char *text)
{
        uint32_t least = frontend_least_bytes(&c->counter), most = EVB_FRAGMENT_MAX_BYTES;
        char expected[128];

        for (unsigned i = 0; i < c->n_boards; i++)
                most = c->boards[i].tcp ? most : FRONTEND_UDP_MAX_BYTES;
        if (c->sizes.kind != SIZES_FIXED || (c->sizes.bytes >= least && c->sizes.bytes <= most))
                return OPTIONS_GO_ON;
        snprintf(expected, sizeof expected,
                 "%u bytes or more for the counter and the trailer, and at most %u", least, most);
        return options_refuse("frontend", "size", text, expected);
}

static int read_late(struct frontend_config *c, const char *text)
{
        char part[PART_MAX];
        const char *time = text ? cut(text, ':', part) : NULL;

        if (text && (!time || quantity_parse_fraction(part, &c->late) < 0 ||
                     quantity_parse_time(time, &c->late_ns) < 0))
                return options_refuse("frontend", "fault late", text, "FRACTION:TIME, such as 1%:50ms");
        return OPTIONS_GO_ON;
}

static int read_places(struct frontend_config *c, const struct frontend_options *o)
{
        uint64_t port;

        c->has_trigger_to = o->trigger_to;
        c->has_busy_from = o->busy_from;
        if (o->trigger_to && net_address_parse_with_port(&c->trigger_to, o->trigger_to) < 0)
                return options_refuse("frontend", "trigger-to", o->trigger_to, "ADDRESS:PORT of the DFM");
        if (!o->busy_from || net_address_parse_with_port(&c->busy_from, o->busy_from) == 0)
                return OPTIONS_GO_ON;
        if (quantity_parse_count(o->busy_from, &port) < 0 || port < 1 || port > UINT16_MAX)
                return options_refuse("frontend", "busy-from", o->busy_from, "PORT or ADDRESS:PORT");
        return net_address_parse(&c->busy_from, "0.0.0.0", (uint16_t)port) == 0 ? OPTIONS_GO_ON : 2;
}

static int read_rate(struct frontend_config *c, const char *rate, const char *kind)
{
        static const char poisson[] = "poisson:";
        size_t n = strncmp(rate, poisson, strlen(poisson)) == 0 ? strlen(poisson) : 0;

        if (quantity_parse_frequency(rate + n, &c->rate_millihertz) < 0 || c->rate_millihertz == 0)
                return options_refuse("frontend", "rate", rate, "a frequency, such as 2kHz or poisson:2kHz");
        if (kind && strcmp(kind, "periodic") != 0 && strcmp(kind, "poisson") != 0)
                return options_refuse("frontend", "kind", kind, "periodic or poisson");
        c->kind = n > 0 || (kind && strcmp(kind, "poisson") == 0) ? TRIGGER_POISSON : TRIGGER_PERIODIC;
        return OPTIONS_GO_ON;
}

static int read_config(struct frontend_config *c, const struct frontend_options *o)
{
        int r = read_boards(c, &o->boards);

        c->run = (uint32_t)o->run;
        c->counter.bits = 32;
        if (r == OPTIONS_GO_ON)
                r = read_places(c, o);
        if (r == OPTIONS_GO_ON)
                r = read_rate(c, o->rate, o->kind);
        if (r == OPTIONS_GO_ON)
                r = read_late(c, o->late);
        if (r == OPTIONS_GO_ON)
                r = read_dead(c, &o->dead);
        if (r == OPTIONS_GO_ON)
                r = read_restarts(c, &o->restarts);
        if (r == OPTIONS_GO_ON)
                r = read_resets(c, &o->resets);
        if (r == OPTIONS_GO_ON && o->counter)
                r = read_counter(&c->counter, o->counter);
        if (r == OPTIONS_GO_ON)
                r = read_sizes(&c->sizes, o->size);
        return r == OPTIONS_GO_ON ? check_size(c, o->size) : r;
}

static int run(const struct frontend_config *c, const struct options *o)
{
        struct frontend *f;
        int status;

        if (frontend_new(&f, c) < 0)
                return 1;
        status = frontend_run(f) < 0 || !frontend_succeeded(f) ? 1 : 0;
        if (o->json)
                status = options_write_json(o, frontend_report(f), status);
        else
                frontend_print(f, stdout);
        frontend_free(f);
        return status;
}

static int parse(struct options *o, struct frontend_config *c, struct frontend_options *own, int argc,
                 char **argv)
{
        static const struct command command = {"frontend", cmd_frontend, "",
                                               "Play the boards of a detector and their trigger box.",
                                               OPTION_JSON | OPTION_PROGRESS};
        const struct option_entry entries[] = {
                {"boards", "LIST",
                 "boards, separated by commas: udp:ADDRESS:PORT of a ROS, or tcp:ADDRESS:PORT to listen on; "
                 "repeatable",
                 .list = &own->boards},
                {"trigger-to", "ADDRESS:PORT", "send a trigger datagram to the DFM for each trigger",
                 &own->trigger_to},
                {"busy-from", "[ADDRESS:]PORT",
                 "receive the busy signal here; hold triggers back while the DFM is busy or silent for 300 "
                 "ms",
                 &own->busy_from},
                {"rate", "[poisson:]FREQUENCY",
                 "mean trigger rate, with equal intervals or, after poisson:, with random ones (default: "
                 "1kHz)",
                 &own->rate},
                {"kind", "KIND", "", &own->kind, .now = "--rate [poisson:]FREQUENCY"},
                {"count", "N", "stop after N triggers (default: no limit)", .was = "events",
                 OPTION_NUMBER(quantity_parse_count, &c->events, 0, UINT64_MAX, "a count")},
                {"duration", "TIME", "stop after this time (default: no limit)",
                 OPTION_NUMBER(quantity_parse_time, &c->duration_ns, 0, UINT64_MAX / 4,
                               "a time, such as 10s")},
                {"size", "SIZE",
                 "payload of a frame: a size, uniform:A-B or lognormal:MEAN,SIGMA (default: 1KiB)",
                 &own->size},
                {"event-number", "OFFSET[.BIT]:BITS[:be]",
                 "place of the trigger's number in a frame: byte offset, perhaps a bit of that byte, and 3 "
                 "to 64 bits, little-endian unless :be (default: 0:32)",
                 &own->counter, .was = "counter"},
                {"first", "NUMBER", "number of the first trigger (default: 0)",
                 OPTION_NUMBER(quantity_parse_count, &c->first, 0, UINT64_MAX, "a number")},
                {"fault", "NAME=VALUE", "fault of the boards; repeatable"},
                {"missed", "FRACTION", "fraction of the triggers that a board counts, but sends no frame for",
                 .part_of = "fault", OPTION_FRACTION(&c->missed, "a fraction from 0 to 1, or a percentage")},
                {"late", "FRACTION:TIME", "fraction of the frames that a board sends this much later",
                 &own->late, .part_of = "fault"},
                {"restart", "BOARD:AFTER[:OUTAGE]",
                 "restart a board after this time: it misses the triggers of the outage (default: 0), and "
                 "counts from 0; repeatable",
                 .list = &own->restarts, .part_of = "fault"},
                {"dead", "BOARD", "board that never sends; repeatable", .list = &own->dead,
                 .part_of = "fault"},
                {"skew", "TIME", "delay of the last board's frames; those of the others grow up to it",
                 .part_of = "fault",
                 OPTION_NUMBER(quantity_parse_time, &c->skew_ns, 0, UINT64_MAX / 4, "a time, such as 2ms")},
                {"reset", "AFTER[:PAUSE]",
                 "reset the counters of all boards and of the trigger after this time, in a pause of the "
                 "triggers (default: 100ms); repeatable",
                 .list = &own->resets, .part_of = "fault"},
                {"reset-after-busy", "TIME",
                 "reset these counters if the DFM is busy for this time (default: never)", .part_of = "fault",
                 OPTION_NUMBER(quantity_parse_time, &c->reset_after_busy_ns, 0, UINT64_MAX / 4,
                               "a time, such as 500ms")},
                {"run", "NUMBER", "run number in trigger datagrams (default: 0, any)",
                 OPTION_NUMBER(quantity_parse_count, &own->run, 0, UINT32_MAX, "a run number")},
                {"seed", "N", "seed of intervals, sizes and faults (default: 1)",
                 OPTION_NUMBER(quantity_parse_count, &c->seed, 0, UINT64_MAX, "a number")},
        };

        return options_parse(o, &command, entries, ARRAY_SIZE(entries), 0, argc, argv);
}

int cmd_frontend(int argc, char **argv)
{
        _cleanup_free_ struct frontend_config *c = calloc(1, sizeof *c);
        struct frontend_options own = {.size = "1KiB", .rate = "1kHz"};
        struct options o;
        int r;

        if (!c)
                return log_error_errno(ENOMEM, "frontend: %m") < 0;
        c->seed = 1;
        r = parse(&o, c, &own, argc, argv);
        if (r == OPTIONS_GO_ON)
                r = read_config(c, &own);
        if (r == OPTIONS_GO_ON) {
                c->progress = options_wants_progress(&o);
                r = run(c, &o);
        }
        frontend_options_fini(&own);
        return r;
}
