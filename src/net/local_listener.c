/* Opens a Unix socket at a path, where a process that crashed may have left its socket. */
#include "net/local_listener.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

/* Maximum number of connections that wait to be accepted. */
#define BACKLOG 64

static int make_address(struct sockaddr_un *ret, const char *path, struct error *e)
{
        *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
        if (strlen(path) >= sizeof ret->sun_path)
                return error_set(e, -ENAMETOOLONG,
                                 "path is too long for a socket; expected at most %zu bytes",
                                 sizeof ret->sun_path - 1);
        strcpy(ret->sun_path, path);
        return 0;
}

/* Fails if a process listens at the socket; a suspended or busy one counts, too. */
static int probe(const struct sockaddr_un *a, struct error *e)
{
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return error_set(e, -errno, "cannot open a socket: %m");
        if (connect(fd, (const struct sockaddr *)a, sizeof *a) == 0 || errno == EAGAIN)
                return error_set(e, -EADDRINUSE,
                                 "another process listens at this socket; is this node running already?");
        if (errno != ECONNREFUSED && errno != ENOENT)
                return error_set(e, -errno, "cannot use the existing socket: %m");
        return 0;
}

/* 0: there is no file; 1: a stale socket. */
static int look(const struct sockaddr_un *a, struct error *e)
{
        struct stat st;
        int r;

        if (lstat(a->sun_path, &st) < 0)
                return errno == ENOENT ? 0 : error_set(e, -errno, "cannot look at the socket: %m");
        if (!S_ISSOCK(st.st_mode))
                return error_set(e, -EEXIST,
                                 "a file that is not a socket is in the way; expected another "
                                 "path, or no file");
        r = probe(a, e);
        return r < 0 ? r : 1;
}

/* The directory of the socket, for access(2). */
static const char *directory_of(const struct sockaddr_un *a, char text[static sizeof a->sun_path])
{
        char *slash;

        strcpy(text, a->sun_path);
        slash = strrchr(text, '/');
        if (!slash)
                return ".";
        slash[slash == text] = '\0';
        return text;
}

int local_listener_check(const char *path, struct error *e)
{
        char directory[sizeof((struct sockaddr_un){}).sun_path];
        struct sockaddr_un a;
        int r = make_address(&a, path, e);

        if (r >= 0)
                r = look(&a, e);
        if (r >= 0 && access(directory_of(&a, directory), W_OK | X_OK) < 0)
                r = error_set(e, -errno,
                              "cannot make a socket in its directory: %m; it must exist and be writable");
        return r < 0 ? r : 0;
}

int local_listener_open(struct local_listener *ret, const char *path, struct error *e)
{
        _cleanup_close_ int fd = -1;
        struct sockaddr_un a;
        struct stat st;
        int r = make_address(&a, path, e);

        if (r >= 0)
                r = look(&a, e);
        if (r < 0)
                return r;
        if (r > 0 && unlink(path) < 0 && errno != ENOENT)
                return error_set(e, -errno, "cannot remove the socket of an earlier process: %m");
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, (const struct sockaddr *)&a, sizeof a) < 0 || lstat(path, &st) < 0 ||
            listen(fd, BACKLOG) < 0)
                return error_set(e, -errno,
                                 "cannot make the socket: %m; is its directory there and writable?");
        *ret = (struct local_listener){.fd = take_fd(&fd), .device = st.st_dev, .inode = st.st_ino};
        strcpy(ret->path, path);
        return 0;
}

int local_listener_node_error(int error)
{
        return error == -EACCES || error == -EPERM || error == -EROFS || error == -ENAMETOOLONG ? -EINVAL
                                                                                                : error;
}

void local_listener_close(struct local_listener *l)
{
        struct stat st;

        if (!l || l->fd < 0)
                return;
        if (lstat(l->path, &st) == 0 && st.st_dev == l->device && st.st_ino == l->inode)
                unlink(l->path);
        close(take_fd(&l->fd));
}
