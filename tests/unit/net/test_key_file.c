/* Files with keys or tokens: what they may hold, and who may read them. */
#include "../test.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/key_file.h"

#define HEX "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define BASE64 "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

#define TOKEN "0123456789abcdef"

static char path[64], token[TOKEN_MAX_BYTES + 1];
static struct error e;
static struct auth_key key;

static void write_text(const char *text, size_t n, mode_t mode)
{
        int fd;

        strcpy(path, "/tmp/evb-key-XXXXXX");
        fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, n), (ssize_t)n);
        assert_int_equal(fchmod(fd, mode), 0);
        close(fd);
        e = (struct error){};
}

static int read_text(const char *text, mode_t mode)
{
        int r;

        write_text(text, strlen(text), mode);
        r = key_file_read(path, &key, &e);
        unlink(path);
        return r;
}

static int read_token(const char *text, size_t n)
{
        int r;

        write_text(text, n, 0600);
        r = token_file_read(path, token, &e);
        unlink(path);
        return r;
}

TEST(all_forms_are_one_key)
{
        static const char *const texts[] = {HEX "\n", HEX, BASE64 "\n", BASE64 "\r\n",
                                            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n"};
        struct auth_key expected;
        uint8_t bytes[32];

        for (size_t i = 0; i < sizeof bytes; i++)
                bytes[i] = (uint8_t)i;
        assert_int_equal(auth_key_init(&expected, bytes, sizeof bytes), 0);
        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                assert_int_equal(read_text(texts[i], 0600), 0);
                assert_memory_equal(key.bytes, expected.bytes, sizeof key.bytes);
        }
        /* All bytes count, not the first 32. */
        assert_int_equal(read_text(HEX "20\n", 0400), 0);
        assert_memory_not_equal(key.bytes, expected.bytes, sizeof key.bytes);
}

static const char *const refused_texts[] = {
        "",
        "\n",
        "secret\n",
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e\n",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==\n",
        "# a comment\n" HEX "\n",
        HEX "\n" HEX "\n",
        HEX " \n",
        BASE64 "!\n"};

TEST_EACH(other_files_are_refused, i, ARRAY_SIZE(refused_texts))
{
        assert_int_equal(read_text(refused_texts[i], 0600), -EINVAL);
        assert_non_null(strstr(e.message, "at least 32 random bytes"));
        assert_non_null(strstr(e.message, path));
}

TEST(a_file_that_others_may_use_is_refused)
{
        static const mode_t modes[] = {0640, 0604, 0620, 0602, 0644, 0666};

        for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
                assert_int_equal(read_text(HEX "\n", modes[i]), -EINVAL);
                assert_non_null(strstr(e.message, "run chmod 600 /tmp/evb-key-"));
        }
        /* systemd opens a credential by an access control list, which shows as a mode of the group. */
        assert_int_equal(setenv("CREDENTIALS_DIRECTORY", "/tmp", 1), 0);
        assert_int_equal(read_text(HEX "\n", 0440), 0);
        assert_int_equal(setenv("CREDENTIALS_DIRECTORY", "/tmp/other", 1), 0);
        assert_int_equal(read_text(HEX "\n", 0440), -EINVAL);
        assert_int_equal(unsetenv("CREDENTIALS_DIRECTORY"), 0);
}

TEST(what_is_not_a_file_is_refused)
{
        char fifo[] = "/tmp/evb-key-fifo-XXXXXX";

        assert_int_equal(key_file_read("/tmp", &key, &e), -EINVAL);
        assert_int_equal(token_file_read("/tmp", token, &e), -EISDIR);
        assert_int_equal(key_file_read("/tmp/evb-there-is-none", &key, &e), -ENOENT);
        assert_int_equal(token_file_read("/tmp/evb-there-is-none", token, &e), -ENOENT);
        /* A pipe without a writer would hold the program up. */
        assert_non_null(mkdtemp(fifo));
        assert_int_equal(rmdir(fifo), 0);
        assert_int_equal(mkfifo(fifo, 0600), 0);
        assert_int_equal(key_file_read(fifo, &key, &e), -EINVAL);
        assert_int_equal(token_file_read(fifo, token, &e), -EINVAL);
        unlink(fifo);
}

static const char *const token_texts[] = {TOKEN, TOKEN "\n", TOKEN "\r\nmore\n"};

TEST_EACH(the_first_line_is_the_token, i, ARRAY_SIZE(token_texts))
{
        assert_int_equal(read_token(token_texts[i], strlen(token_texts[i])), 0);
        assert_string_equal(token, TOKEN);
}

TEST(files_without_a_token_are_refused)
{
        static const char *const texts[] = {"",           "\n" TOKEN, "0123456789abcde", "0123456789 abcdef",
                                            TOKEN "\xff", "\t" TOKEN};
        char longest[TOKEN_MAX_BYTES + 2];

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                assert_int_equal(read_token(texts[i], strlen(texts[i])), -EINVAL);
                assert_non_null(strstr(e.message, "16 to 128 printable characters"));
        }
        assert_int_equal(read_token(TOKEN "\0more", sizeof TOKEN + 4), 0);
        memset(longest, 'x', sizeof longest);
        assert_int_equal(read_token(longest, TOKEN_MAX_BYTES), 0);
        assert_int_equal(read_token(longest, TOKEN_MAX_BYTES + 1), -EINVAL);
}

TEST(tokens_are_compared_as_a_whole)
{
        assert_true(token_equal(TOKEN, TOKEN));
        assert_false(token_equal(TOKEN, ""));
        assert_false(token_equal(TOKEN, "0123456789abcdeg"));
        assert_false(token_equal(TOKEN, "1123456789abcdef"));
        assert_false(token_equal(TOKEN, "0123456789abcde"));
        assert_false(token_equal(TOKEN, TOKEN TOKEN));
        assert_false(token_equal("", "x"));
}
