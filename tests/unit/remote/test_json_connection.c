/* Conversations over a socket pair: whole lines however they arrive, and every way to end. */
#include "../test.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "evb/base/util.h"
#include "json_connection.h"

static struct {
        struct loop *loop;
        struct json_connection connection;
        int other; /* end of the pair, spoken to by hand */
        int heard, ended;
        json_int_t sum;
        bool close_when_heard;
        int go_on; /* lines that follow, each when the one before is heard */
} t;

static void heard(void *ctx, json_t *message)
{
        (void)ctx;
        t.heard++;
        t.sum += json_integer_value(json_object_get(message, "n"));
        if (t.close_when_heard)
                json_connection_close(&t.connection);
        if (t.go_on > 0) {
                t.go_on--;
                assert_int_equal(write(t.other, "{\"n\": 1}\n", 9), 9);
        }
}

static void ended(void *ctx, int error)
{
        (void)ctx;
        assert_int_equal(t.ended, 0);
        t.ended = error;
}

static int set_up(void **state)
{
        int pair[2];

        (void)state;
        memset(&t, 0, sizeof t);
        t.connection = (struct json_connection){.heard = heard, .ended = ended};
        assert_int_equal(loop_new(&t.loop), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        t.other = pair[1];
        return json_connection_open(&t.connection, t.loop, pair[0], false);
}

static int tear_down(void **state)
{
        (void)state;
        json_connection_close(&t.connection);
        json_connection_close(&t.connection);
        close(t.other);
        loop_free(t.loop);
        return 0;
}

static void turn(void)
{
        assert_int_equal(loop_wait(t.loop, 0), 0);
}

static void write_all(const char *text, size_t n)
{
        while (n > 0) {
                ssize_t done = write(t.other, text, n);

                if (done < 0 && t.ended != 0)
                        return;
                if (done > 0)
                        text += done, n -= (size_t)done;
                turn();
        }
        turn();
}

static void in_pieces(void **state)
{
        static const char text[] = "{\"n\": 1}\n{\"n\": 20}\n\n{\"n\":\n";

        (void)state;
        for (size_t i = 0; i < sizeof text - 2; i++)
                write_all(text + i, 1);
        assert_int_equal(t.heard, 2);
        assert_int_equal(t.sum, 21);
        assert_int_equal(t.ended, 0);
        /* A line is one object, not a part of one. */
        write_all("\n", 1);
        assert_int_equal(t.ended, -EBADMSG);
}

static void no_object(void **state)
{
        (void)state;
        write_all("{\"n\": 1}\n[1]\n{\"n\": 1}\n", 23);
        assert_int_equal(t.heard, 1);
        assert_int_equal(t.ended, -EBADMSG);
        assert_false(json_connection_is_open(&t.connection));
}

static void closed_while_heard(void **state)
{
        (void)state;
        t.close_when_heard = true;
        write_all("{\"n\": 1}\n{\"n\": 1}\n", 18);
        assert_int_equal(t.heard, 1);
        assert_int_equal(t.ended, 0);
}

static void other_side_goes(void **state)
{
        (void)state;
        write_all("{\"n\": 3}\n", 9);
        close(t.other);
        t.other = -1;
        turn();
        assert_int_equal(t.heard, 1);
        assert_int_equal(t.ended, -EPIPE);
        /* Words to nobody are taken in silence. */
        json_connection_send(&t.connection, json_pack("{s:i}", "n", 1));
}

/* The last words of one who goes are heard, also where nobody is there to hear ours. */
static void last_words(void **state)
{
        (void)state;
        assert_int_equal(write(t.other, "{\"n\": 3}\n", 9), 9);
        close(t.other);
        t.other = -1;
        json_connection_send(&t.connection, json_pack("{s:i}", "n", 1));
        json_connection_send(&t.connection, json_pack("{s:i}", "n", 2));
        turn();
        turn();
        assert_int_equal(t.heard, 1);
        assert_int_equal(t.ended, -EPIPE);
}

/* Who never stops talking does not keep the loop from turning. */
static void endless(void **state)
{
        (void)state;
        t.go_on = 1000;
        write_all("{\"n\": 1}\n", 9);
        assert_in_range(t.heard, 1, 10);
        while (t.go_on > 0)
                turn();
        turn();
        assert_int_equal(t.heard, 1001);
}

/* A string as long as a line may be, and one byte more. */
static void long_lines(void **state)
{
        size_t n = JSON_CONNECTION_LINE_MAX_BYTES;
        char *text = malloc(n + 1);

        (void)state;
        assert_non_null(text);
        memset(text, ' ', n);
        memcpy(text, "{\"n\": 1}", 8);
        text[n - 1] = '\n';
        write_all(text, n);
        assert_int_equal(t.heard, 1);
        memset(text, ' ', n + 1);
        write_all(text, n + 1);
        assert_int_equal(t.ended, -EMSGSIZE);
        free(text);
}

static void said_is_heard(void **state)
{
        char back[64];
        ssize_t n;

        (void)state;
        json_connection_send(&t.connection, json_pack("{s:i}", "n", 5));
        n = read(t.other, back, sizeof back);
        assert_int_equal(n, 8);
        assert_memory_equal(back, "{\"n\":5}\n", 8);
}

/* Nobody reads: words wait, up to a bound; then who does read gets all of them in order. */
static void slow_reader(void **state)
{
        char *long_text = calloc(1, 100001), part[65536];
        size_t said = 0, read_bytes = 0;
        ssize_t n;

        (void)state;
        memset(long_text, 'x', 100000);
        for (; said < 100; said++)
                json_connection_send(&t.connection, json_pack("{s:s}", "n", long_text));
        assert_int_equal(t.ended, 0);
        while (read_bytes < said * 100009) {
                while ((n = read(t.other, part, sizeof part)) > 0)
                        read_bytes += (size_t)n;
                turn();
        }
        assert_int_equal(read_bytes, said * 100009);
        for (said = 0; said < 1000 && t.ended == 0; said++)
                json_connection_send(&t.connection, json_pack("{s:s}", "n", long_text));
        assert_int_equal(t.ended, -ENOBUFS);
        assert_true(said > JSON_CONNECTION_UNSENT_MAX_BYTES / 100009);
        free(long_text);
}

/* Text of others moves no terminal's cursor and begins no line of a log. */
static void printable(void **state)
{
        json_t *value = json_string("a\nb\x1b[2J\tc\x7f d \xc3\xa9"), *none = json_integer(5);
        char text[64], small[4];

        (void)state;
        assert_string_equal(json_connection_text(value, text, sizeof text), "a?b?[2J?c? d \xc3\xa9");
        assert_string_equal(json_connection_text(value, small, sizeof small), "a?b");
        assert_string_equal(json_connection_text(none, text, sizeof text), "it does not say why");
        assert_string_equal(json_connection_text(NULL, text, sizeof text), "it does not say why");
        json_decref(value);
        json_decref(none);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        const struct CMUnitTest tests[] = {
                CASE(in_pieces),   CASE(no_object), CASE(closed_while_heard), CASE(other_side_goes),
                CASE(last_words),  CASE(endless),   CASE(long_lines),         CASE(said_is_heard),
                CASE(slow_reader), CASE(printable)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
