/* A board counts triggers, keeps frames until they are due, and restarts. This file decides which frames the
 * board misses and which are late, fills the frames (with the pattern of evb's own sources, the board's
 * counter, and the true numbers at the end), and sends them in batches. */
#include "frontend_board.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/pattern.h"
#include "base/random.h"
#include "base/util.h"
#include "net/tcp.h"

/* ---- Link and frames ---- */

#define LENGTH_BYTES 4u
#define SEND_BUFFER_BYTES (4u << 20)

static void is_ready(void *ctx, uint32_t events)
{
        struct frontend_link *l = ctx;

        if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
                l->hung = l->tcp;
        l->blocked = false;
}

static int open_udp(struct frontend_link *l, const struct net_address *to)
{
        struct udp_config config = {
                .connect = to, .send_buffer_bytes = SEND_BUFFER_BYTES, .segmentation = SEGMENTATION_OFF};
        int r;

        config.local = (struct net_address){.any.sa_family = to->any.sa_family, .size_bytes = to->size_bytes};
        r = endpoint_new_udp(&l->endpoint, &config);
        if (r < 0)
                return r;
        l->io.fd = l->endpoint->fd;
        l->up = true;
        return 0;
}

/* `to`: address of the ROS for UDP; NULL for TCP. `size_bytes` must be enough for at least one frame with its
 * length. */
static int frontend_link_init(struct frontend_link *l, struct loop *loop, const struct net_address *to,
                              size_t size_bytes)
{
        *l = (struct frontend_link){.loop = loop, .tcp = !to, .size_bytes = size_bytes};
        l->io = (struct loop_io){.fd = -1, .ready = is_ready, .ctx = l};
        l->bytes = malloc(size_bytes);
        if (!l->bytes)
                return -ENOMEM;
        return to ? open_udp(l, to) : 0;
}

/* Complete frames that were not sent stay staged for the next connection. */
static void frontend_link_disconnect(struct frontend_link *l)
{
        if (!l->up)
                return;
        loop_remove(l->loop, &l->io);
        close(l->io.fd);
        l->io.fd = -1;
        l->up = l->blocked = l->hung = false;
        if (l->sent_bytes <= l->ends[l->done])
                return;
        /* The remaining bytes of a frame would be invalid on another connection. */
        l->done++;
        l->broken++;
        l->sent_bytes = l->ends[l->done];
}

static void frontend_link_fini(struct frontend_link *l)
{
        if (!l)
                return;
        if (l->tcp)
                frontend_link_disconnect(l);
        else if (l->blocked)
                loop_remove(l->loop, &l->io);
        endpoint_free(l->endpoint);
        free(l->bytes);
        l->endpoint = NULL;
        l->bytes = NULL;
}

/* Returns the place for the next frame of f->bytes bytes, which the caller fills; NULL: there is no room
 * now. */
static uint8_t *frontend_link_stage(struct frontend_link *l, const struct frontend_frame *f)
{
        size_t bytes = f->bytes + LENGTH_BYTES;
        uint8_t *at;

        if (l->done == l->n) {
                l->n = l->done = 0;
                l->sent_bytes = 0;
        }
        if (l->n == FRONTEND_LINK_FRAMES || l->ends[l->n] + bytes > l->size_bytes)
                return NULL;
        at = l->bytes + l->ends[l->n];
        l->frames[l->n] = *f;
        l->ends[l->n + 1] = l->ends[l->n] + bytes;
        l->n++;
        return at;
}

static void count_sent(struct frontend_link *l)
{
        const struct frontend_frame *f = &l->frames[l->done++];

        l->sent++;
        l->sent_payload_bytes += f->bytes;
        l->sent_late += f->late;
}

/* A socket that is not blocked is not watched, because a pending ICMP error would wake the loop again and
 * again. */
static int block_udp(struct frontend_link *l)
{
        l->blocked = true;
        l->io.events = EPOLLOUT;
        return loop_add(l->loop, &l->io);
}

