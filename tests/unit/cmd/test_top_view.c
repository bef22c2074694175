/* Tests the screen of evb top for all sizes of a terminal. */
#include "top_sample.h"

#include "cmd/top/top.h"

#define LINES_MAX 70

static struct top_line screen[LINES_MAX];
static size_t n_lines;

static void make(struct top_view *v)
{
        size_t order[64];

        assert_true(t.model.n <= ARRAY_SIZE(order));
        v->sort = v->sort ?: top_columns;
        v->clock = v->clock ?: "18:45:01";
        v->order = order;
        memset(screen, 'X', sizeof screen);
        n_lines = top_view_make(v, &t.model, screen);
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
static void fill(void)
{
        for (size_t i = 0; i < t.statuses.n; i++)
                sample_answer(i,
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
        sample_problem(0, CONDITION_STALLED,
                       "stalled for 7 s: no credit, as sfi1 and sfi2 wait for "
                       "fragments of ros1, ros2, ros3 and ros4, which "
                       "fell silent 12 s ago; see docs/operate.md");
        sample_problem(2, CONDITION_SILENT, "no answer from 10.0.0.5:9464: Connection timed out");
        json_decref(t.statuses.nodes[2].status);
        t.statuses.nodes[2].status = NULL;
        sample_look();
}

TEST_WITH(no_line_is_wider_than_the_terminal, NULL, sample_close)
{
        sample_open(30, 10);
        strcpy(t.scenario->nodes[5].name, "a-very-long-name-of-a-node-here");
        fill();
        for (size_t width = 0; width <= 250; width += width < 100 ? 1 : 15) {
                for (size_t height = 0; height <= LINES_MAX; height += height < 30 ? 1 : 20) {
                        for (int help = 0; help < 2; help++) {
                                struct top_view v = {
                                        .width = width, .height = height, .help = help, .first = 3};

                                make(&v);
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

        make(&wide);
        assert_true(strlen(screen[0].text) <= TOP_LINE_MAX);
}

TEST_WITH(all_is_on_a_small_screen, NULL, sample_close)
{
        struct top_view v = {.width = 80, .height = 24};

        sample_open(3, 2);
        fill();
        make(&v);
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
}

/* The less important columns give way first, and each that is there is whole. */
TEST_WITH(columns_give_way_by_priority, NULL, sample_close)
{
        unsigned seen = 0;

        sample_open(3, 2);
        fill();
        for (size_t width = 5; width <= 200; width++) {
                struct top_view v = {.width = width, .height = 24};
                const struct top_line *head;
                unsigned there = 0;

                make(&v);
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
}

TEST_WITH(columns_without_figures_take_no_room, NULL, sample_close)
{
        struct top_view v = {.width = 200, .height = 24};

        sample_open(1, 1);
        sample_look();
        make(&v);
        assert_null(find("BACKLOG"));
        sample_answer(1, "'shaping':[{'node':'sfi1','backlog_bytes':0}]");
        sample_look();
        make(&v);
        need("BACKLOG");
}

TEST_WITH(the_list_scrolls, NULL, sample_close)
{
        struct top_view v = {.width = 80, .height = 24};
        char hidden[40];

        sample_open(30, 10);
        sample_look();
        make(&v);
        assert_true(v.page >= 3 && v.page < 41);
        snprintf(hidden, sizeof hidden, "41 nodes, %zu hidden", 41 - v.page);
        need(hidden);
        need("ros1 ");
        assert_null(find("sfi10 "));
        v.first = 1000;
        make(&v);
        assert_int_equal(v.first, 41 - v.page);
        need("sfi10 ");
        assert_null(find("ros1 "));
        need(hidden);
        v.height = 60;
        make(&v);
        assert_int_equal(v.first, 0);
        assert_null(find("hidden"));
        need("sfi10 ");
        need("dfm ");
}

/* Some nodes are there at any height but the lowest. */
TEST_WITH(the_summary_leaves_room, NULL, sample_close)
{
        sample_open(3, 2);
        fill();
        for (size_t height = 6; height <= 24; height++) {
                struct top_view v = {.width = 40, .height = height};

                make(&v);
                need("evb top: beam");
                need("NODEv");
                need("ros1 ");
                need("ros2 ");
                assert_true(v.page >= 3);
        }
}

TEST_WITH(growth_is_marked, NULL, sample_close)
{
        struct top_view v = {.width = 80, .height = 24};

        sample_open(0, 1);
        sample_answer(1, "'start_time':1,'drops':{'network_packets':5}");
        sample_look();
        make(&v);
        assert_int_equal(need("sfi1 ")->style, TOP_PLAIN);
        t.now_ns += NS_PER_S;
        sample_answer(1, "'start_time':1,'drops':{'network_packets':6}");
        sample_look();
        make(&v);
        assert_int_equal(need("sfi1 ")->style, TOP_WARNING);
        assert_non_null(strstr(need("sfi1 ")->text, " 6+"));
}

TEST_WITH(the_order_and_the_pause_show, NULL, sample_close)
{
        struct top_view v = {.width = 80, .height = 24, .sort = top_column_find("drops"), .paused = true};

        sample_open(1, 1);
        sample_answer(1, "'drops':{'send_failed_packets':5}");
        sample_look();
        make(&v);
        need("; display paused");
        need("DROPSv");
        need("s sort: drops");
        assert_true(need("ros1 ") < need("dfm "));
        v.reverse = true;
        make(&v);
        need("DROPS^");
}

TEST_WITH(the_help_fits, NULL, sample_close)
{
        struct top_view v = {.width = 80, .height = 24, .help = true};

        sample_open(1, 1);
        sample_look();
        make(&v);
        need("q           quit");
        for (size_t i = 0; i < TOP_COLUMNS; i++)
                need(top_columns[i].help);
}
