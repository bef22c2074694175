/* Runs paths on a kernel that lacks something, as an old one or a container does: seccomp(2) makes single
 * system calls fail, for a child of the test. Each refusal is named, and every run ends. */
#include "../test.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stream/paths.h"

#define FILE_BYTES (1u << 20)
#define PAYLOAD 1024u
#define SKIPPED 255
/* The bit by which O_TMPFILE differs from O_DIRECTORY. */
#define NAMELESS (O_TMPFILE & ~O_DIRECTORY)

/* In a child: returns the line of what is not as it should be; an exit status has 8 bits. */
#define EXPECT(condition)                                                                                    \
        do {                                                                                                 \
                if (!(condition))                                                                            \
                        return __LINE__ % 250 + 1;                                                           \
        } while (0)

/* The call that fails: if its argument has this value, or one of these bits. */
struct refusal {
        int call, argument; /* -1: whatever its arguments are */
        uint16_t comparison;
        uint32_t value;
        int error;
};

static bool refuse(const struct refusal *r)
{
        uint32_t argument = (uint32_t)offsetof(struct seccomp_data, args[r->argument < 0 ? 0 : r->argument]);
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)r->call, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument),
                BPF_JUMP(BPF_JMP | (r->argument < 0 ? BPF_JGE : r->comparison) | BPF_K, r->value, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)r->error),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {ARRAY_SIZE(filter), filter};

        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
               prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Calls `run` where the kernel refuses a call. */
static void with_refusal(const struct refusal *r, int (*run)(void))
{
        pid_t child = fork();
        int status = 0;

        if (child == 0)
                _exit(refuse(r) ? run() : SKIPPED);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
                print_message("this kernel has no seccomp filters\n");
                skip();
        }
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) != 0)
                fail_msg("with errno %d of call %d: line %d (modulo 250)", r->error, r->call,
                         WEXITSTATUS(status) - 1);
}

static struct path_result run(unsigned row, enum path_wire wire, enum path_source source)
{
        bool want[PATH_SOURCES] = {source == PATH_CACHE, source == PATH_DISK};
        struct path_run r = {.path = path_find(row, 0),
                             .wire = wire,
                             .source = source,
                             .payload_bytes = PAYLOAD,
                             .seconds = 0.1,
                             .check_bytes = FILE_BYTES};
        struct path_file *file = NULL;
        struct path_result result = {.refused = "nothing was run"};
        struct error e = {};

        if (path_file_new(&file, "/var/tmp", FILE_BYTES, want, &e) < 0 ||
            path_run(&r, file, NULL, &result, &e) < 0)
                result.refused = "failed";
        path_file_free(file);
        return result;
}

static int is_refused(const struct path_result *r, const char *what, int error)
{
        EXPECT(r->refused);
        EXPECT(strcmp(r->refused, what) == 0);
        EXPECT(r->refusal == -error);
        EXPECT(r->bytes == 0 && r->checked_bytes == 0 && !r->counted);
        return 0;
}

static int run_ring(void)
{
        struct path_result r = run(13, PATH_UDP, PATH_CACHE);

        return is_refused(&r, "io_uring_setup", ENOSYS);
}

static int run_zero_copy(void)
{
        struct path_result r = run(10, PATH_TCP, PATH_CACHE);

        return is_refused(&r, "setsockopt SO_ZEROCOPY", ENOPROTOOPT);
}

/* A process that may lock too little memory. */
static int run_locked(void)
{
        struct path_result r = run(10, PATH_UDP, PATH_CACHE);

        return is_refused(&r, "sendmsg with MSG_ZEROCOPY", ENOBUFS);
}

static int run_pipe(void)
{
        struct path_result r = run(12, PATH_TCP, PATH_CACHE);

        return is_refused(&r, "fcntl F_SETPIPE_SZ", EPERM);
}

/* The check is made over UDP, and succeeds. */
static int run_sink(void)
{
        struct path_result r = run(4, PATH_SINK, PATH_CACHE);

        return is_refused(&r, "unshare of a network namespace", EPERM);
}