static int send_udp(struct frontend_link *l)
{
        struct outgoing out[FRONTEND_LINK_FRAMES];
        struct iovec iov[FRONTEND_LINK_FRAMES];
        size_t n = frontend_link_staged(l);
        int taken;

        for (size_t i = 0; i < n; i++) {
                size_t at = l->ends[l->done + i], bytes = l->ends[l->done + i + 1] - at;

                iov[i] = (struct iovec){l->bytes + at, bytes};
                out[i] = (struct outgoing){.iov = &iov[i], .n_iov = 1, .size_bytes = (uint32_t)bytes};
        }
        taken = endpoint_send(l->endpoint, out, n);
        if (taken < 0)
                return taken;
        for (int i = 0; i < taken; i++)
                count_sent(l);
        return (size_t)taken < n ? block_udp(l) : 0;
}

static int send_tcp(struct frontend_link *l)
{
        while (l->done < l->n) {
                struct iovec iov = {l->bytes + l->sent_bytes, l->ends[l->n] - l->sent_bytes};
                ssize_t sent = tcp_send(l->io.fd, &iov, 1);

                if (sent == -EAGAIN) {
                        l->blocked = true;
                        return loop_modify(l->loop, &l->io, EPOLLRDHUP | EPOLLOUT);
                }
                if (sent < 0) {
                        frontend_link_disconnect(l);
                        return 0;
                }
                l->sent_bytes += (size_t)sent;
                while (l->done < l->n && l->ends[l->done + 1] <= l->sent_bytes)
                        count_sent(l);
        }
        return 0;
}

/* Passes staged frames to the kernel. A negative errno is a programming error; a broken connection is not an
 * error. */
static int frontend_link_send(struct frontend_link *l)
{
        if (l->hung)
                frontend_link_disconnect(l);
        if (l->blocked || !l->up)
                return 0;
        /* The socket is no longer blocked, so it is not watched. */
        if (l->tcp)
                loop_modify(l->loop, &l->io, EPOLLRDHUP);
        else if (l->io.events)
                loop_remove(l->loop, &l->io);
        if (!l->tcp)
                l->io.events = 0;
        if (l->done == l->n)
                return 0;
        return l->tcp ? send_tcp(l) : send_udp(l);
}

int frontend_link_connect(struct frontend_link *l, int fd)
{
        int r;

        l->io.fd = fd;
        l->io.events = EPOLLRDHUP;
        r = loop_add(l->loop, &l->io);
        if (r < 0) {
                l->io.fd = -1;
                close(fd);
                return r;
        }
        tcp_notice_silence(fd);
        l->up = true;
        l->blocked = l->hung = false;
        l->connections++;
        return 0;
}

uint64_t frontend_link_refused(const struct frontend_link *l)
{
        return l->endpoint ? l->endpoint->counts.send_failed : 0;
}

#define LENGTH_BYTES 4u

enum draw { DRAW_MISSED = 1, DRAW_LATE };

/* Returns a fraction from 0 to below 1, which depends only on the arguments. */
static double draw(const struct frontend_config *c, unsigned board, uint64_t serial, enum draw what)
{
        uint64_t key = pattern_key(c->seed, board, serial);

        return (double)(random_mix(key + what) >> 11) * 0x1p-53;
}

uint32_t frontend_least_bytes(const struct number_field *counter)
{
        return (uint32_t)number_field_end(counter) + FRONTEND_TRAILER_BYTES;
}

bool frontend_plan(const struct frontend_config *c, const struct source *source, unsigned board,
                   uint64_t serial, struct frontend_frame *ret)
{
        uint32_t most = c->boards[board].tcp ? EVB_FRAGMENT_MAX_BYTES : FRONTEND_UDP_MAX_BYTES;
        struct ros_fragment fragment;

        if (draw(c, board, serial, DRAW_MISSED) < c->missed)
                return false;
        source_describe((void *)source, serial, (uint32_t)serial, &fragment);
        /* The distribution rarely gives sizes outside these limits. */
        ret->bytes = MIN(MAX(fragment.bytes, frontend_least_bytes(&c->counter)), most);
        ret->late = draw(c, board, serial, DRAW_LATE) < c->late;
        return true;
}

