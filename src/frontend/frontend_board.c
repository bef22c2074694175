/* Counts triggers, keeps frames until they are due, and restarts. */
#include "frontend_board.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

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
                /* The outage passes also while triggers are held back, because they may wait for this board.
                 */
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

/* The frame that is due first, and its queue; NULL: none waits. */
static const struct frontend_waiting *next(struct frontend_board *b, struct frontend_queue **ret_queue)
{
        const struct frontend_waiting *prompt = first(&b->prompt), *late = first(&b->late);

        *ret_queue = !late || (prompt && prompt->due_ns <= late->due_ns) ? &b->prompt : &b->late;
        return *ret_queue == &b->prompt ? prompt : late;
}

/* True: a frame that is due does not fit. */
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

        /* A blocked link wakes the loop, and a missing connection does so when it comes. */
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
