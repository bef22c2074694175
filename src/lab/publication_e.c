/* Publication E: data paths for download and streaming (Halvorsen, Dalseng, Griwodz, Linux 2.6). Each row is
 * a path from a file to a socket; E14 sets them side by side, for the conclusions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/strbuf.h"
#include "stream/paths.h"
#include "publications.h"
#include "query.h"
#include "settings.h"

/* The file of the publication has 1 GB; here a multiple of the page size. */
#define BASE "seconds=2 file=999997440"
#define COST "processor_seconds_per_gb"
/* A path with a call for the whole file needs one for some packets here: in this many, at most. */
#define CALLS_PER_PACKET_SLACK 0.25
#define CALLS_LESS 0.8
/* A conclusion holds if at least half of the published effect is there. */
#define COPIES_SHARE 0.4
#define HEADER_COST 0.29
#define PATCH_GAIN 0.25
#define HOLDS_FROM 0.5

static const struct lab_panel sources[] = {{"page cache", "source=0", true}, {"disk", "source=1", false}};

/* The least of a figure among all forms of a row that the kernel has. */
static double least_of_row(struct judging *j, const char *key)
{
        double value = INFINITY;

        for (size_t i = 0; i < j->n; i++) {
                if (!is_dispensable(j, i))
                        value = fmin(value, figure_of(j, i, key));
        }
        return value;
}

static double corrupt(struct judging *j)
{
        double n = 0;

        for (size_t i = 0; i < j->n; i++)
                n += is_dispensable(j, i) ? 0 : figure_of(j, i, "corrupt");
        return n;
}

/* The number of copies is stated, so that the verdict of a row is about what can be counted. */
JUDGE(row)
{
        const struct path *p = path_find((unsigned)strtoul(j->m->id + 1, NULL, 10), 0);
        double calls = least_of_row(j, "calls_per_packet"), bad = corrupt(j), least_s = least_of_row(j, COST);

        snprintf(why, size,
                 "%.2f system calls per packet at least, %s for n packets published; the cheapest form takes "
                 "%.2f s of processor time per GB%s",
                 calls, p->published_calls, least_s, bad > 0 ? "; bytes arrived wrong or not at all" : "");
        if (bad > 0 || least_s <= 0 || calls > p->published_calls_per_packet + CALLS_PER_PACKET_SLACK)
                return LAB_DIFFERS;
        return calls < CALLS_LESS * p->published_calls_per_packet ? LAB_BETTER : LAB_AGREES;
}

/* The lowest cost of rows `from` to `to` over UDP from the page cache, without a receiver: the publication
 * had another machine for it. */
static double cost(struct judging *j, double from, double to)
{
        return least(between(of_panel(j, "sender alone", "page cache"), from, to), COST);
}

/* "; the header costs sendfile 12 %, 29 % published". Returns whether the conclusion holds. */
static bool conclude(struct strbuf *b, const char *what, double share, double published)
{
        bool holds = share >= HOLDS_FROM * published;

        strbuf_add(b, "%s%s %.0f %% (published: %.0f %%)%s", b->length > 0 ? "; " : "", what, 100 * share,
                   100 * published, holds ? ", which holds" : ", which no longer holds");
        return holds;
}

JUDGE(conclusions)
{
        double copied = cost(j, 1, 1), handed = cost(j, 3, 3), headed = cost(j, 8, 8),
               existing = cost(j, 4, 8), patched = cost(j, 9, 13);
        struct strbuf b = strbuf_init(why, size);
        bool holds = conclude(&b, "without copies, download saves", 1 - handed / copied, COPIES_SHARE);

        holds &= conclude(&b, "the header costs sendfile", headed / handed - 1, HEADER_COST);
        holds &= conclude(&b, "the best of E9 to E13 gains on the best of E4 to E8", 1 - patched / existing,
                          PATCH_GAIN);
        return holds ? LAB_AGREES : LAB_DIFFERS;
}

#define ROW(number, name, outcome, ...)                                                                      \
        {                                                                                                    \
                .id = "E" #number, .title = name, .published = outcome,                                      \
                .x_label = "payload of a packet, bytes", .y_label = "processor time, s/GB", .y = COST,       \
                .log_x = true, .kind = LAB_PATHS, .base = "row=" #number " " BASE, .series = {__VA_ARGS__},  \
                .sweep = LAB_SWEEP(LAB_LIST(512, 1024, 8192), LAB_LIST(1024), LAB_PANELS(sources)),          \
                .vary = vary_payload_bytes, .judge = judge_row                                               \
        }
#define UDP(form) "form=" #form " wire=0"
#define TCP(form) "form=" #form " wire=1"
#define ALONE(form) "form=" #form " wire=2"

