/* The receiving process: checks every byte that arrives, or discards all without copying them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/util.h"
#include "path_internal.h"

#define BUFFER_BYTES 262144u
#define DISCARD_BATCH 64u
/* Bytes of a stream that one call discards. */
#define DISCARD_BYTES (1u << 20)

/* MSG_TRUNC discards what does not fit, and reports its size (udp(7), tcp(7)). */
static ssize_t discard_stream(int socket, struct path_shared *shared)
{
        ssize_t n = recv(socket, NULL, DISCARD_BYTES, MSG_TRUNC);

        shared->received_bytes += n > 0 ? (uint64_t)n : 0;
        return n;
}

static ssize_t discard_datagrams(int socket, struct path_shared *shared)
{
        struct mmsghdr messages[DISCARD_BATCH] = {};
        int n = recvmmsg(socket, messages, DISCARD_BATCH, MSG_WAITFORONE | MSG_TRUNC, NULL);

        for (int i = 0; i < n; i++)
                shared->received_bytes += messages[i].msg_len;
        return n;
}

static ssize_t check_datagram(int socket, struct path_check *check, uint8_t *buffer)
{
        ssize_t n = recv(socket, buffer, BUFFER_BYTES, 0);

        if (n >= 0)
                path_check_datagram(check, buffer, (size_t)n);
        return n;
}

/* `*held` bytes wait at the begin of the buffer for the rest of their header. */
static ssize_t check_stream(int socket, struct path_check *check, uint8_t *buffer, size_t *held)
{
        ssize_t n = recv(socket, buffer + *held, BUFFER_BYTES - *held, 0);
        size_t all, used;

        if (n <= 0)
                return n;
        all = *held + (size_t)n;
        used = path_check_stream(check, buffer, all);
        memmove(buffer, buffer + used, all - used);
        *held = all - used;
        return n;
}

void path_receive(struct path_shared *shared, int socket, enum path_wire wire, struct path_check *check)
{
        struct timeval wait = {.tv_usec = 20000};
        uint8_t *buffer = malloc(BUFFER_BYTES);
        size_t held = 0;

        (void)setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        while (buffer) {
                bool stop = atomic_load(&shared->stop);
                ssize_t n = wire == PATH_TCP ? check ? check_stream(socket, check, buffer, &held)
                                                     : discard_stream(socket, shared)
                            : check ? check_datagram(socket, check, buffer)
                                             : discard_datagrams(socket, shared);

                if (n < 0 && errno != EAGAIN && errno != EINTR) {
                        shared->receive_error = -errno;
                        break;
                }
                if (n == 0 && wire == PATH_TCP)
                        break;
                /* Nothing came although the sender had ended before. */
                if (n < 0 && stop)
                        break;
                /* A sender that waits for more would wait in vain for what is broken. */
                if (check)
                        atomic_store(&shared->received_packets,
                                     check->broken ? UINT64_MAX >> 1 : check->packets);
        }
        if (check) {
                shared->checked_bytes = check->bytes;
                shared->intact = !check->broken && held == 0 && check->left == 0;
        }
        free(buffer);
}
