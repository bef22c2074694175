/* Boards that send several frames for each trigger, and the joiners that collect them for their ROSs. Each
 * frame in an event is checked: it belongs to the event's trigger, and its bytes are its own. */
#include "site_joins.h"

#include <assert.h>
#include <endian.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/pattern.h"
#include "base/util.h"
#include "site_internal.h"

#define JOINER_BYTES (2 * (uint64_t)EVB_FRAGMENT_MAX_BYTES)
#define JOINER_FRAMES 1024u
/* As front_end.c looks again at what was due and found no room. */
#define AGAIN_NS NS_PER_MS
#define FULL_PAUSE_NS (5 * NS_PER_MS + 7)
#define BODY_MAX_BYTES 256u
#define SEED 5

/* All values are little-endian. */
struct head {
        uint64_t counter, trigger;
        uint32_t ros, index, count, last, board, body_bytes;
};

#define FIELD(member)                                                                                        \
        ((struct number_field){.offset_bytes = offsetof(struct head, member),                                \
                               .bits = 8 * sizeof((struct head){}.member)})

struct number_field site_joins_index(void)
{
        return FIELD(index);
}

struct number_field site_joins_count(void)
{
        return FIELD(count);
}

struct number_field site_joins_last(void)
{
        return FIELD(last);
}

struct number_field site_joins_board(void)
{
        struct number_field f = FIELD(board);

        f.bits = JOIN_BOARD_BITS_MAX;
        return f;
}

static uint64_t key_of(uint32_t ros, uint64_t trigger, uint32_t frame)
{
        return pattern_key(SEED, ros, trigger * SITE_FRAMES_MAX + frame);
}

static uint32_t count_of(const struct site_joins *j, uint32_t ros, uint64_t trigger)
{
        return j->varies ? 1 + (uint32_t)(random_mix(key_of(ros, trigger, 0)) % j->frames) : j->frames;
}

/* Frame `frame` of the trigger. If boards share the stream, each has indices of its own. */
static struct head describe(const struct site_config *c, uint32_t ros, uint64_t trigger, uint32_t frame)
{
        const struct site_joins *j = &c->boards.joins;
        uint32_t boards = MAX(j->boards, 1u), count = count_of(j, ros, trigger);

        return (struct head){
                .counter = htole64(site_boards_count(c, ros, trigger)),
                .trigger = trigger,
                .ros = ros,
                .index = htole32(frame / boards),
                .count = htole32(count),
                .last = htole32(frame + 1 == count),
                .board = htole32(frame % boards),
                .body_bytes = (uint32_t)(random_mix(key_of(ros, trigger, frame)) % (BODY_MAX_BYTES + 1)),
        };
}

static uint32_t frame_of(const struct site_joins *j, const struct head *h)
{
        return le32toh(h->index) * MAX(j->boards, 1u) + le32toh(h->board);
}

void site_joins_make(struct site *s, struct site_node *n)
{
        const struct site_boards *b = &s->config.boards;
        struct number_field number = FIELD(counter);
        struct joiner_config config = {
                .rule = b->joins.rule,
                .number = number,
                .frames_max = JOINER_FRAMES,
                .order_ns = b->free > 0 ? b->window_ns / 2 : 0,
                .stop_ns = s->config.timeout_ns / 2,
                .buffer_bytes = JOINER_BYTES,
                .datagrams = !s->config.arrive_stream,
        };
        uint64_t triggers = MAX(s->config.events, b->free);

        n->joiner = joiner_free(n->joiner);
        if (b->bits == 0 || b->joins.frames == 0)
                return;
        assert(b->joins.frames <= SITE_FRAMES_MAX);
        if (b->mixed > 0)
                config.number.modulus = site_boards_counter(&s->config, site_index(n)).period;
        else
                config.number.bits = b->bits;
        assert(joiner_new(&n->joiner, &config) == 0);
        n->reached = n->reached ?: calloc(triggers, sizeof *n->reached);
        n->joined = n->joined ?: calloc(triggers, sizeof *n->joined);
        assert(n->reached && n->joined);
}

