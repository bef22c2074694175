/* Sends the rings of consumers over TCP. */
#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/util.h"
#include "live_internal.h"
#include "net/tcp.h"

/* Bytes that a consumer gets in a turn of the event loop; more would delay other work there. */
#define SEND_AT_ONCE (256u << 10)
#define LOOK_NS NS_PER_S

/* Sends up to `most_bytes` of the ring. Returns how many were sent, or negative errno: -EAGAIN is not one. */
static ssize_t send_ring_bytes(struct connection *c, size_t most_bytes)
{
        uint64_t written = atomic_load_explicit(&c->consumer->ring.head->written, memory_order_acquire);
        uint64_t at = c->sent % c->consumer->ring.data_bytes;
        size_t bytes = MIN(MIN(written - c->sent, c->consumer->ring.data_bytes - at), most_bytes);
        ssize_t n;

        if (bytes == 0)
                return 0;
        n = send(c->io.fd, c->consumer->ring.data + at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        c->sent += (uint64_t)n;
        return n;
}

/* Sends what the connection accepts now, and watches for what follows. False: the connection must end. */
bool live_send_events(struct connection *c)
{
        size_t left = SEND_AT_ONCE;
        uint32_t events = EPOLLIN;
        ssize_t n;

        do {
                atomic_store(&c->consumer->ring.head->sleeping, 0);
                while (left > 0 && (n = send_ring_bytes(c, left)) != 0) {
                        if (n < 0)
                                return false;
                        left -= (size_t)n;
                }
                if (atomic_load(&c->consumer->ring.head->written) != c->sent)
                        events |= EPOLLOUT;
                else
                        atomic_store(&c->consumer->ring.head->sleeping, 1);
                /* See live_ring.h for the order of these. */
        } while (!(events & EPOLLOUT) && atomic_load(&c->consumer->ring.head->written) != c->sent);
        if (events == c->io.events)
                return true;
        return loop_modify(c->server->loop, &c->io, events) >= 0;
}

void live_wake(struct connection *c)
{
        static const uint64_t one = 1;

        if (live_is_remote(c->server))
                (void)!write(c->server->wake.fd, &one, sizeof one);
        else
                (void)send(c->io.fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void live_notice_silence(struct connection *c)
{
        uint64_t now_ns;

        if (!live_is_remote(c->server))
                return;
        now_ns = clock_now_ns();
        if (now_ns - c->looked_ns < LOOK_NS)
                return;
        c->looked_ns = now_ns;
        if (tcp_is_silent(c->io.fd))
                shutdown(c->io.fd, SHUT_RDWR);
}

/* Sends the rest of the ring, and then, if the run has ended, the last record. */
bool live_send_rest(struct connection *c)
{
        const struct live_ring_head *head = c->consumer->ring.head;
        const struct live_record last = {
                .offered = head->offered, .given = head->given, .skipped = head->skipped};
        uint64_t written = atomic_load(&head->written);
        int unsent = 0;
        ssize_t n = 0;

        while (c->sent < written && (n = send_ring_bytes(c, SIZE_MAX)) > 0)
                continue;
        if (n < 0 || c->sent < written)
                return n < 0;
        if (c->sent < written + sizeof last && atomic_load(&head->ended)) {
                size_t at = c->sent - written;

                n = send(c->io.fd, (const char *)&last + at, sizeof last - at, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (n < 0)
                        return errno != EAGAIN;
                c->sent += (uint64_t)n;
                if (c->sent < written + sizeof last)
                        return false;
        }
        return ioctl(c->io.fd, SIOCOUTQ, &unsent) < 0 || unsent == 0;
}

uint64_t live_count_missed(const struct connection *c)
{
        const struct live_ring *r = &c->consumer->ring;
        uint64_t missed = 0, arrived;
        int unsent = 0;

        (void)ioctl(c->io.fd, SIOCOUTQ, &unsent);
        arrived = c->sent - MIN(c->sent, (uint64_t)MAX(unsent, 0));
        for (uint64_t at = r->released; at < r->written;) {
                struct live_record record;

                memcpy(&record, r->data + at % r->data_bytes, sizeof record);
                /* The consumer says where its events begin, so this may be none. */
                if (record.record_bytes < sizeof record || record.record_bytes % 64 != 0 ||
                    record.record_bytes > r->written - at)
                        break;
                at += record.record_bytes;
                missed += record.event_bytes > 0 && at > arrived;
        }
        return missed;
}
