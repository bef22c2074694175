/* Tests the verdicts on data paths, publication E, on synthetic results. */
#include "judge_sample.h"

#define COST "processor_seconds_per_gb"
#define CALLS "calls_per_packet"

/* By row: system calls per packet as published or, for those that had one call for a whole file, few. */
static const double calls[] = {0, 2, 1, 0.001, 2, 2, 4, 1, 4, 2.1, 1.1, 0.15, 3, 0.05};

/* The verdict with these calls, which today's forms halve. */
static const enum lab_verdict verdicts[] = {
        LAB_UNKNOWN, LAB_AGREES, LAB_AGREES, LAB_AGREES, LAB_AGREES, LAB_AGREES,  LAB_BETTER,
        LAB_BETTER,  LAB_BETTER, LAB_BETTER, LAB_AGREES, LAB_AGREES, LAB_DIFFERS, LAB_AGREES,
};

static unsigned row_of(const char *id)
{
        return (unsigned)strtoul(id + 1, NULL, 10);
}

/* At these costs all conclusions hold. */
static double cost_of_row(double row)
{
        return row == 1 ? 1 : row == 3 || row > 8 ? 0.55 : 0.75;
}

static json_t *result_of(const struct lab_point *p)
{
        unsigned row = row_of(p->measurement->id);
        bool today = strstr(p->series, "MSG_MORE") || strstr(p->series, "sendmmsg");

        return json_pack("{s:s, s:s, s:f, s:s, s:f, s:f, s:f}", "series", p->series, "panel", p->panel, "x",
                         p->x, "settings", p->settings, COST, row == 14 ? cost_of_row(p->x) : 0.5, CALLS,
                         row == 14 ? 1.0 : calls[row] * (today ? 0.5 : 1), "corrupt", 0.0);
}

TEST(a_row_is_judged_by_its_calls)
{
        char id[] = "E00";

        for (unsigned row = 1; row <= 13; row++) {
                id[1] = (char)(row < 10 ? '0' + row : '1');
                id[2] = (char)(row < 10 ? '\0' : '0' + row % 10);
                for (int quick = 0; quick < 2; quick++) {
                        json_auto_t *results = results_of(id, quick);

                        assert_int_equal(judge(id, results), verdicts[row]);
                        change_at(results, "", "", 0, COST, json_real(0));
                        assert_int_equal(judge(id, results), LAB_DIFFERS);
                        change_at(results, "", "", 0, CALLS, json_null());
                        assert_int_equal(judge(id, results), LAB_UNKNOWN);
                }
        }
}

/* A row is judged without a form that the kernel refuses, and not without the others. */
TEST(a_refused_form_may_be_missing)
{
        json_t *results = results_of("E11", false);

        change_at(results, "UDP, io_uring", "", 0, COST, json_null());
        change_at(results, "UDP, io_uring", "", 0, CALLS, json_null());
        change_at(results, "UDP, io_uring", "", 0, "corrupt", json_null());
        assert_int_equal(judge("E11", results), LAB_UNKNOWN);
        change_at(results, "UDP, io_uring", "", 0, "refused",
                  json_string("io_uring_setup: Operation not permitted"));
        assert_int_equal(judge("E11", results), LAB_AGREES);
        json_decref(results);

        results = results_of("E13", false);
        change_at(results, "UDP, io_uring", "", 0, COST, json_null());
        change_at(results, "UDP, io_uring", "", 0, "refused",
                  json_string("io_uring_setup: Operation not permitted"));
        assert_int_equal(judge("E13", results), LAB_UNKNOWN);
        assert_non_null(strstr(why, "(refused: io_uring_setup: Operation not permitted)"));
        json_decref(results);
}

TEST(wrong_bytes_spoil_a_row)
{
        json_auto_t *results = results_of("E4", false);

        change_at(results, "TCP", "", 8192, "corrupt", json_real(1));
        assert_int_equal(judge("E4", results), LAB_DIFFERS);
        assert_non_null(strstr(why, "arrived wrong"));
}

/* Each conclusion is judged, and all must hold. */
TEST(conclusions_are_named)
{
        static const struct {
                double row, cost;
                const char *text;
        } changes[] = {
                {1, 0.58, "download saves 5 % (published: 40 %), which no longer holds"},
                {8, 0.56, "the header costs sendfile 2 % (published: 29 %), which no longer holds"},
                {4, 0.50, "gains on the best of E4 to E8 -10 % (published: 25 %), which no longer holds"},
        };

        for (int quick = 0; quick < 2; quick++) {
                json_t *results = results_of("E14", quick);

                assert_int_equal(judge("E14", results), LAB_AGREES);
                assert_non_null(strstr(why, "download saves 45 % (published: 40 %), which holds"));
                json_decref(results);
        }
        for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
                json_t *results = results_of("E14", false);

                change_at(results, "", "", changes[i].row, COST, json_real(changes[i].cost));
                assert_int_equal(judge("E14", results), LAB_DIFFERS);
                if (!strstr(why, changes[i].text))
                        fail_msg("%s", why);
                json_decref(results);
        }
}