static bool happens(struct site *s, double probability)
{
        return probability > 0 && random_unit(&s->random) < probability;
}

bool site_joins_send(struct site *s, uint32_t ros, uint64_t trigger, uint64_t at_ns)
{
        const struct site_joins *j = &s->config.boards.joins;
        uint32_t order[SITE_FRAMES_MAX], n = count_of(j, ros, trigger);
        bool is_sent = false;

        for (uint32_t i = 0; i < n; i++) {
                uint32_t k = j->shuffled ? (uint32_t)random_below(&s->random, i + 1) : i;

                order[i] = order[k];
                order[k] = i;
        }
        for (uint32_t i = 0; i < n; i++) {
                uint64_t frame = trigger * SITE_FRAMES_MAX + order[i],
                         due_ns = at_ns + i * j->gap_ns + (happens(s, j->late) ? j->late_ns : 0);

                if (happens(s, j->lost))
                        continue;
                is_sent = true;
                site_send_frame(s, 1 + ros, frame, due_ns);
                if (happens(s, j->repeated))
                        site_send_frame(s, 1 + ros, frame, due_ns + j->late_ns / 2);
        }
        return is_sent;
}

static void deliver(struct site *s, struct site_node *n, bool full)
{
        /* Other frames may have arrived in this instant, or wait for room. */
        bool idle = site_now_ns(s) > n->hit_ns && site_now_ns(s) >= n->full_ns;

        n->slices += joiner_deliver(n->joiner, site_now_ns(s), idle, full, n->sim->ros, n->sim->buffer);
        ros_set_collecting(n->sim->ros, joiner_is_collecting(n->joiner));
}

static size_t make_frame(const struct head *h, uint8_t *bytes)
{
        memcpy(bytes, h, sizeof *h);
        pattern_fill(key_of(h->ros, h->trigger, le32toh(h->index) + 1), bytes + sizeof *h, 0, h->body_bytes);
        return sizeof *h + h->body_bytes;
}

void site_joins_deliver(struct site *s, struct site_node *n, uint64_t frame)
{
        uint64_t trigger = frame / SITE_FRAMES_MAX, counter;
        struct head h = describe(&s->config, site_index(n), trigger, frame % SITE_FRAMES_MAX);
        uint8_t bytes[sizeof h + BODY_MAX_BYTES], *to;
        uint32_t size = (uint32_t)make_frame(&h, bytes);
        enum ros_verdict verdict = ROS_FULL;

        if (!site_is_live(n))
                return;
        counter = le64toh(h.counter);
        n->hit_ns = site_now_ns(s);
        joiner_follow(n->joiner, n->sim->ros);
        if (site_now_ns(s) >= n->full_ns) {
                verdict = joiner_arrive(n->joiner, &counter, bytes, size, size, &to);
                if (verdict == ROS_FULL)
                        deliver(s, n, true);
                if (verdict == ROS_FULL && !s->config.arrive_stream)
                        verdict = joiner_arrive(n->joiner, &counter, bytes, size, size, &to);
        }
        if (verdict == ROS_FULL && s->config.arrive_stream) {
                n->full_ns =
                        MAX(n->full_ns, site_now_ns(s) + (site_now_ns(s) >= n->full_ns ? FULL_PAUSE_NS : 0));
                site_send_frame(s, (uint32_t)(n - s->nodes), frame, n->full_ns);
                return;
        }
        n->frames++;
        n->reached[trigger] |= (uint16_t)(1u << frame % SITE_FRAMES_MAX);
        if (verdict == ROS_FULL) {
                joiner_skip(n->joiner, n->sim->ros);
                return;
        }
        if (verdict == ROS_STORE)
                memcpy(to, bytes, size);
        joiner_commit(n->joiner, site_now_ns(s));
}

void site_joins_turn(struct site *s, struct site_node *n)
{
        if (n->joiner)
                deliver(s, n, false);
}

