/* Accepts the connections of ROSs and passes them to boards. */
#include "frontend_doors.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/util.h"
#include "net/tcp.h"

static const struct net_address *address_of(const struct frontend_board *b)
{
        return &b->config->boards[b->index].at;
}

static struct frontend_board *board_without(const struct frontend_door *door)
{
        const struct frontend_doors *d = door->all;

        for (unsigned i = 0; i < d->n_boards; i++) {
                if (frontend_board_wants_connection(&d->boards[i]) &&
                    net_address_equal(address_of(&d->boards[i]), door->at))
                        return &d->boards[i];
        }
        return NULL;
}

static void is_ready(void *ctx, uint32_t events)
{
        (void)events;
        ((struct frontend_door *)ctx)->ready = true;
}

/* A connection that no board wants is closed. */
static int accept_all(struct frontend_door *door)
{
        struct net_address peer;
        int fd, r = 0;

        door->ready = false;
        while (r >= 0 && (fd = tcp_accept(door->io.fd, 0, &peer)) >= 0) {
                struct frontend_board *b = board_without(door);

                r = b ? frontend_link_connect(&b->link, fd) : close(fd);
        }
        return r < 0 ? log_error_errno(r, "cannot take a connection: %m") : 0;
}

static int open_door(struct frontend_door *door)
{
        char text[NET_ADDRESS_TEXT_MAX];
        int fd = tcp_listen(door->at, 0), r;

        if (fd == -EADDRINUSE)
                return log_error_errno(fd, "cannot listen at %s for a board: the port is in use",
                                       net_address_format(door->at, text));
        if (fd < 0)
                return log_error_errno(fd, "cannot listen at %s for a board: %m",
                                       net_address_format(door->at, text));
        door->io.fd = fd;
        r = loop_add(door->all->loop, &door->io);
        return r < 0 ? log_error_errno(r, "cannot watch a port: %m") : 0;
}

static void close_door(struct frontend_door *door)
{
        if (door->io.fd < 0)
                return;
        loop_remove(door->all->loop, &door->io);
        close(door->io.fd);
        door->io.fd = -1;
}

static bool is_known(const struct frontend_doors *d, const struct net_address *at)
{
        for (unsigned i = 0; i < d->n; i++) {
                if (net_address_equal(d->doors[i].at, at))
                        return true;
        }
        return false;
}

int frontend_doors_init(struct frontend_doors *d, struct loop *loop, struct frontend_board *boards,
                        unsigned n_boards)
{
        *d = (struct frontend_doors){.loop = loop, .boards = boards, .n_boards = n_boards};
        for (unsigned i = 0; i < n_boards; i++) {
                const struct net_address *at = address_of(&boards[i]);

                if (frontend_board_is_dead(&boards[i]) || !boards[i].link.tcp || is_known(d, at))
                        continue;
                d->doors[d->n] = (struct frontend_door){.all = d, .at = at};
                d->doors[d->n].io = (struct loop_io){
                        .fd = -1, .events = EPOLLIN, .ready = is_ready, .ctx = &d->doors[d->n]};
                d->n++;
        }
        return frontend_doors_turn(d);
}

void frontend_doors_fini(struct frontend_doors *d)
{
        for (unsigned i = 0; i < d->n; i++)
                close_door(&d->doors[i]);
}

static bool is_wanted(const struct frontend_door *door)
{
        const struct frontend_doors *d = door->all;

        for (unsigned i = 0; i < d->n_boards; i++) {
                const struct frontend_board *b = &d->boards[i];

                if (b->link.tcp && !frontend_board_is_dead(b) && !b->down &&
                    net_address_equal(address_of(b), door->at))
                        return true;
        }
        return false;
}

int frontend_doors_turn(struct frontend_doors *d)
{
        int r = 0;

        for (unsigned i = 0; i < d->n && r >= 0; i++) {
                struct frontend_door *door = &d->doors[i];

                if (!is_wanted(door))
                        close_door(door);
                else if (door->io.fd < 0)
                        r = open_door(door);
                else if (door->ready)
                        r = accept_all(door);
        }
        return r;
}
