/* Files with a token: what they may hold. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "net/key_file.h"

#define TOKEN "0123456789abcdef"

static char path[64], token[TOKEN_MAX_BYTES + 1];
static struct error e;

static int read_text(const char *text, size_t n)
{
        int fd, r;

        strcpy(path, "/tmp/evb-token-XXXXXX");
        fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, n), (ssize_t)n);
        close(fd);
        e = (struct error){};
        r = token_file_read(path, token, &e);
        unlink(path);
        return r;
}

TEST(the_first_line_is_the_token)
{
        static const char *const texts[] = {TOKEN, TOKEN "\n", TOKEN "\r\nmore\n"};

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                assert_int_equal(read_text(texts[i], strlen(texts[i])), 0);
                assert_string_equal(token, TOKEN);
        }
}

TEST(other_files_are_refused)
{
        static const char *const texts[] = {"",           "\n" TOKEN, "0123456789abcde", "0123456789 abcdef",
                                            TOKEN "\xff", "\t" TOKEN};
        char longest[TOKEN_MAX_BYTES + 2];

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                assert_int_equal(read_text(texts[i], strlen(texts[i])), -EINVAL);
                assert_non_null(strstr(e.message, "16 to 128 printable characters"));
        }
        assert_int_equal(read_text(TOKEN "\0more", sizeof TOKEN + 4), 0);
        memset(longest, 'x', sizeof longest);
        assert_int_equal(read_text(longest, TOKEN_MAX_BYTES), 0);
        assert_int_equal(read_text(longest, TOKEN_MAX_BYTES + 1), -EINVAL);
        assert_int_equal(token_file_read("/tmp/evb-no-such-token", token, &e), -ENOENT);
        assert_int_equal(token_file_read("/tmp", token, &e), -EISDIR);
}

/* A pipe without a writer would hold the program up. */
TEST(a_pipe_is_no_wait)
{
        strcpy(path, "/tmp/evb-token-fifo-XXXXXX");
        close(mkstemp(path));
        unlink(path);
        assert_int_equal(mkfifo(path, 0600), 0);
        assert_int_equal(token_file_read(path, token, &e), -EINVAL);
        unlink(path);
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
