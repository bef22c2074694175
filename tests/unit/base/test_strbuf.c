/* Text in an array of fixed size: always terminated, cut if full, with the flag set. */
#include "../test.h"

#include "base/strbuf.h"

TEST(text_is_added)
{
        char text[16];
        struct strbuf b = strbuf_init(text, sizeof text);

        assert_string_equal(text, "");
        strbuf_add(&b, "%d", 12);
        strbuf_add(&b, "%s", "");
        strbuf_add(&b, "-%c%s", 'x', "yz");
        assert_string_equal(text, "12-xyz");
        assert_ptr_equal(b.text, text);
        assert_int_equal(b.length, 6);
        assert_false(b.cut);
}

/* Tests every length around the end of the array; the byte behind it must not change. */
TEST_EACH(full_is_cut, n, 12)
{
        char text[9];

        text[8] = '!';
        struct strbuf b = strbuf_init(text, 8);

        strbuf_add(&b, "ab");
        strbuf_add(&b, "%.*s", n, "0123456789012");
        assert_fields(&b, cut, n > 5, length, n > 5 ? 7 : 2 + n);
        assert_int_equal(strlen(text), b.length);
        assert_memory_equal(text, "ab01234", b.length);
        assert_int_equal(text[8], '!');
}

TEST(truncated_fragments_stay_truncated)
{
        char text[4], smallest[1];
        struct strbuf b = strbuf_init(text, sizeof text), none = strbuf_init(smallest, sizeof smallest);

        strbuf_add(&b, "abcd");
        strbuf_add(&b, "%s", "");
        strbuf_add(&b, "e");
        assert_string_equal(text, "abc");
        assert_true(b.cut && b.length == 3);
        strbuf_add(&none, "%s", "");
        assert_false(none.cut);
        strbuf_add(&none, "x");
        assert_string_equal(smallest, "");
        assert_true(none.cut && none.length == 0);
}

TEST(control_characters_are_replaced)
{
        char text[] = "\033[2Ja\n\r\t\x7f"
                      "\302\233b\303\244\302\240";

        assert_ptr_equal(text_make_printable(text), text);
        assert_string_equal(text, "?[2Ja??????b\303\244\302\240");
        assert_null(text_make_printable(NULL));
}

/* A text of another node may be invalid, or was cut within a character. */
TEST(printable_text_is_valid_utf8)
{
        static const struct {
                const char *text, *printable;
        } cases[] = {
                {"a\303\244", "a\303\244"},
                {"a\303", "a?"},
                {"\342\202\254\342\202", "\342\202\254??"},
                {"\360\237\230\200\360\237\230", "\360\237\230\200???"},
                {"\303a\200\377", "?a??"},
                {"\355\240\200\300\200\364\220\200\200", "?????????"},
                {"x\342\200\256y\342\201\247z\342\200\223", "x???y???z\342\200\223"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                char text[32];

                strcpy(text, cases[i].text);
                assert_string_equal(text_make_printable(text), cases[i].printable);
                assert_true(text_is_utf8(text));
        }
        assert_false(text_is_utf8("\303"));
}

TEST(texts_differ_in_letters)
{
        static const struct {
                const char *a, *b;
                unsigned distance;
        } cases[] = {
                {"", "", 0},
                {"run", "run", 0},
                {"run", "rnu", 1},
                {"run", "ru", 1},
                {"run", "runs", 1},
                {"run", "ran", 1},
                {"run", "ros", 2},
                {"abc", "", 3},
                {"abcd", "", UINT32_MAX},
                {"abcd", "efgh", UINT32_MAX},
                {"status", "statsu", 1},
                {"abcd", "badc", 2},
                {"ros.cuont", "ros.count", 1},
                {"abcdef", "abc", 3},
        };
        char longest[200];

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                assert_int_equal(text_distance(cases[i].a, cases[i].b), cases[i].distance);
                assert_int_equal(text_distance(cases[i].b, cases[i].a), cases[i].distance);
        }
        memset(longest, 'x', sizeof longest - 1);
        longest[sizeof longest - 1] = '\0';
        assert_int_equal(text_distance(longest, longest), UINT32_MAX);
}
