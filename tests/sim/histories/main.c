/* Plays random histories, and checks each one: histories [COUNT [FIRST [FEATURES]]]. A violation prints the
 * seed, the features without which it does not happen, and the command that repeats it. FEATURES is a mask;
 * with --list, the program prints its bits. */
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "history.h"

/* Further violations are only named. */
#define REPORTS_MAX 10

static uint64_t seed_now;
static unsigned features_now;

static void play(struct history *h, uint64_t seed, unsigned features)
{
        seed_now = seed;
        features_now = features;
        history_draw(h, seed, features);
        history_play(h);
        history_judge(h);
        history_check(h);
}

static void end(struct history *h)
{
        site_free(h->site);
}

/* An assertion failed in a core. */
static void print_seed(int signal)
{
        char text[120];
        int n = snprintf(text, sizeof text,
                         "seed %" PRIu64 " failed an assertion: repeat it with %" PRIu64 " 0x%x\n", seed_now,
                         seed_now, features_now);

        (void)signal;
        (void)!write(STDERR_FILENO, text, (size_t)n);
}

/* Switches off what is not needed. */
static unsigned reduce(uint64_t seed, unsigned features, const char *kind)
{
        for (unsigned i = 0; i < HISTORY_FEATURES_COUNT; i++) {
                struct history h;

                if (!(features >> i & 1))
                        continue;
                play(&h, seed, features & ~(1u << i));
                features &= h.kind == kind ? ~(1u << i) : features;
                end(&h);
        }
        return features;
}

static void print_inputs(const struct history *h)
{
        const struct dfm_offered *o = &dfm_counts(site_dfm(h->site))->offered;
        const struct dfm_announced *a = &dfm_counts(site_dfm(h->site))->announced;

        fprintf(stderr,
                "  %" PRIu64 " numbers announced, %" PRIu64 " confirmed, %" PRIu64 " late; %" PRIu64
                " triggers offered, %" PRIu64 " refused, %" PRIu64 " repeated, %" PRIu64
                " implausible, %" PRIu64 " not taken, %" PRIu64 " missing; the box sent %" PRIu64 "\n",
                a->numbers, a->confirmed, a->late, o->triggers, o->refused, o->repeated, o->implausible,
                o->not_taken, o->missing, h->box.sent);
        for (uint32_t i = 0; i < h->config.n_ros; i++) {
                const struct ros_counts *c = ros_counts(site_ros(h->site, i));

                fprintf(stderr,
                        "  ros%u: %" PRIu64 " frames, %" PRIu64 " used, %" PRIu64 " late, %" PRIu64
                        " duplicate, %" PRIu64 " impossible, %" PRIu64 " left over\n",
                        i + 1, site_frames(h->site, i), c->used, c->late, c->duplicate, c->impossible,
                        c->left_over);
        }
}

static void print_account(const struct history *h)
{
        const struct dfm_counts *d = dfm_counts(site_dfm(h->site));

        fprintf(stderr,
                "  %" PRIu64 " triggers, %" PRIu64 " complete, %" PRIu64 " partial, %" PRIu64
                " lost, %" PRIu64 " rejected, %" PRIu64 " reassigned, %" PRIu64 " ended again; status %d\n",
                d->triggers, d->complete, d->partial, d->lost, d->rejected, d->reassigned, d->ended_again,
                h->status);
        print_inputs(h);
        fprintf(stderr,
                "  live: %" PRIu64 " consumers, %" PRIu64 " ended; %" PRIu64 " offers, %" PRIu64
                " given, %" PRIu64 " skipped, %" PRIu64 " acknowledged, %" PRIu64 " offered again, %" PRIu64
                " lost\n",
                h->live.consumers, h->live.deaths, h->live.offered, h->live.given, h->live.skipped,
                h->live.acknowledged, h->live.again, h->live.lost);
        for (size_t i = 0; i < MIN(h->reasons.n, (size_t)REASONS_MAX); i++)
                fprintf(stderr, "  reason: %s\n", h->reasons.text[i]);
}

static void report(const char *program, uint64_t seed, unsigned features, const char *kind)
{
        struct history h;

        features = reduce(seed, features, kind);
        play(&h, seed, features);
        fprintf(stderr, "seed %" PRIu64 ": %s\n  repeat: %s 1 %" PRIu64 " 0x%x\n", seed, h.violation, program,
                seed, features);
        history_describe(&h);
        print_account(&h);
        end(&h);
}

static void list_features(void)
{
        static const char *const meanings[] = {
#define X(name, meaning) #name ": " meaning,
                HISTORY_FEATURES(X)
#undef X
        };

        for (unsigned i = 0; i < HISTORY_FEATURES_COUNT; i++)
                printf("0x%04x %s\n", 1u << i, meanings[i]);
}

int main(int argc, char **argv)
{
        uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000,
                 first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1, violations = 0, failed = 0;
        unsigned features = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 0) : HISTORY_ALL;

        if (argc > 1 && strcmp(argv[1], "--list") == 0) {
                list_features();
                return 0;
        }
        log_open("histories", LOG_LEVEL_ERROR);
        signal(SIGABRT, print_seed);
        /* Large tables of the cores stay untouched pages, instead of memory that is used again and cleared.
         */
        mallopt(M_MMAP_THRESHOLD, 16 << 10);
        /* The buffers are large, too, and the kernel would clear 2 MB where a history uses some kB. */
        (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
        for (uint64_t seed = first; seed < first + count; seed++) {
                struct history h;
                bool violated;

                play(&h, seed, features);
                violated = h.violation[0] != '\0';
                failed += h.status != 0;
                if (!violated && count == 1) {
                        history_describe(&h);
                        print_account(&h);
                }
                end(&h);
                if (violated && violations++ < REPORTS_MAX)
                        report(argv[0], seed, features, h.kind);
                else if (violated)
                        fprintf(stderr, "seed %" PRIu64 ": %s\n", seed, h.violation);
        }
        printf("%" PRIu64 " histories from seed %" PRIu64 ": %" PRIu64 " ended with status 1, %" PRIu64
               " violations\n",
               count, first, failed, violations);
        return violations > 0;
}
