/* Requests from other threads: each is answered once, and the event loop never waits for such a thread. */
#include "../test.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "node/run_control/mailbox.h"

#define REQUESTS 2000

static _Atomic unsigned over;                     /* threads that have all answers, or have missed one */
static struct run_mailbox *event_loop_is_quicker; /* with this one */

int __real_eventfd_write(int fd, eventfd_t n);

static void answer(void *ctx, struct run_request *r)
{
        r->status = 200 + r->command;
        ++*(unsigned *)ctx;
}

/* The event loop may have a higher priority than the thread that wakes it, and its only processor. */
int __wrap_eventfd_write(int fd, eventfd_t n)
{
        unsigned answered = 0;
        int r = __real_eventfd_write(fd, n);

        if (event_loop_is_quicker) {
                run_mailbox_turn(event_loop_is_quicker, answer, &answered);
                assert_int_equal(answered, 1);
        }
        return r;
}

TEST(the_event_loop_need_not_look_again)
{
        struct run_request r = {.command = (enum run_command)1};
        struct run_mailbox *m;

        assert_int_equal(run_mailbox_new(&m), 0);
        event_loop_is_quicker = m;
        assert_true(run_mailbox_ask(m, &r));
        event_loop_is_quicker = NULL;
        assert_int_equal(r.status, 201);
        run_mailbox_free(m);
}

static void *ask_often(void *ctx)
{
        unsigned i;

        for (i = 0; i < REQUESTS; i++) {
                struct run_request r = {.command = (enum run_command)(i % RUN_COMMANDS)};

                if (!run_mailbox_ask(ctx, &r) || r.status != 200 + i % RUN_COMMANDS)
                        break;
        }
        atomic_fetch_add(&over, 1);
        return i == REQUESTS ? NULL : ctx;
}

TEST(two_threads_get_their_own_answers)
{
        struct run_mailbox *m;
        unsigned answered = 0;
        pthread_t threads[2];
        struct pollfd fd = {.events = POLLIN};
        void *failed;

        assert_int_equal(run_mailbox_new(&m), 0);
        fd.fd = run_mailbox_fd(m);
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, ask_often, m), 0);
        /* Without a wait, this thread would take the lock and the processor from those that ask. */
        while (atomic_load(&over) < 2) {
                (void)poll(&fd, 1, 10);
                run_mailbox_turn(m, answer, &answered);
        }
        for (unsigned i = 0; i < 2; i++) {
                pthread_join(threads[i], &failed);
                assert_null(failed);
        }
        assert_int_equal(answered, 2 * REQUESTS);
        run_mailbox_free(m);
}

static void *turn_once(void *ctx)
{
        unsigned answered = 0;

        run_mailbox_turn(ctx, answer, &answered);
        assert_int_equal(answered, 0);
        return NULL;
}

/* Here, the thread that answers holds the lock, as a preempted one would. */
static void answer_while_another_turn_comes(void *ctx, struct run_request *r)
{
        pthread_t other;

        r->status = 200;
        assert_int_equal(eventfd_write(run_mailbox_fd(ctx), 1), 0);
        assert_int_equal(pthread_create(&other, NULL, turn_once, ctx), 0);
        pthread_join(other, NULL);
}

static void *ask_once(void *ctx)
{
        struct run_request r = {};

        return run_mailbox_ask(ctx, &r) && r.status == 200 ? NULL : ctx;
}

TEST(a_turn_does_not_wait_for_the_lock)
{
        struct run_mailbox *m;
        pthread_t asker;
        eventfd_t n;
        void *failed;

        assert_int_equal(run_mailbox_new(&m), 0);
        assert_int_equal(pthread_create(&asker, NULL, ask_once, m), 0);
        while (eventfd_read(run_mailbox_fd(m), &n) < 0)
                usleep(1000);
        assert_int_equal(eventfd_write(run_mailbox_fd(m), 1), 0);
        alarm(60); /* otherwise it would wait for itself */
        run_mailbox_turn(m, answer_while_another_turn_comes, m);
        alarm(0);
        /* The second one is still to come. */
        assert_int_equal(eventfd_read(run_mailbox_fd(m), &n), 0);
        pthread_join(asker, &failed);
        assert_null(failed);
        run_mailbox_free(m);
}
