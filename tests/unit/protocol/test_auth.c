/* Tags, hellos, windows and lines: whatever is changed, repeated or redirected is refused. */
#include "../test.h"

#include <stdio.h>

#include "protocol/auth.h"

#define TEXT "a message of 27 bytes length"
#define TEXT_BYTES (sizeof TEXT - 1)

static struct auth_key key, other;

static int set_up(void **state)
{
        assert_int_equal(auth_key_init(&key, (const uint8_t *)"some bytes", 10), 0);
        return auth_key_init(&other, (const uint8_t *)"some byteS", 10);
}

TEST(purposes_have_different_keys)
{
        struct auth_key made[4];

        for (int i = 0; i < 3; i++)
                auth_derive(&made[i], &key, (enum auth_purpose)(AUTH_CONTROL + i));
        auth_derive(&made[3], &other, AUTH_CONTROL);
        for (int i = 0; i < 4; i++) {
                assert_memory_not_equal(made[i].bytes, key.bytes, sizeof key.bytes);
                for (int k = 0; k < i; k++)
                        assert_memory_not_equal(made[i].bytes, made[k].bytes, sizeof key.bytes);
        }
        /* The same on every machine. */
        auth_derive(&made[1], &key, AUTH_CONTROL);
        assert_memory_equal(made[0].bytes, made[1].bytes, sizeof key.bytes);
}

TEST(a_changed_message_is_refused)
{
        static const struct auth_trailer sent = {.session = 77, .number = 12345678901, .to = 0x2003};
        uint8_t bytes[TEXT_BYTES + AUTH_TRAILER_BYTES] = TEXT;
        struct auth_trailer got;

        assert_int_equal(auth_seal(&key, bytes, TEXT_BYTES, &sent), sizeof bytes);
        assert_true(auth_open(&key, bytes, sizeof bytes, &got));
        assert_fields(&got, session, sent.session, number, sent.number, to, sent.to);
        assert_false(auth_open(&other, bytes, sizeof bytes, &got));
        for (size_t i = 0; i < 8 * sizeof bytes; i++) {
                bytes[i / 8] ^= (uint8_t)(1u << i % 8);
                assert_false(auth_open(&key, bytes, sizeof bytes, &got));
                bytes[i / 8] ^= (uint8_t)(1u << i % 8);
        }
        for (size_t n = 0; n < sizeof bytes; n++)
                assert_false(auth_open(&key, bytes, n, &got));
        assert_true(auth_open(&key, bytes, sizeof bytes, &got));
}

/* The vectors of SipHash's authors are in libsodium's own tests; this one holds the layout. */
TEST(the_layout_is_that_of_the_document)
{
        static const uint8_t expected[] = {8, 7, 6, 5, 4, 3, 2, 1, 6, 5, 4, 3, 2, 1, 1, 0x20};
        uint8_t bytes[TEXT_BYTES + AUTH_TRAILER_BYTES] = TEXT;

        auth_seal(&key, bytes, TEXT_BYTES,
                  &(struct auth_trailer){
                          .session = 0x0102030405060708, .number = 0x010203040506, .to = AUTH_NODE(2, 1)});
        assert_memory_equal(bytes + TEXT_BYTES, expected, sizeof expected);
}

TEST(a_changed_hello_is_refused)
{
        static const struct auth_hello sent = {.from = 0x1000,
                                               .to = 0x2001,
                                               .session = 1,
                                               .challenge = 2,
                                               .answer = 3,
                                               .next = 4,
                                               .group_next = UINT64_MAX};
        uint8_t bytes[AUTH_HELLO_BYTES + 1];
        struct auth_hello got;

        auth_hello_encode(&key, &sent, bytes);
        assert_true(auth_is_hello(bytes, AUTH_HELLO_BYTES));
        assert_false(auth_is_hello(bytes, AUTH_HELLO_BYTES - 1));
        assert_false(auth_is_hello(bytes, AUTH_HELLO_BYTES + 1));
        assert_true(auth_hello_decode(&key, bytes, &got));
        assert_fields(&got, from, sent.from, to, sent.to);
        /* The other members follow each other without gaps. */
        assert_memory_equal(&got.session, &sent.session, sizeof got - offsetof(struct auth_hello, session));
        assert_false(auth_hello_decode(&other, bytes, &got));
        for (size_t i = 0; i < 8 * AUTH_HELLO_BYTES; i++) {
                bytes[i / 8] ^= (uint8_t)(1u << i % 8);
                assert_false(auth_hello_decode(&key, bytes, &got));
                bytes[i / 8] ^= (uint8_t)(1u << i % 8);
        }
}

