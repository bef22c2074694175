/* Accepts the connections of ROSs and passes them to boards. */
#include "frontend_board.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/util.h"
#include "net/tcp.h"

static const struct net_address *address_of(const struct frontend_board *b)
{
        return &b->config->boards[b->index].at;
}

static struct frontend_board *board_without(const struct frontend_listener *l)
{
        const struct frontend_listeners *d = l->all;

        for (unsigned i = 0; i < d->n_boards; i++) {
                if (frontend_board_wants_connection(&d->boards[i]) &&
                    net_address_equal(address_of(&d->boards[i]), l->at))
                        return &d->boards[i];
        }
        return NULL;
}

/* Passes connections to boards that wait for one; closes all other connections. */
static int accept_all(struct frontend_listener *l)
{
        struct net_address peer;
        int fd, r = 0;

        l->ready = false;
        while (r >= 0 && (fd = tcp_accept(l->io.fd, 0, &peer)) >= 0) {
                struct frontend_board *b = board_without(l);

                r = b ? frontend_link_connect(&b->link, fd) : close(fd);
        }
        return r < 0 ? log_error_errno(r, "cannot take a connection: %m") : 0;
}

static int open_listener(struct frontend_listener *l)
{
        char text[NET_ADDRESS_TEXT_MAX];
        int fd = tcp_listen(l->at, 0), r;

        if (fd == -EADDRINUSE)
                return log_error_errno(fd, "cannot listen at %s for a board: the port is in use",
                                       net_address_format(l->at, text));
        if (fd < 0)
                return log_error_errno(fd, "cannot listen at %s for a board: %m",
                                       net_address_format(l->at, text));
        l->io.fd = fd;
        r = loop_add(l->all->loop, &l->io);
        return r < 0 ? log_error_errno(r, "cannot watch a port: %m") : 0;
}

static void close_listener(struct frontend_listener *l)
{
        if (l->io.fd < 0)
                return;
        loop_remove(l->all->loop, &l->io);
        close(l->io.fd);
        l->io.fd = -1;
}

static bool is_known(const struct frontend_listeners *d, const struct net_address *at)
{
        for (unsigned i = 0; i < d->n; i++) {
                if (net_address_equal(d->listeners[i].at, at))
                        return true;
        }
        return false;
}

int frontend_listeners_init(struct frontend_listeners *d, struct loop *loop, struct frontend_board *boards,
                            unsigned n_boards)
{
        *d = (struct frontend_listeners){.loop = loop, .boards = boards, .n_boards = n_boards};
        for (unsigned i = 0; i < n_boards; i++) {
                const struct net_address *at = address_of(&boards[i]);

                if (frontend_board_is_dead(&boards[i]) || !boards[i].link.tcp || is_known(d, at))
                        continue;
                d->listeners[d->n] = (struct frontend_listener){.all = d, .at = at};
                d->listeners[d->n].io = (struct loop_io){.fd = -1,
                                                         .events = EPOLLIN,
                                                         .ready = loop_set_flag,
                                                         .ctx = &d->listeners[d->n].ready};
                d->n++;
        }
        return frontend_listeners_turn(d);
}

void frontend_listeners_fini(struct frontend_listeners *d)
{
        for (unsigned i = 0; i < d->n; i++)
                close_listener(&d->listeners[i]);
}

static bool is_wanted(const struct frontend_listener *l)
{
        const struct frontend_listeners *d = l->all;

        for (unsigned i = 0; i < d->n_boards; i++) {
                const struct frontend_board *b = &d->boards[i];

                if (b->link.tcp && !frontend_board_is_dead(b) && !b->down &&
                    net_address_equal(address_of(b), l->at))
                        return true;
        }
        return false;
}

int frontend_listeners_turn(struct frontend_listeners *d)
{
        int r = 0;

        for (unsigned i = 0; i < d->n && r >= 0; i++) {
                struct frontend_listener *l = &d->listeners[i];

                if (!is_wanted(l))
                        close_listener(l);
                else if (l->io.fd < 0)
                        r = open_listener(l);
                else if (l->ready)
                        r = accept_all(l);
        }
        return r;
}