static const struct lab_measurement measurements[] = {
        ROW(1, "Download by read and send", "2n copies, 2n calls for n packets", {"UDP", UDP(0)},
            {"TCP", TCP(0)}, {"sender alone", ALONE(0)}),
        ROW(2, "Download by mmap and send", "n copies, 1 + n calls", {"UDP", UDP(0)}, {"TCP", TCP(0)},
            {"sender alone", ALONE(0)}),
        ROW(3, "Download by sendfile", "no copies, 1 call", {"UDP, sendfile", UDP(0)},
            {"TCP, sendfile", TCP(0)}, {"alone, sendfile", ALONE(0)}, {"UDP, splice", UDP(1)},
            {"TCP, splice", TCP(1)}, {"alone, splice", ALONE(1)}),
        ROW(4, "Streaming by read and send, header in the buffer", "2n copies, 2n calls", {"UDP", UDP(0)},
            {"TCP", TCP(0)}, {"sender alone", ALONE(0)}),
        ROW(5, "Streaming by read and writev", "3n copies, 2n calls", {"UDP", UDP(0)}, {"TCP", TCP(0)},
            {"sender alone", ALONE(0)}),
        ROW(6, "Streaming by mmap and send, corked", "2n copies, 1 + 4n calls", {"UDP, cork", UDP(0)},
            {"TCP, cork", TCP(0)}, {"alone, cork", ALONE(0)}, {"UDP, MSG_MORE", UDP(1)},
            {"TCP, MSG_MORE", TCP(1)}, {"alone, MSG_MORE", ALONE(1)}),
        ROW(7, "Streaming by mmap and writev", "2n copies, 1 + n calls", {"UDP, writev", UDP(0)},
            {"TCP, writev", TCP(0)}, {"alone, writev", ALONE(0)}, {"UDP, sendmmsg", UDP(1)},
            {"TCP, long gather lists", TCP(1)}, {"alone, sendmmsg", ALONE(1)}),
        ROW(8, "Streaming by sendfile, corked header", "n copies, 4n calls", {"UDP, cork", UDP(0)},
            {"TCP, cork", TCP(0)}, {"alone, cork", ALONE(0)}, {"UDP, MSG_MORE", UDP(1)},
            {"TCP, MSG_MORE", TCP(1)}, {"alone, MSG_MORE", ALONE(1)}),
        ROW(9, "Streaming by mmap and msend (patch)", "n copies, 1 + 4n calls", {"UDP, MSG_ZEROCOPY", UDP(0)},
            {"TCP, MSG_ZEROCOPY", TCP(0)}, {"alone, MSG_ZEROCOPY", ALONE(0)}),
        ROW(10, "Streaming by mmap and rtpmsend (patch)", "n copies, 1 + n calls",
            {"UDP, MSG_ZEROCOPY", UDP(0)}, {"TCP, MSG_ZEROCOPY", TCP(0)}, {"alone, MSG_ZEROCOPY", ALONE(0)},
            {"UDP, vmsplice", UDP(1)}, {"TCP, vmsplice", TCP(1)}, {"alone, vmsplice", ALONE(1)}),
        ROW(11, "Streaming by mmap and krtpmsend (patch)", "no copies, 1 call",
            {"UDP, super-packets", UDP(0)}, {"TCP, long gather lists", TCP(0)},
            {"alone, super-packets", ALONE(0)}, {"UDP, io_uring", UDP(1), true},
            {"TCP, io_uring", TCP(1), true}, {"alone, io_uring", ALONE(1), true}),
        ROW(12, "Streaming by rtpsendfile (patch)", "n copies, n calls", {"UDP, splice", UDP(0)},
            {"TCP, splice", TCP(0)}, {"alone, splice", ALONE(0)}, {"UDP, io_uring", UDP(1), true},
            {"TCP, io_uring", TCP(1), true}, {"alone, io_uring", ALONE(1), true}),
        ROW(13, "Streaming by krtpsendfile (patch)", "no copies, 1 call", {"UDP, io_uring", UDP(0)},
            {"TCP, io_uring", TCP(0)}, {"alone, io_uring", ALONE(0)}),
        {
                .id = "E14",
                .title = "Data paths side by side",
                .published =
                        "40 % of processor time is copies; a header costs sendfile 29 %; the patched paths "
                        "gain 25 to 27 % on the best other one",
                .x_label = "row",
                .y_label = "processor time, s/GB",
                .y = COST,
                .kind = LAB_PATHS,
                .base = "payload=1024 form=0 " BASE,
                .series = {{"UDP", "wire=0"}, {"TCP", "wire=1"}, {"sender alone", "wire=2"}},
                .sweep = LAB_SWEEP(LAB_LIST(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13),
                                   LAB_LIST(1, 3, 7, 8, 10, 11), LAB_PANELS(sources)),
                .vary = vary_row,
                .judge = judge_conclusions,
        },
};
const struct lab_publication publication_e = {measurements, ARRAY_SIZE(measurements)};
