/* The trigger box of the stand-in for boards: how it tells the DFM of a reset. The test is the DFM. */
#include "../test.h"

#include <sys/socket.h>

#include "frontend/frontend_box.h"

struct played {
        struct frontend_config config;
        struct frontend_box box;
        struct loop *loop;
        struct endpoint *dfm;
        uint64_t now_ns;
};

static struct net_address any_port(void)
{
        struct net_address a;

        assert_int_equal(net_address_parse(&a, "127.0.0.1", 0), 0);
        return a;
}

static struct net_address address_of(int fd)
{
        struct net_address a = any_port();

        assert_return_code(getsockname(fd, &a.any, &a.size_bytes), 0);
        return a;
}

static void begin(struct played *p)
{
        struct udp_config config = {.local = any_port()};

        *p = (struct played){.now_ns = NS_PER_S};
        assert_int_equal(endpoint_new_udp(&p->dfm, &config), 0);
        p->config.trigger_to = address_of(p->dfm->fd);
        p->config.busy_from = any_port();
        p->config.has_trigger_to = p->config.has_busy_from = true;
        assert_int_equal(loop_new(&p->loop), 0);
        assert_int_equal(frontend_box_init(&p->box, &p->config, p->loop), 0);
}

static void end(struct played *p)
{
        frontend_box_fini(&p->box);
        endpoint_free(p->dfm);
        loop_free(p->loop);
}

/* 100 ms later, the DFM says this. */
static void dfm_says(struct played *p, uint8_t reason)
{
        uint8_t bytes[16] = {'E', 'V', 'B', 'B', reason > 0, reason};
        struct net_address to = address_of(p->box.in->fd);

        p->now_ns += 100 * NS_PER_MS;
        assert_int_equal(sendto(p->dfm->fd, bytes, sizeof bytes, 0, &to.any, to.size_bytes), sizeof bytes);
        p->box.ready = true;
        assert_true(frontend_box_receive(&p->box, p->now_ns) >= 0);
        assert_int_equal(frontend_box_send(&p->box, p->now_ns), 0);
}

/* The flags of the entries that came since; 0: none. */
static uint32_t dfm_receives(struct played *p)
{
        uint8_t bytes[2048];
        uint32_t flags = 0;

        for (ssize_t n; (n = recv(p->dfm->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;)
                for (ssize_t at = 16; at < n; at += 24)
                        flags |= bytes[at + 20] | 0x100;
        return flags;
}

static void asks(struct played *p)
{
        dfm_says(p, 0);
        frontend_box_reset(&p->box, 7, p->now_ns);
        dfm_says(p, 0);
        assert_int_equal(dfm_receives(p), 0x100 | FRONTEND_ENTRY_RESET | FRONTEND_ENTRY_MARKER);
        assert_true(frontend_box_is_resetting(&p->box));
}

TEST(a_reset_ends_with_the_answer)
{
        struct played p;

        begin(&p);
        asks(&p);
        dfm_says(&p, 1);
        dfm_says(&p, FRONTEND_BUSY_RESET);
        assert_true(frontend_box_is_resetting(&p.box));
        dfm_says(&p, 0);
        assert_false(frontend_box_is_resetting(&p.box));
        assert_int_equal(dfm_receives(&p), 0);
        end(&p);
}

/* The next DFM is busy for reason 5 too, until all ROSs know of it. */
TEST_EACH(a_dfm_that_restarts_is_asked_again, silent, 2)
{
        struct played p;

        begin(&p);
        asks(&p);
        dfm_says(&p, FRONTEND_BUSY_RESET);
        if (silent)
                p.now_ns += NS_PER_S / 2;
        else
                dfm_says(&p, FRONTEND_BUSY_STOPPED);
        assert_int_equal(dfm_receives(&p), 0);
        dfm_says(&p, FRONTEND_BUSY_RESET);
        assert_int_equal(dfm_receives(&p), 0x100 | FRONTEND_ENTRY_RESET | FRONTEND_ENTRY_MARKER);
        assert_true(frontend_box_is_resetting(&p.box));
        dfm_says(&p, FRONTEND_BUSY_RESET);
        dfm_says(&p, 0);
        assert_false(frontend_box_is_resetting(&p.box));
        end(&p);
}

TEST(a_lost_marker_is_repeated)
{
        struct played p;

        begin(&p);
        asks(&p);
        for (int k = 0; k < 8; k++)
                dfm_says(&p, 0);
        assert_int_equal(dfm_receives(&p), 0);
        for (int k = 0; k < 4; k++)
                dfm_says(&p, 0);
        assert_int_equal(dfm_receives(&p), 0x100 | FRONTEND_ENTRY_RESET | FRONTEND_ENTRY_MARKER);
        end(&p);
}

/* Only the first trigger of a run has the flag by itself, and not after a marker. */
TEST_EACH(a_marker_takes_the_place_of_the_flag, reset, 2)
{
        struct played p;

        begin(&p);
        if (reset) {
                frontend_box_reset(&p.box, 0, p.now_ns);
                dfm_says(&p, 0);
                dfm_receives(&p);
        }
        frontend_box_trigger(&p.box, 0, 1);
        dfm_says(&p, 0);
        assert_int_equal(dfm_receives(&p) & FRONTEND_ENTRY_RESET, reset ? 0 : FRONTEND_ENTRY_RESET);
        end(&p);
}
