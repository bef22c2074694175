/* Tests the verdicts on streams, publication D, on synthetic results. */
#include <math.h>

#include "judge_sample.h"

static const char *const figures[] = {
        "wire_mbps",
        "spread_mbps",
        "lost_percent",
        "socket_packets",
        "output_cpu_percent",
        "processing_mean_us",
        "processing_sigma_us",
        "inter_packet_mean_us",
        "inter_packet_sigma_us",
        "mbps",
        "sent_inter_packet_mean_us",
        "sent_inter_packet_sigma_us",
        "network_packets",
        "path_lost_packets",
        "lost_packets",
        "corrupt",
        "mean_mbps",
        "least_mbps",
        "most_mbps",
        "steady_intervals",
        "unsteady_intervals",
        "processors",
};

/* As published, or better where nothing is. */
static const struct {
        const char *id;
        enum lab_verdict verdict;
} cases[] = {
        {"D1", LAB_AGREES}, {"D2", LAB_AGREES}, {"D3", LAB_AGREES}, {"D4", LAB_AGREES}, {"D5", LAB_AGREES},
        {"D6", LAB_BETTER}, {"D7", LAB_BETTER}, {"D8", LAB_BETTER}, {"D9", LAB_BETTER},
};

static bool is(const char *key, const char *name)
{
        return strcmp(key, name) == 0;
}

static double good(const struct lab_point *p, const char *key)
{
        char row = p->measurement->id[1];
        bool busy = p->panel && strstr(p->panel, "busy processor, socket of 128"),
             shared = strstr(p->series, "interface"), spins = p->series[0] == 'y' || p->series[0] == 'p',
             losing = strstr(p->series, "lost by the path");

        if (is(key, "wire_mbps"))
                return fmin(12112 / p->x, 1000);
        if (is(key, "spread_mbps"))
                return busy ? 200 : 0.5;
        if (is(key, "lost_percent"))
                return busy || (row == '4' && shared) ? 3 : 0;
        if (is(key, "output_cpu_percent"))
                return spins ? 99 : 2;
        if (strstr(key, "processing_"))
                return 0.11;
        if (is(key, "inter_packet_mean_us"))
                return fmax(p->x, 12.112);
        if (is(key, "sent_inter_packet_mean_us"))
                return p->x * 1.005;
        if (is(key, "processors"))
                return 8;
        if (is(key, "steady_intervals"))
                return 60;
        if (is(key, "mean_mbps") || is(key, "least_mbps") || is(key, "most_mbps"))
                return 977;
        if (is(key, "mbps"))
                return p->x * (row == '7' ? 1000 : 1) * 0.999;
        return losing && strstr(key, "_packets") ? 50 : 0;
}

static json_t *result_of(const struct lab_point *p)
{
        json_t *r = json_pack("{s:s, s:s?, s:f, s:s}", "series", p->series, "panel", p->panel, "x", p->x,
                              "settings", p->settings);

        for (size_t k = 0; k < ARRAY_SIZE(figures); k++)
                json_object_set_new(r, figures[k], json_real(good(p, figures[k])));
        return r;
}

TEST(good_figures_have_good_verdicts)
{
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                for (int quick = 0; quick < 2; quick++) {
                        json_auto_t *results = results_of(cases[i].id, quick);

                        if (judge(cases[i].id, results) != cases[i].verdict)
                                fail_msg("%s: %s", cases[i].id, why);
                        json_array_remove(results, 0);
                        assert_int_equal(judge(cases[i].id, results), LAB_UNKNOWN);
                }
        }
}

#define FREE "free processors, socket of 8 MiB"