TEST(each_number_counts_once)
{
        struct auth_window w = {};

        auth_window_begin(&w, 5000);
        for (uint64_t i = 0; i < 5000; i += 7)
                assert_false(auth_window_accept(&w, i));
        assert_true(auth_window_accept(&w, 5000));
        assert_false(auth_window_accept(&w, 5000));
        /* Overtaken ones count, as far as the window reaches. */
        assert_true(auth_window_accept(&w, 5000 + AUTH_WINDOW));
        assert_false(auth_window_accept(&w, 5000));
        for (uint64_t i = 5001; i < 5000 + AUTH_WINDOW; i++)
                assert_true(auth_window_accept(&w, i));
        for (uint64_t i = 0; i <= 5000 + AUTH_WINDOW; i++)
                assert_false(auth_window_accept(&w, i));
        /* Any jump ahead, and what it leaves behind. */
        assert_true(auth_window_accept(&w, UINT64_C(1) << 47));
        assert_false(auth_window_accept(&w, 5001 + AUTH_WINDOW));
        assert_true(auth_window_accept(&w, (UINT64_C(1) << 47) - AUTH_WINDOW + 1));
        assert_false(auth_window_accept(&w, (UINT64_C(1) << 47) - AUTH_WINDOW));
        assert_false(auth_window_accept(&w, UINT64_C(1) << 47));
}

struct ends {
        struct auth_line dialer, acceptor;
};

static void begin(struct ends *e, const struct auth_key *dialers, uint8_t first, uint8_t second)
{
        uint8_t a[AUTH_NONCE_BYTES] = {first}, b[AUTH_NONCE_BYTES] = {second};

        auth_line_begin(&e->dialer, dialers, true, a, b);
        auth_line_begin(&e->acceptor, &key, false, b, a);
}

static size_t make_line(struct auth_line *l, const char *text, char *line)
{
        char tag[AUTH_LINE_TEXT_BYTES];

        auth_line_seal(l, text, strlen(text), tag);
        return (size_t)sprintf(line, "%s %s", tag, text);
}

TEST(lines_count_in_their_place_alone)
{
        struct ends e, later;
        char first[100], second[100], back[100];
        size_t n, m, k;

        begin(&e, &key, 1, 2);
        n = make_line(&e.dialer, "{\"a\":1}", first);
        m = make_line(&e.dialer, "{\"a\":2}", second);
        /* Not before the first one, and not twice. */
        assert_null(auth_line_open(&e.acceptor, second, m));
        assert_string_equal(auth_line_open(&e.acceptor, first, n), "{\"a\":1}");
        assert_null(auth_line_open(&e.acceptor, first, n));
        assert_string_equal(auth_line_open(&e.acceptor, second, m), "{\"a\":2}");
        /* Not in the other direction. */
        assert_null(auth_line_open(&e.dialer, first, n));
        k = make_line(&e.acceptor, "{\"b\":1}", back);
        assert_null(auth_line_open(&e.acceptor, back, k));
        assert_non_null(auth_line_open(&e.dialer, back, k));
        /* Not on another connection, of which either nonce differs, or with another key. */
        begin(&later, &key, 1, 3);
        assert_null(auth_line_open(&later.acceptor, first, n));
        begin(&later, &key, 3, 2);
        assert_null(auth_line_open(&later.acceptor, first, n));
        begin(&later, &other, 1, 2);
        n = make_line(&later.dialer, "{\"a\":1}", first);
        assert_null(auth_line_open(&later.acceptor, first, n));
}

TEST(changed_lines_are_refused)
{
        struct ends e;
        char line[100];
        size_t n;

        begin(&e, &key, 1, 2);
        n = make_line(&e.dialer, "{}", line);
        for (size_t i = 0; i < n; i++) {
                line[i] ^= 1;
                assert_null(auth_line_open(&e.acceptor, line, n));
                line[i] ^= 1;
                assert_null(auth_line_open(&e.acceptor, line, i));
        }
        assert_non_null(auth_line_open(&e.acceptor, line, n));
}

TEST(nonces_have_32_digits)
{
        static const char *const wrong[] = {"", "00", "0123456789abcdef0123456789abcde",
                                            "0123456789abcdef0123456789abcdeg",
                                            "0123456789abcdef0123456789abcdef0"};
        uint8_t nonce[AUTH_NONCE_BYTES];
        char text[AUTH_LINE_TEXT_BYTES];

        assert_true(auth_nonce_parse(nonce, "0123456789abcdef0123456789ABCDEF"));
        auth_nonce_format(nonce, text);
        assert_string_equal(text, "0123456789abcdef0123456789abcdef");
        assert_false(auth_nonce_parse(nonce, NULL));
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
                assert_false(auth_nonce_parse(nonce, wrong[i]));
}

TESTS_BETWEEN(set_up, NULL)
