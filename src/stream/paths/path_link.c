/* Opens a pair of connected sockets on the loopback device. */
#include "path_link.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"

/* A burst of the sender that the receiver's next turn has to empty. */
#define RECEIVE_BUFFER_BYTES (8 << 20)

static int open_receiver(enum path_wire wire, struct sockaddr_in *ret)
{
        _cleanup_close_ int fd =
                socket(AF_INET, (wire == PATH_TCP ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
        socklen_t size = sizeof *ret;
        int bytes = RECEIVE_BUFFER_BYTES;

        *ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        if (fd < 0)
                return -errno;
        /* TCP sizes its buffers itself. */
        if (wire == PATH_UDP && setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0)
                (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
        if (bind(fd, (struct sockaddr *)ret, size) < 0 || getsockname(fd, (struct sockaddr *)ret, &size) < 0)
                return -errno;
        if (wire == PATH_TCP && listen(fd, 1) < 0)
                return -errno;
        return take_fd(&fd);
}

static int open_sender(enum path_wire wire, const struct sockaddr_in *to)
{
        _cleanup_close_ int fd =
                socket(AF_INET, (wire == PATH_TCP ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);

        if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof *to) < 0)
                return -errno;
        return take_fd(&fd);
}

int path_link_open(struct path_link *l, enum path_wire wire)
{
        struct sockaddr_in at;
        int listener, r = 0;

        *l = (struct path_link){-1, -1};
        l->receiver = open_receiver(wire, &at);
        if (l->receiver >= 0)
                l->sender = open_sender(wire, &at);
        if (l->receiver < 0 || l->sender < 0) {
                r = l->receiver < 0 ? l->receiver : l->sender;
                path_link_close(l);
                return r;
        }
        if (wire == PATH_UDP)
                return 0;
        listener = l->receiver;
        l->receiver = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        r = l->receiver < 0 ? -errno : 0;
        close(listener);
        if (r < 0)
                path_link_close(l);
        return r;
}

void path_link_close(struct path_link *l)
{
        if (l->sender >= 0)
                close(l->sender);
        if (l->receiver >= 0)
                close(l->receiver);
        *l = (struct path_link){-1, -1};
}
