/* Reads and decodes key files, and refuses those that other users can access. */
#include "net/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

#define TEXT_MAX_BYTES (2 * KEY_FILE_MOST_BYTES)

/* systemd protects credentials by the mode of their directory, and opens them to the service's user by an
 * access control list, which looks like group permissions. */
static bool is_credential(const char *path)
{
        const char *directory = getenv("CREDENTIALS_DIRECTORY");
        size_t n = directory ? strlen(directory) : 0;

        return n > 0 && strncmp(path, directory, n) == 0 && path[n] == '/' && !strstr(path + n, "/../");
}

static int check_mode(int fd, const char *path, struct error *e)
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return error_set(e, -errno, "%s: %m", path);
        if (!S_ISREG(st.st_mode))
                return error_set(e, -EINVAL, "%s: not a file; expected one with a key", path);
        if ((st.st_mode & (S_IRWXG | S_IRWXO)) && !is_credential(path))
                return error_set(e, -EINVAL,
                                 "%s: others than its owner may use this key (mode %03o); run chmod 600 %s",
                                 path, (unsigned)st.st_mode & 0777u, path);
        return 0;
}

/* A line of only hexadecimal digits is hexadecimal: base64 of random bytes practically never looks like
 * that. */
static size_t decode(const char *text, size_t n, uint8_t *bytes, size_t size)
{
        static const int variants[] = {sodium_base64_VARIANT_ORIGINAL,
                                       sodium_base64_VARIANT_ORIGINAL_NO_PADDING};
        const char *end = NULL;
        size_t got = 0;

        if (sodium_hex2bin(bytes, size, text, n, NULL, &got, &end) == 0 && end == text + n)
                return got;
        for (size_t i = 0; i < ARRAY_SIZE(variants); i++) {
                if (sodium_base642bin(bytes, size, text, n, NULL, &got, &end, variants[i]) == 0 &&
                    end == text + n)
                        return got;
        }
        return 0;
}

int key_file_read(const char *path, struct auth_key *ret, struct error *e)
{
        /* O_NONBLOCK: opening a pipe without a writer must not block the caller. */
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        uint8_t bytes[KEY_FILE_MOST_BYTES];
        char text[TEXT_MAX_BYTES];
        int r = fd < 0 ? error_set(e, -errno, "%s: %m", path) : check_mode(fd, path, e);
        ssize_t n = r < 0 ? 0 : read(fd, text, sizeof text);
        size_t got;

        if (r < 0)
                return r;
        if (n < 0)
                return error_set(e, -errno, "%s: %m", path);
        while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
                n--;
        got = decode(text, (size_t)n, bytes, sizeof bytes);
        if (got < KEY_FILE_LEAST_BYTES)
                r = error_set(e, -EINVAL,
                              "%s: not a key; expected one line with at least %d random bytes in base64 or "
                              "hexadecimal digits, as head -c %d /dev/urandom | base64 -w 0 makes it",
                              path, KEY_FILE_LEAST_BYTES, KEY_FILE_LEAST_BYTES);
        else if (auth_key_init(ret, bytes, got) < 0)
                r = error_set(e, -ENOSYS, "libsodium does not work on this machine");
        sodium_memzero(bytes, sizeof bytes);
        sodium_memzero(text, sizeof text);
        return r;
}

/* Reads and compares tokens. */

int token_file_read(const char *path, char token[static TOKEN_MAX_BYTES + 1], struct error *e)
{
        /* O_NONBLOCK: opening a pipe without a writer must not block the caller. */
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        char text[TOKEN_MAX_BYTES + 2];
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        size_t length;

        if (n < 0)
                return error_set(e, -errno, "%s: %m", path);
        text[n] = '\0';
        length = strcspn(text, "\r\n");
        text[length] = '\0';
        for (size_t i = 0; i < length; i++) {
                if (text[i] <= ' ' || text[i] > '~')
                        length = 0;
        }
        if (length < TOKEN_LEAST_BYTES || length > TOKEN_MAX_BYTES)
                return error_set(e, -EINVAL,
                                 "%s: its first line is not a token; expected %d to %d printable characters "
                                 "without blanks",
                                 path, TOKEN_LEAST_BYTES, TOKEN_MAX_BYTES);
        memcpy(token, text, length + 1);
        return 0;
}

bool token_equal(const char *token, const char *other)
{
        size_t n = strlen(token), m = strlen(other);
        unsigned char difference = n != m;

        /* The number of steps depends only on the length of the other token, which its sender knows
         * anyway. */
        for (size_t i = 0; i < m; i++)
                difference |= (unsigned char)(other[i] ^ token[n > 0 ? i % n : 0]);
        return difference == 0;
}