void frontend_fill(const struct frontend_config *c, unsigned board, const struct frontend_frame *f,
                   uint8_t *to)
{
        uint32_t length = htole32(f->bytes), numbers[2] = {htole32(board + 1), htole32(f->restarts)};
        uint64_t serial = htole64(c->first + f->serial);
        uint8_t *frame = to + LENGTH_BYTES, *trailer = frame + f->bytes - FRONTEND_TRAILER_BYTES;

        memcpy(to, &length, sizeof length);
        pattern_fill(pattern_key(c->seed, board, f->serial), frame, 0, f->bytes);
        number_write(&c->counter, f->number, frame);
        memcpy(trailer, &serial, sizeof serial);
        memcpy(trailer + sizeof serial, numbers, sizeof numbers);
}

uint64_t frontend_skew_ns(const struct frontend_config *c, unsigned board)
{
        return c->n_boards < 2 ? c->skew_ns
                               : (uint64_t)((unsigned __int128)c->skew_ns * board / (c->n_boards - 1));
}

/* ---- Board ---- */

#define STAGE_BYTES (256u << 10)
#define LENGTH_BYTES 4u

static uint32_t largest_frame(const struct frontend_config *c, unsigned board)
{
        uint32_t most = c->boards[board].tcp ? EVB_FRAGMENT_MAX_BYTES : FRONTEND_UDP_MAX_BYTES;

        switch (c->sizes.kind) {
        case SIZES_FIXED:
                return MIN(c->sizes.bytes, most);
        case SIZES_UNIFORM:
                return MIN(c->sizes.most, most);
        case SIZES_LOGNORMAL:
                break;
        }
        return most;
}

int frontend_board_init(struct frontend_board *b, const struct frontend_config *config, unsigned index,
                        struct loop *loop)
{
        size_t stage = MAX(STAGE_BYTES, (size_t)largest_frame(config, index) + LENGTH_BYTES);
        bool tcp = config->boards[index].tcp;
        int r;

        *b = (struct frontend_board){.config = config, .index = index, .start = config->first};
        b->link.io.fd = -1;
        if (frontend_board_is_dead(b))
                return 0;
        b->prompt.items = calloc(FRONTEND_QUEUE_FRAMES, sizeof *b->prompt.items);
        b->late.items = calloc(FRONTEND_QUEUE_FRAMES, sizeof *b->late.items);
        if (!b->prompt.items || !b->late.items)
                return -ENOMEM;
        r = source_new_pattern(&b->source, index, config->seed, &config->sizes);
        if (r < 0)
                return r;
        return frontend_link_init(&b->link, loop, tcp ? NULL : &config->boards[index].at, stage);
}

void frontend_board_fini(struct frontend_board *b)
{
        frontend_link_fini(&b->link);
        source_free(b->source);
        free(b->prompt.items);
        free(b->late.items);
        b->source = NULL;
        b->prompt.items = b->late.items = NULL;
}

bool frontend_board_is_dead(const struct frontend_board *b)
{
        return b->config->boards[b->index].dead;
}

static bool is_full(const struct frontend_queue *q)
{
        return q->head - q->tail == FRONTEND_QUEUE_FRAMES;
}

static const struct frontend_waiting *first(const struct frontend_queue *q)
{
        return q->head == q->tail ? NULL : &q->items[q->tail % FRONTEND_QUEUE_FRAMES];
}

static void push(struct frontend_queue *q, const struct frontend_frame *frame, uint64_t due_ns)
{
        q->items[q->head++ % FRONTEND_QUEUE_FRAMES] = (struct frontend_waiting){*frame, due_ns};
}

bool frontend_board_has_room(const struct frontend_board *b)
{
        return frontend_board_is_dead(b) || (!is_full(&b->prompt) && !is_full(&b->late));
}

static const struct frontend_restart *next_restart(struct frontend_board *b)
{
        const struct frontend_config *c = b->config;

        while (b->next_restart < c->n_restarts && c->restarts[b->next_restart].board != b->index)
                b->next_restart++;
        return b->next_restart < c->n_restarts ? &c->restarts[b->next_restart] : NULL;
}

