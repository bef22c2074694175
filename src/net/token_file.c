/* Reads and compares tokens. */
#include "net/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

int token_file_read(const char *path, char token[static TOKEN_MAX_BYTES + 1], struct error *e)
{
        /* A pipe that nobody writes to must not hold the caller up. */
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

        /* As many steps as the other one has characters: its sender knows their number. */
        for (size_t i = 0; i < m; i++)
                difference |= (unsigned char)(other[i] ^ token[n > 0 ? i % n : 0]);
        return difference == 0;
}
