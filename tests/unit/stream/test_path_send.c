/* Tests all paths with a file that became shorter: each ends with an error, at once, and names the call. */
#include "../test.h"

#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pattern.h"
#include "base/util.h"
#include "sys/loop.h"
#include "stream/paths/path_internal.h"

#define FILE_BYTES (64u << 10)
#define LEFT_BYTES (8192u + 100)
#define PAYLOAD 1024u
#define ALL_WELL 99

static int file;

static int make_file(void **state)
{
        uint8_t bytes[LEFT_BYTES];
        FILE *f = tmpfile();

        if (!f)
                return -1;
        pattern_fill(pattern_key(0, 0, 0), bytes, 0, sizeof bytes);
        file = dup(fileno(f));
        fclose(f);
        return write(file, bytes, sizeof bytes) == sizeof bytes ? 0 : -1;
}

static int close_file(void **state)
{
        close(file);
        return 0;
}

/* Sends in a child: after an error, what the kernel may hold is kept until the process ends. */
static int send_short(const struct path *p, enum path_wire wire)
{
        struct path_link link;
        struct path_sender s = {.path = p,
                                .wire = wire,
                                .file = file,
                                .file_bytes = FILE_BYTES,
                                .size_bytes = FILE_BYTES,
                                .payload_bytes = PAYLOAD,
                                .deadline_ns = NEVER_NS};
        int r;

        if (path_link_open(&link, wire) < 0)
                return ENOTCONN;
        s.socket = link.sender;
        r = p->send(&s);
        return r >= 0 ? ALL_WELL : s.what ? -r : 0;
}

TEST(a_shorter_file_ends_a_path)
{
        for (size_t i = 0; i < path_count() * 2; i++) {
                const struct path *p = path_at(i / 2);
                pid_t child = fork();
                int status = 0;

                if (child == 0) {
                        alarm(30);
                        _exit(send_short(p, i % 2));
                }
                assert_int_equal(waitpid(child, &status, 0), child);
                if (!WIFEXITED(status))
                        fail_msg("%s %s, %s: signal %d", p->row, p->form, path_wire_name(i % 2),
                                 WTERMSIG(status));
                /* A buffer that is not filled, or pages that are not there. An io_uring may be missing. */
                if (WEXITSTATUS(status) != EIO && WEXITSTATUS(status) != EFAULT &&
                    (strcmp(p->form, "io_uring") != 0 || WEXITSTATUS(status) == ALL_WELL))
                        fail_msg("%s %s, %s: %d", p->row, p->form, path_wire_name(i % 2),
                                 WEXITSTATUS(status));
        }
}

TESTS_BETWEEN(make_file, close_file)
