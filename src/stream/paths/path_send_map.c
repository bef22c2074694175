/* Paths from the mapped file: the kernel copies each payload from the page cache into the socket. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "path_map.h"
#include "path_send.h"

static int send_alone(struct path_sender *s, const struct path_packet *p, const uint8_t *payload)
{
        return path_send_bytes(s, payload, p->length, 0);
}

int path_map_send(struct path_sender *s)
{
        return path_map_each(s, send_alone);
}

/* Header and payload are two calls, joined by the cork. */
static int send_corked(struct path_sender *s, const struct path_packet *p, const uint8_t *payload)
{
        int r = path_cork(s, 1);

        if (r >= 0)
                r = path_send_header(s, p, 0);
        if (r >= 0)
                r = path_send_bytes(s, payload, p->length, 0);
        return r < 0 ? r : path_cork(s, 0);
}

int path_map_cork(struct path_sender *s)
{
        return path_map_each(s, send_corked);
}

static int send_more(struct path_sender *s, const struct path_packet *p, const uint8_t *payload)
{
        int r = path_send_header(s, p, MSG_MORE);

        return r < 0 ? r : path_send_bytes(s, payload, p->length, 0);
}

int path_map_more(struct path_sender *s)
{
        return path_map_each(s, send_more);
}

int path_map_writev(struct path_sender *s)
{
        return path_map_each(s, path_send_gathered);
}

/* sendmmsg() sends the rest of a batch only when called again. */
static int send_datagrams(struct path_sender *s, const struct path_batch *b)
{
        struct mmsghdr messages[PATH_BATCH_MAX];

        for (size_t i = 0; i < b->n; i++)
                messages[i] = (struct mmsghdr){
                        .msg_hdr = {.msg_iov = (struct iovec *)&b->iov[2 * i], .msg_iovlen = 2}};
        for (size_t i = 0; i < b->n;) {
                int sent = sendmmsg(s->socket, messages + i, (unsigned)(b->n - i), 0);

                if (sent <= 0)
                        return path_failed(s, "sendmmsg");
                i += (size_t)sent;
        }
        return 0;
}

int path_map_batch(struct path_sender *s)
{
        const uint8_t *map = path_map(s);
        struct path_batch b = {};
        int r = map ? 0 : -errno;

        while (r >= 0 && path_batch_take(&b, s, map, PATH_BATCH_MAX) > 0) {
                struct msghdr m = {.msg_iov = b.iov, .msg_iovlen = 2 * b.n};

                r = s->wire == PATH_UDP ? send_datagrams(s, &b)
                                        : path_moved(s, "sendmsg", sendmsg(s->socket, &m, 0), b.bytes);
        }
        return path_unmap(s, map, r);
}
