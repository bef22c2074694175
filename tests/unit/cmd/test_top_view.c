/* Tests the screen of evb top for all sizes of a terminal. */
#include "top_sample.h"

#include "top_view.h"

#define LINES_MAX 70

static struct top_line screen[LINES_MAX];
static size_t n_lines;

static void make(struct sample *t, struct top_view *v)
{
        size_t order[64];

        assert_true(t->model.n <= ARRAY_SIZE(order));
        v->sort = v->sort ?: top_columns;
        v->clock = v->clock ?: "18:45:01";
        v->order = order;
        memset(screen, 'X', sizeof screen);
        n_lines = top_view_make(v, &t->model, screen);
        assert_true(n_lines <= v->height);
}

static const struct top_line *find(const char *text)
{
        for (size_t i = 0; i < n_lines; i++) {
                if (strstr(screen[i].text, text))
                        return &screen[i];
        }
        return NULL;
}

static const struct top_line *need(const char *text)
{
        const struct top_line *line = find(text);

        for (size_t i = 0; !line && i < n_lines; i++)
                fprintf(stderr, "|%s|\n", screen[i].text);
        if (!line)
                fail_msg("no line with \"%s\"", text);
        return line;
}

/* A busy run with every kind of trouble. */
static void fill(struct sample *t)
{
        for (size_t i = 0; i < t->statuses.n; i++)
                sample_answer(t, i,
                              "'run':4711,'buffer_used':0.75,'credits':1024,'open_events':123456,"
                              "'rates':{'events_hz':123456.7,'fragments_hz':1e6,'bytes_per_second':987654321,"
                              "'busy_share':0.5,'triggers_hz':3e5},'counts':{'events_partial':1234567,"
                              "'events_complete':1e12,'events_lost':5},'output_free_bytes':%zu,"
                              "'output_size_bytes':10000000000000,'shaping':[{'node':'sfi1','backlog_bytes':"
                              "12345}],"
                              "'drops':{'source_qdisc_packets':99999,'network_packets':123},"
                              "'discarded':{'packets':{'malformed':3,'foreign':123456},"
                              "'front_end_frames':{'no_room':123456789}},'reason':'waits for a free credit "
                              "of sfi1'",
                              (size_t)1000000000 * (i + 1));
        sample_problem(t, 0, CONDITION_STALLED,
                       "stalled for 7 s: no credit, as sfi1 and sfi2 wait for "
                       "fragments of ros1, ros2, ros3 and ros4, which "
                       "fell silent 12 s ago; see docs/operate.md");
        sample_problem(t, 2, CONDITION_SILENT, "no answer from 10.0.0.5:9464: Connection timed out");
        json_decref(t->statuses.nodes[2].status);
        t->statuses.nodes[2].status = NULL;
        sample_look(t);
}

TEST(no_line_is_wider_than_the_terminal)
{
        struct sample t;

        sample_open(&t, 30, 10);
        strcpy(t.scenario->nodes[5].name, "a-very-long-name-of-a-node-here");
        fill(&t);
        for (size_t width = 0; width <= 250; width += width < 100 ? 1 : 15) {
                for (size_t height = 0; height <= LINES_MAX; height += height < 30 ? 1 : 20) {
                        for (int help = 0; help < 2; help++) {
                                struct top_view v = {
                                        .width = width, .height = height, .help = help, .first = 3};

                                make(&t, &v);
                                for (size_t i = 0; i < n_lines; i++) {
                                        assert_true(strlen(screen[i].text) <= width);
                                        for (const char *c = screen[i].text; *c; c++)
                                                assert_true((*c >= ' ' && *c <= '~') || *c == TOP_BAR_FULL ||
                                                            *c == TOP_BAR_EMPTY);
                                }
                        }
                }
        }
        /* Wider than any line. */
        struct top_view wide = {.width = 5000, .height = 20};

        make(&t, &wide);
        assert_true(strlen(screen[0].text) <= TOP_LINE_MAX);
        sample_close(&t);
}

TEST(all_is_on_a_small_screen)
{
        struct sample t;
        struct top_view v = {.width = 80, .height = 24};

        sample_open(&t, 3, 2);
        fill(&t);
        make(&t, &v);
        assert_int_equal(n_lines, 24);
        assert_non_null(strstr(need("evb top: beam, run 4711, stalled; 6 nodes, 1 without answer")->text,
                               "18:45:01"));
        need("Triggers 300 kHz  Events 123 kHz  Data 988 MB/s  Busy 50 %");
        need("Partial 1.23 M  Lost 5");
        need("Drops: source queue 200 k  network 246  socket -");
        need("Discarded: packets malformed 15, packets foreign 617 k");
        need("Shaping: backlog 24.7 kB  Disk of dfm: 1 GB of 10 TB free");
        assert_int_equal(need("dfm: stalled for 7 s: no credit, as sfi1")->style, TOP_ERROR);
        need("see docs/operate.md; 1 more");
        assert_int_equal(need("NODEv ROLE STATE")->style, TOP_HEAD);
        assert_int_equal(need("ros2  ros  no_answer")->style, TOP_ERROR);
        need("q quit  s sort: node");
        assert_null(find("hidden"));
        sample_close(&t);
}