void frontend_board_advance(struct frontend_board *b, uint64_t schedule_ns, uint64_t zero_ns)
{
        const struct frontend_restart *next = next_restart(b);

        if (!b->down && next && next->after_ns <= schedule_ns) {
                b->down = true;
                b->closing = b->link.tcp;
                /* The outage continues while triggers are held back, because they may be waiting for this
                 * board. */
                b->down_until_ns = zero_ns + next->after_ns + next->outage_ns;
                b->next_restart++;
                b->restarts++;
        }
        if (b->down && b->down_until_ns <= zero_ns + schedule_ns) {
                b->down = false;
                b->fresh = true;
        }
}

void frontend_board_reset(struct frontend_board *b)
{
        b->fresh = true;
}

void frontend_board_trigger(struct frontend_board *b, uint64_t serial, uint64_t at_ns)
{
        struct frontend_frame frame = {.serial = serial, .restarts = b->restarts};
        uint64_t due_ns = at_ns + frontend_skew_ns(b->config, b->index);

        if (frontend_board_is_dead(b))
                return;
        b->triggers++;
        if (b->down) {
                b->outage++;
                return;
        }
        if (b->fresh) {
                b->since = serial;
                b->start = 0;
                b->fresh = false;
        }
        frame.number = serial - b->since + b->start;
        if (!frontend_plan(b->config, b->source, b->index, serial, &frame))
                b->missed++;
        else if (frame.late)
                push(&b->late, &frame, due_ns + b->config->late_ns);
        else
                push(&b->prompt, &frame, due_ns);
}

/* Returns the frame that is due first, and its queue; NULL: no frame waits. */
static const struct frontend_waiting *next(struct frontend_board *b, struct frontend_queue **ret_queue)
{
        const struct frontend_waiting *prompt = first(&b->prompt), *late = first(&b->late);

        *ret_queue = !late || (prompt && prompt->due_ns <= late->due_ns) ? &b->prompt : &b->late;
        return *ret_queue == &b->prompt ? prompt : late;
}

/* True: there was no room for a frame that is due. */
static bool stage_due(struct frontend_board *b, uint64_t now_ns)
{
        const struct frontend_waiting *w;
        struct frontend_queue *q;

        while ((w = next(b, &q)) && w->due_ns <= now_ns) {
                uint8_t *to = frontend_link_stage(&b->link, &w->frame);

                if (!to)
                        return true;
                frontend_fill(b->config, b->index, &w->frame, to);
                q->tail++;
        }
        return false;
}

int frontend_board_turn(struct frontend_board *b, uint64_t now_ns)
{
        bool more = true;
        int r = 0;

        if (frontend_board_is_dead(b))
                return 0;
        while (more && r == 0) {
                more = stage_due(b, now_ns);
                r = frontend_link_send(&b->link);
                more &= b->link.up && frontend_link_staged(&b->link) == 0;
        }
        if (b->closing && (frontend_link_staged(&b->link) == 0 || !b->link.up)) {
                frontend_link_disconnect(&b->link);
                b->closing = false;
        }
        return r;
}

uint64_t frontend_board_deadline_ns(const struct frontend_board *b)
{
        const struct frontend_waiting *prompt = first(&b->prompt), *late = first(&b->late);
        uint64_t due_ns = MIN(prompt ? prompt->due_ns : NEVER_NS, late ? late->due_ns : NEVER_NS);

        /* A blocked link wakes the loop, and a new connection does so, too. */
        if (b->link.blocked || !b->link.up)
                due_ns = NEVER_NS;
        else if (frontend_link_staged(&b->link) > 0)
                due_ns = 0;
        return b->down ? MIN(due_ns, b->down_until_ns) : due_ns;
}

uint64_t frontend_board_unsent(const struct frontend_board *b)
{
        return b->prompt.head - b->prompt.tail + (b->late.head - b->late.tail) +
               frontend_link_staged(&b->link);
}

bool frontend_board_wants_connection(const struct frontend_board *b)
{
        return !frontend_board_is_dead(b) && b->link.tcp && !b->link.up && !b->down && !b->closing;
}