static int run_direct(void)
{
        struct path_result r = run(1, PATH_UDP, PATH_DISK);

        return is_refused(&r, "open with O_DIRECT", EINVAL);
}

/* As tmpfs does, which has no other place for a file. */
static int run_kept(void)
{
        struct path_result r = run(2, PATH_UDP, PATH_DISK);

        return is_refused(&r, "empty the page cache", EOPNOTSUPP);
}

TEST(each_refusal_is_named)
{
        static const struct {
                struct refusal refusal;
                int (*run)(void);
        } cases[] = {
                {{SYS_io_uring_setup, -1, 0, 0, ENOSYS}, run_ring},
                {{SYS_setsockopt, 2, BPF_JEQ, SO_ZEROCOPY, ENOPROTOOPT}, run_zero_copy},
                {{SYS_sendmsg, 2, BPF_JSET, MSG_ZEROCOPY, ENOBUFS}, run_locked},
                {{SYS_fcntl, 1, BPF_JEQ, F_SETPIPE_SZ, EPERM}, run_pipe},
                {{SYS_unshare, -1, 0, 0, EPERM}, run_sink},
                {{SYS_openat, 2, BPF_JSET, O_DIRECT, EINVAL}, run_direct},
                {{SYS_fadvise64, -1, 0, 0, EINVAL}, run_kept},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
                with_refusal(&cases[i].refusal, cases[i].run);
}

/* Everything is measured, only the calls are unknown. */
static int run_untraced(int error)
{
        struct path_result r = run(4, PATH_UDP, PATH_CACHE);

        EXPECT(!r.refused);
        EXPECT(r.intact && r.checked_bytes == FILE_BYTES);
        EXPECT(r.bytes >= PAYLOAD && r.seconds > 0);
        EXPECT(!r.counted && r.calls == 0);
        EXPECT(r.not_counted == -error);
        return 0;
}

static int run_without_tracing(void)
{
        return run_untraced(EPERM);
}

static int run_without_information(void)
{
        return run_untraced(EIO);
}

TEST(calls_may_be_unknown)
{
        static const struct refusal none = {SYS_ptrace, 0, BPF_JEQ, PTRACE_SEIZE, EPERM},
                                    before_5_3 = {SYS_ptrace, 0, BPF_JEQ, PTRACE_GET_SYSCALL_INFO, EIO};

        with_refusal(&none, run_without_tracing);
        with_refusal(&before_5_3, run_without_information);
}

static int fill_disk(void)
{
        static const bool want[PATH_SOURCES] = {true, true};
        struct path_file *f = NULL;
        struct error e = {};

        EXPECT(path_file_new(&f, "/var/tmp", FILE_BYTES, want, &e) == -ENOSPC);
        EXPECT(!f && strcmp(e.location, "/var/tmp") == 0);
        EXPECT(strcmp(e.message, "cannot write the file: No space left on device") == 0);
        return 0;
}

TEST(a_disk_that_fills_up_is_an_error)
{
        static const struct refusal full = {SYS_pwrite64, -1, 0, 0, ENOSPC};

        with_refusal(&full, fill_disk);
}

/* Without O_TMPFILE, a file has a name for a moment only: it can be made where nothing can be left. */
static int make_named(void)
{
        static const bool want[PATH_SOURCES] = {true, true};
        char directory[] = "/var/tmp/evb-test-XXXXXX";
        struct path_file *f = NULL;
        struct error e = {};
        int r;

        EXPECT(mkdtemp(directory));
        r = path_file_new(&f, directory, FILE_BYTES, want, &e);
        EXPECT(rmdir(directory) == 0);
        EXPECT(r == 0);
        path_file_free(f);
        return 0;
}

TEST(a_file_needs_no_support_for_nameless_files)
{
        static const struct refusal named = {SYS_openat, 2, BPF_JSET, NAMELESS, EOPNOTSUPP};

        with_refusal(&named, make_named);
}