/* The less important columns give way first, and each that is there is whole. */
TEST(columns_give_way_by_priority)
{
        unsigned seen = 0;
        struct sample t;

        sample_open(&t, 3, 2);
        fill(&t);
        for (size_t width = 5; width <= 200; width++) {
                struct top_view v = {.width = width, .height = 24};
                const struct top_line *head;
                unsigned there = 0;

                make(&t, &v);
                head = need("NODE");
                for (size_t i = 0; i < TOP_COLUMNS; i++)
                        there += strstr(head->text, top_columns[i].head) != NULL;
                /* BUFFER is wide, so that a narrow one may take its place for a while. */
                assert_true(there + 1 >= seen);
                seen = MAX(there, seen);
                for (size_t i = 0; width >= 80 && i < TOP_COLUMNS; i++) {
                        if (top_columns[i].priority <= 6)
                                assert_non_null(strstr(head->text, top_columns[i].head));
                }
        }
        assert_int_equal(seen, TOP_COLUMNS - 1);
        sample_close(&t);
}

TEST(columns_without_figures_take_no_room)
{
        struct sample t;
        struct top_view v = {.width = 200, .height = 24};

        sample_open(&t, 1, 1);
        sample_look(&t);
        make(&t, &v);
        assert_null(find("BACKLOG"));
        sample_answer(&t, 1, "'shaping':[{'node':'sfi1','backlog_bytes':0}]");
        sample_look(&t);
        make(&t, &v);
        need("BACKLOG");
        sample_close(&t);
}

TEST(the_list_scrolls)
{
        struct sample t;
        struct top_view v = {.width = 80, .height = 24};
        char hidden[40];

        sample_open(&t, 30, 10);
        sample_look(&t);
        make(&t, &v);
        assert_true(v.page >= 3 && v.page < 41);
        snprintf(hidden, sizeof hidden, "41 nodes, %zu hidden", 41 - v.page);
        need(hidden);
        need("ros1 ");
        assert_null(find("sfi10 "));
        v.first = 1000;
        make(&t, &v);
        assert_int_equal(v.first, 41 - v.page);
        need("sfi10 ");
        assert_null(find("ros1 "));
        need(hidden);
        v.height = 60;
        make(&t, &v);
        assert_int_equal(v.first, 0);
        assert_null(find("hidden"));
        need("sfi10 ");
        need("dfm ");
        sample_close(&t);
}

/* Some nodes are there at any height but the lowest. */
TEST(the_summary_leaves_room)
{
        struct sample t;

        sample_open(&t, 3, 2);
        fill(&t);
        for (size_t height = 6; height <= 24; height++) {
                struct top_view v = {.width = 40, .height = height};

                make(&t, &v);
                need("evb top: beam");
                need("NODEv");
                need("ros1 ");
                need("ros2 ");
                assert_true(v.page >= 3);
        }
        sample_close(&t);
}

TEST(growth_is_marked)
{
        struct sample t;
        struct top_view v = {.width = 80, .height = 24};

        sample_open(&t, 0, 1);
        sample_answer(&t, 1, "'start_time':1,'drops':{'network_packets':5}");
        sample_look(&t);
        make(&t, &v);
        assert_int_equal(need("sfi1 ")->style, TOP_PLAIN);
        t.now_ns += NS_PER_S;
        sample_answer(&t, 1, "'start_time':1,'drops':{'network_packets':6}");
        sample_look(&t);
        make(&t, &v);
        assert_int_equal(need("sfi1 ")->style, TOP_WARNING);
        assert_non_null(strstr(need("sfi1 ")->text, " 6+"));
        sample_close(&t);
}

TEST(the_order_and_the_pause_show)
{
        struct sample t;
        struct top_view v = {.width = 80, .height = 24, .sort = top_column_find("drops"), .paused = true};

        sample_open(&t, 1, 1);
        sample_answer(&t, 1, "'drops':{'send_failed_packets':5}");
        sample_look(&t);
        make(&t, &v);
        need("; display paused");
        need("DROPSv");
        need("s sort: drops");
        assert_true(need("ros1 ") < need("dfm "));
        v.reverse = true;
        make(&t, &v);
        need("DROPS^");
        sample_close(&t);
}

TEST(the_help_fits)
{
        struct sample t;
        struct top_view v = {.width = 80, .height = 24, .help = true};

        sample_open(&t, 1, 1);
        sample_look(&t);
        make(&t, &v);
        need("q           quit");
        for (size_t i = 0; i < TOP_COLUMNS; i++)
                need(top_columns[i].help);
        sample_close(&t);
}