uint64_t site_joins_deadline_ns(const struct site *s, const struct site_node *n)
{
        if (!n->joiner)
                return NEVER_NS;
        return site_now_ns(s) == n->hit_ns ? site_now_ns(s) + 1
                                           : MAX(joiner_deadline_ns(n->joiner), site_now_ns(s) + AGAIN_NS);
}

/* What a fragment contains. */
struct contents {
        uint32_t n;
        uint16_t frames; /* bit i: the frame i of its trigger */
        bool repeats;
};

/* False: bytes are not those of the trigger, or the frames not in order. */
static bool read_fragment(const struct site *s, const struct site_node *sfi, const struct sfi_fragment *f,
                          uint32_t ros, uint64_t trigger, struct contents *ret)
{
        const struct site_joins *j = &s->config.boards.joins;
        const uint8_t *bytes = sfi->sim->buffer + f->at;
        uint64_t previous = 0;
        uint32_t length;

        *ret = (struct contents){};
        for (uint32_t at = 0; at < f->bytes; at += 4 + length) {
                struct head h, expected;
                uint64_t key;
                uint32_t frame;

                if (f->bytes - at < 4 + sizeof h)
                        return false;
                memcpy(&length, bytes + at, sizeof length);
                length = le32toh(length);
                memcpy(&h, bytes + at + 4, sizeof h);
                frame = frame_of(j, &h);
                if (h.ros != ros || h.trigger != trigger || frame >= count_of(j, ros, trigger))
                        return false;
                expected = describe(&s->config, ros, trigger, frame);
                if (memcmp(&h, &expected, sizeof h) != 0 || length != sizeof h + h.body_bytes ||
                    length > f->bytes - at - 4 ||
                    pattern_check(key_of(ros, trigger, le32toh(h.index) + 1), bytes + at + 4 + sizeof h, 0,
                                  h.body_bytes) != h.body_bytes)
                        return false;
                key = (uint64_t)le32toh(h.board) << 32 | le32toh(h.index);
                if (j->rule.index.bits > 0 && ret->n > 0 && key <= previous)
                        return false;
                previous = key;
                ret->repeats |= ret->frames >> frame & 1;
                ret->frames |= (uint16_t)(1u << frame);
                ret->n++;
        }
        return true;
}

/* Whether the rule shows that a frame is missing. */
static bool shows_missing(const struct join_rule *r)
{
        return r->count > 0 || r->count_at.bits > 0 || (r->last.bits > 0 && r->index.bits > 0);
}

void site_joins_look(struct site *s, const struct site_node *sfi, const struct sfi_fragment *f, uint32_t ros,
                     uint64_t trigger)
{
        const struct site_joins *j = &s->config.boards.joins;
        struct site_node *n = &s->nodes[1 + ros];
        struct contents c;

        if (!read_fragment(s, sfi, f, ros, trigger, &c)) {
                s->wrong_bytes++;
                return;
        }
        /* A DFM or an SFI that is replaced may have the event built again. */
        n->hits_built += n->joined[trigger] == 0 ? c.n : 0;
        n->joined[trigger] |= c.frames;
        s->short_joins += f->status == FRAGMENT_OK && shows_missing(&j->rule) && !c.repeats &&
                          c.n != count_of(j, ros, trigger);
}

struct site_joined site_joined(const struct site *s, uint32_t ros, uint64_t trigger)
{
        const struct site_node *n = &s->nodes[1 + ros];

        return (struct site_joined){
                .all = (uint16_t)((1u << count_of(&s->config.boards.joins, ros, trigger)) - 1),
                .reached = n->reached[trigger],
                .built = n->joined[trigger],
        };
}

uint64_t site_joined_frames(const struct site *s, uint32_t ros)
{
        return s->nodes[1 + ros].hits_built;
}

uint64_t site_short_joins(const struct site *s)
{
        return s->short_joins;
}

const struct joiner *site_joiner(const struct site *s, uint32_t ros)
{
        return s->nodes[1 + ros].joiner;
}