TEST(each_figure_counts)
{
        static const struct {
                const char *id, *series, *panel;
                double x;
                const char *key;
                double value;
                enum lab_verdict verdict;
                const char *text;
        } changes[] = {
                {"D1", "signal=200", FREE, 12, "lost_percent", 0.05, LAB_DIFFERS, "0.05 % lost, with futex"},
                {"D1", "signal=100", FREE, 12, "spread_mbps", 1.5, LAB_DIFFERS, "within 1.5 Mbit/s"},
                {"D1", "signal=100", FREE, 12, "wire_mbps", 980, LAB_DIFFERS, "at 12 us 980.0 Mbit/s"},
                {"D1", "signal=100", FREE, 12, "wire_mbps", 940, LAB_DIFFERS, "at 12 us 940.0 Mbit/s"},
                {"D1", "", "busy processor, socket of 128 KiB", 12, "lost_percent", 0, LAB_AGREES,
                 "turns, 1000.0 Mbit/s within 200.0 Mbit/s, 0 % lost with a socket of 128 KiB"},
                {"D2", "yield", "", 20, "lost_percent", 1, LAB_DIFFERS, "1 % lost; at 12 us"},
                {"D2", "yield", "", 12, "spread_mbps", 3, LAB_DIFFERS, "within 3.0 Mbit/s"},
                {"D2", "yield", "", 12, "output_cpu_percent", 60, LAB_DIFFERS,
                 "60 % of a processor, as others need it"},
                {"D3", "poll", "", 12, "output_cpu_percent", 60, LAB_AGREES,
                 "60 % of a processor, as others need it"},
                {"D3", "poll", "", 12, "output_cpu_percent", 20, LAB_DIFFERS, "20 % of a processor"},
                {"D3", "futex (default)", "", 12, "output_cpu_percent", 15, LAB_DIFFERS, "with futex 15.0 %"},
                {"D4", "the interface's processor", "", 0, "lost_percent", 0, LAB_DIFFERS, "0 % lost on"},
                {"D5", "", "", 0, "processing_mean_us", 0.5, LAB_DIFFERS, "0.50 us"},
                {"D5", "", "", 0, "processing_mean_us", 0.05, LAB_BETTER, "0.05 us"},
                {"D5", "", "", 20, "inter_packet_mean_us", 21, LAB_DIFFERS, "5.00 % off"},
                {"D6", "", "", 1, "sent_inter_packet_mean_us", 1.5, LAB_DIFFERS, "down to 2 us"},
                {"D6", "", "", 50, "sent_inter_packet_mean_us", 51, LAB_DIFFERS, "no spacing is kept"},
                {"D7", "", "", 8, "mbps", 7000, LAB_DIFFERS, "up to 6 Gbit/s"},
                {"D7", "futex (default)", "", 4, "lost_percent", 1, LAB_DIFFERS,
                 "1 % lost; with signal=200 0 % lost"},
                {"D7", "yield", "", 4, "lost_percent", 1, LAB_BETTER, "with yield 1 %"},
                {"D8", "no loss", "", 300, "network_packets", 1, LAB_DIFFERS, "in the network"},
                {"D8", "", "", 300, "corrupt", 1, LAB_DIFFERS, ""},
                {"D8", "", "", 300, "mbps", 290, LAB_DIFFERS, "3.33 % less"},
                {"D9", "memory", "", 0, "lost_packets", 1, LAB_DIFFERS, "memory: 1 packets lost, 60 of 60 s"},
                {"D9", "disk to disk", "", 0, "unsteady_intervals", 1, LAB_DIFFERS,
                 "disk to disk: 0 packets lost, 60 of 61 s within 0.1 % of 977.00 Mbit/s"},
                {"D9", "disk, direct", "", 0, "corrupt", 1, LAB_DIFFERS, "(977.00 to 977.00), corrupt"},
                {"D9", "disk, direct", "", 0, "mbps", 900, LAB_DIFFERS, "4.26 % less than asked for"},
                {"D9", "memory", "", 0, "least_mbps", 976.5, LAB_BETTER, "(976.50 to 977.00)"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
                json_auto_t *results = results_of(changes[i].id, false);

                change_at(results, changes[i].series, changes[i].panel, changes[i].x, changes[i].key,
                          json_real(changes[i].value));
                if (judge(changes[i].id, results) != changes[i].verdict || !strstr(why, changes[i].text))
                        fail_msg("change %zu, %s: %s", i, changes[i].id, why);
        }
}

/* With two processors, the ends of a stream wait for each other. */
TEST(steadiness_needs_processors)
{
        static const struct {
                double wire_mbps, spread_mbps, lost_percent;
                enum lab_verdict verdict;
        } cases_of_two[] = {
                {980, 60, 0, LAB_AGREES},
                {940, 1, 0, LAB_DIFFERS},
                {999, 1, 0.01, LAB_DIFFERS},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases_of_two); i++) {
                json_auto_t *results = results_of("D1", false);

                change_at(results, "", "", 0, "processors", json_real(2));
                change_at(results, "signal=100", FREE, 12, "wire_mbps", json_real(cases_of_two[i].wire_mbps));
                change_at(results, "signal=100", FREE, 12, "spread_mbps",
                          json_real(cases_of_two[i].spread_mbps));
                change_at(results, "signal=100", FREE, 12, "lost_percent",
                          json_real(cases_of_two[i].lost_percent));
                assert_int_equal(judge("D1", results), cases_of_two[i].verdict);
                assert_non_null(strstr(why, "with 2 processors, steadiness is not judged"));
        }
}
