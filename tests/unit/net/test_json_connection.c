/* Tests JSON connections over a socket pair: splitting into lines, and every way to end. */
#include "../test.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/json_connection.h"

static struct {
        struct loop *loop;
        struct json_connection connection;
        int peer; /* the other end of the pair */
        int received, ended;
        json_int_t sum;
        bool close_when_received;
        int follow; /* number of lines to write, each when the previous one arrives */
} t;

static void received(void *ctx, json_t *message)
{
        t.received++;
        t.sum += json_integer_value(json_object_get(message, "n"));
        if (t.close_when_received)
                json_connection_close(&t.connection);
        if (t.follow > 0) {
                t.follow--;
                assert_int_equal(write(t.peer, "{\"n\": 1}\n", 9), 9);
        }
}

static void ended(void *ctx, int error)
{
        assert_int_equal(t.ended, 0);
        t.ended = error;
}

static int set_up(void **state)
{
        int pair[2];

        memset(&t, 0, sizeof t);
        t.connection = (struct json_connection){.received = received, .ended = ended};
        assert_int_equal(loop_new(&t.loop), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        t.peer = pair[1];
        return json_connection_open(&t.connection, t.loop, pair[0], false);
}

static int tear_down(void **state)
{
        json_connection_close(&t.connection);
        json_connection_close(&t.connection);
        close(t.peer);
        loop_free(t.loop);
        return 0;
}

static void run_loop(void)
{
        assert_int_equal(loop_wait(t.loop, 0), 0);
}

static void write_all(const char *text, size_t n)
{
        while (n > 0) {
                ssize_t done = write(t.peer, text, n);

                if (done < 0 && t.ended != 0)
                        return;
                if (done > 0)
                        text += done, n -= (size_t)done;
                run_loop();
        }
        run_loop();
}

TEST_WITH(accepts_lines_in_fragments, set_up, tear_down)
{
        static const char text[] = "{\"n\": 1}\n{\"n\": 20}\n\n{\"n\":\n";

        for (size_t i = 0; i < sizeof text - 2; i++)
                write_all(text + i, 1);
        assert_fields(&t, received, 2, sum, 21, ended, 0);
        /* A line holds a whole object. */
        write_all("\n", 1);
        assert_int_equal(t.ended, -EBADMSG);
}

TEST_WITH(rejects_other_json, set_up, tear_down)
{
        write_all("{\"n\": 1}\n[1]\n{\"n\": 1}\n", 23);
        assert_fields(&t, received, 1, ended, -EBADMSG);
        assert_false(json_connection_is_open(&t.connection));
}

TEST_WITH(closes_in_callback, set_up, tear_down)
{
        t.close_when_received = true;
        write_all("{\"n\": 1}\n{\"n\": 1}\n", 18);
        assert_fields(&t, received, 1, ended, 0);
}

TEST_WITH(reports_end_of_peer, set_up, tear_down)
{
        write_all("{\"n\": 3}\n", 9);
        close(t.peer);
        t.peer = -1;
        run_loop();
        assert_fields(&t, received, 1, ended, -EPIPE);
        /* Sending to an ended connection does nothing. */
        json_connection_send(&t.connection, json_pack("{s:i}", "n", 1));
}

/* The peer's last message arrives even if our own cannot be sent. */
TEST_WITH(reads_before_failed_write, set_up, tear_down)
{
        assert_int_equal(write(t.peer, "{\"n\": 3}\n", 9), 9);
        close(t.peer);
        t.peer = -1;
        json_connection_send(&t.connection, json_pack("{s:i}", "n", 1));
        json_connection_send(&t.connection, json_pack("{s:i}", "n", 2));
        run_loop();
        run_loop();
        assert_fields(&t, received, 1, ended, -EPIPE);
}

/* A peer that never stops sending does not block the loop. */
TEST_WITH(yields_to_the_loop, set_up, tear_down)
{
        t.follow = 1000;
        write_all("{\"n\": 1}\n", 9);
        assert_in_range(t.received, 1, 10);
        while (t.follow > 0)
                run_loop();
        run_loop();
        assert_int_equal(t.received, 1001);
}

/* Tests a line of the maximum length, then one that is a byte longer. */
TEST_WITH(limits_line_length, set_up, tear_down)
{
        size_t n = JSON_CONNECTION_LINE_MAX_BYTES;
        _cleanup_free_ char *text = malloc(n + 1);

        assert_non_null(text);
        memset(text, ' ', n);
        memcpy(text, "{\"n\": 1}", 8);
        text[n - 1] = '\n';
        write_all(text, n);
        assert_int_equal(t.received, 1);
        memset(text, ' ', n + 1);
        write_all(text, n + 1);
        assert_int_equal(t.ended, -EMSGSIZE);
}

TEST_WITH(sends_lines, set_up, tear_down)
{
        char back[64];
        ssize_t n;

        json_connection_send(&t.connection, json_pack("{s:i}", "n", 5));
        n = read(t.peer, back, sizeof back);
        assert_int_equal(n, 8);
        assert_memory_equal(back, "{\"n\":5}\n", 8);
}

/* Messages wait for a slow peer, up to a limit, and arrive in order. */
TEST_WITH(limits_unsent_bytes, set_up, tear_down)
{
        char *long_text = calloc(1, 100001), buffer[65536];
        size_t sent = 0, read_bytes = 0;
        ssize_t n;

        memset(long_text, 'x', 100000);
        for (; sent < 100; sent++)
                json_connection_send(&t.connection, json_pack("{s:s}", "n", long_text));
        assert_int_equal(t.ended, 0);
        while (read_bytes < sent * 100009) {
                while ((n = read(t.peer, buffer, sizeof buffer)) > 0)
                        read_bytes += (size_t)n;
                run_loop();
        }
        assert_int_equal(read_bytes, sent * 100009);
        for (sent = 0; sent < 1000 && t.ended == 0; sent++)
                json_connection_send(&t.connection, json_pack("{s:s}", "n", long_text));
        assert_int_equal(t.ended, -ENOBUFS);
        assert_true(sent > JSON_CONNECTION_UNSENT_MAX_BYTES / 100009);
        free(long_text);
}

/* A peer's text must not move the terminal's cursor or begin a line of a log. */
TEST_WITH(replaces_control_characters, set_up, tear_down)
{
        json_auto_t *value = json_string("a\nb\x1b[2J\tc\x7f d \xc3\xa9"), *none = json_integer(5);
        char text[64], small[4];

        assert_string_equal(json_connection_text(value, text, sizeof text), "a?b?[2J?c? d \xc3\xa9");
        assert_string_equal(json_connection_text(value, small, sizeof small), "a?b");
        assert_string_equal(json_connection_text(none, text, sizeof text), "no reason given");
        assert_string_equal(json_connection_text(NULL, text, sizeof text), "no reason given");
}
